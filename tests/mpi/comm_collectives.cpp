// Every collective against values computed here for all ranks, through every way that data can take.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "comm/process_grid.h"
#include "tests/mpi/collective_values.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

enum class Way { WindowInPlace, HeapStaged, Messages, FakeNodes };

GridOptions options_of(Way way) {
  GridOptions options;
  options.shape.tensor = test::session().size();
  options.timeout_s = 60;
  options.shared_memory = way != Way::Messages;
  options.fake_nodes = way == Way::FakeNodes ? 2 : 0;
  return options;
}

using test::at;
using test::fill;
using test::first_wrong;
using test::reduced;
using test::value;

constexpr DType kDTypes[] = {DType::Float64, DType::Float32, DType::BFloat16,
                             DType::Float16, DType::Int32,   DType::Int64};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min};
constexpr int64_t kSizes[] = {0, 1, 7, 1000, 100003};

class Collectives : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    grid_ = std::make_unique<ProcessGrid>(test::session(), options_of(GetParam()));
    comm_ = &grid_->tensor();
    n_ = comm_->size();
    arena_ = std::make_unique<Arena>(GetParam() == Way::WindowInPlace ? grid_->memory() : heap_);
  }
  void TearDown() override {
    buffers_.clear();
    arena_.reset();
    comm_->barrier();
    grid_.reset();
  }
  Tensor tensor(DType dtype, int64_t elements) {
    buffers_.push_back(arena_->allocate(dtype, elements, MemoryCategory::Workspace));
    return buffers_.back().view(dtype, {elements});
  }
  Tensor mine(DType dtype, int64_t elements) {
    const Tensor t = tensor(dtype, elements);
    fill(t, [&](int64_t i) { return value(comm_->rank(), i); });
    return t;
  }
  template <class Check>
  void for_all_cases(Check check) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        for (const int64_t size : kSizes) {
          SCOPED_TRACE(testing::Message() << name_of(dtype) << " op " << static_cast<int>(op) << " size " << size);
          buffers_.clear();
          check(dtype, op, size);
        }
      }
    }
  }

  HeapProvider heap_;
  std::unique_ptr<ProcessGrid> grid_;
  Communicator* comm_ = nullptr;
  int n_ = 0;
  std::unique_ptr<Arena> arena_;
  std::vector<Buffer> buffers_;
};

TEST_P(Collectives, all_reduce) {
  for_all_cases([&](DType dtype, ReduceOp op, int64_t size) {
    const Tensor t = mine(dtype, size);
    comm_->all_reduce(t, op).wait();
    EXPECT_EQ(first_wrong(t, [&](int64_t i) { return reduced(op, n_, i); }), -1);
  });
}

TEST_P(Collectives, reduce_overwrites_only_the_root) {
  for_all_cases([&](DType dtype, ReduceOp op, int64_t size) {
    const int root = static_cast<int>(size % n_);
    const Tensor t = mine(dtype, size);
    comm_->reduce(t, op, root).wait();
    EXPECT_EQ(
        first_wrong(t, [&](int64_t i) { return comm_->rank() == root ? reduced(op, n_, i) : value(comm_->rank(), i); }),
        -1);
  });
}

TEST_P(Collectives, reduce_scatter_in_and_out_of_place) {
  for_all_cases([&](DType dtype, ReduceOp op, int64_t size) {
    const int64_t begin = comm_->rank() * size;
    const auto expected = [&](int64_t i) { return reduced(op, n_, begin + i); };
    const Tensor in = mine(dtype, size * n_);
    const Tensor out = tensor(dtype, size);
    comm_->reduce_scatter(in, out, op).wait();
    EXPECT_EQ(first_wrong(out, expected), -1);
    const Tensor own = in.range(begin, begin + size);
    comm_->reduce_scatter(in, own, op).wait();
    EXPECT_EQ(first_wrong(own, expected), -1);
  });
}

TEST_P(Collectives, all_gather_in_and_out_of_place) {
  for (const DType dtype : kDTypes) {
    for (const int64_t size : kSizes) {
      const auto expected = [&](int64_t i) { return value(static_cast<int>(i / size), i % size); };
      const Tensor in = mine(dtype, size);
      const Tensor out = tensor(dtype, size * n_);
      comm_->all_gather(in, out).wait();
      EXPECT_EQ(first_wrong(out, expected), -1);
      const Tensor whole = tensor(dtype, size * n_);
      fill(whole, [](int64_t) { return -1; });
      const Tensor own = whole.range(comm_->rank() * size, (comm_->rank() + 1) * size);
      fill(own, [&](int64_t i) { return value(comm_->rank(), i); });
      comm_->all_gather(own, whole).wait();
      EXPECT_EQ(first_wrong(whole, expected), -1) << name_of(dtype) << " " << size;
    }
  }
}

TEST_P(Collectives, pieces_of_different_sizes) {
  for (const int64_t base : {int64_t{1}, int64_t{300}, int64_t{70001}}) {
    std::vector<int64_t> counts;
    int64_t begin = 0;
    int64_t total = 0;
    for (int r = 0; r < n_; ++r) {
      counts.push_back(r == 1 ? 0 : base * (r + 1) + r);
      if (r < comm_->rank()) begin += counts.back();
      total += counts.back();
    }
    const int64_t own = counts[static_cast<size_t>(comm_->rank())];
    const Tensor in = mine(DType::Float32, total);
    const Tensor piece = tensor(DType::Float32, own);
    comm_->reduce_scatter_v(in, piece, counts, ReduceOp::Sum).wait();
    EXPECT_EQ(first_wrong(piece, [&](int64_t i) { return reduced(ReduceOp::Sum, n_, begin + i); }), -1);
    const Tensor out = tensor(DType::Float32, total);
    comm_->all_gather_v(piece, out, counts).wait();
    EXPECT_EQ(first_wrong(out, [&](int64_t i) { return reduced(ReduceOp::Sum, n_, i); }), -1);
  }
}

TEST_P(Collectives, broadcast_from_every_root) {
  for (const int64_t size : kSizes) {
    for (int root = 0; root < n_; ++root) {
      const Tensor t = mine(DType::BFloat16, size);
      comm_->broadcast(t, root).wait();
      EXPECT_EQ(first_wrong(t, [&](int64_t i) { return value(root, i); }), -1) << size << " from " << root;
    }
  }
}

TEST_P(Collectives, all_to_all_in_and_out_of_place) {
  for (const int64_t size : kSizes) {
    const auto expected = [&](int64_t i) { return value(static_cast<int>(i / size), comm_->rank() * size + i % size); };
    const Tensor in = mine(DType::Float32, size * n_);
    const Tensor out = tensor(DType::Float32, size * n_);
    comm_->all_to_all(in, out).wait();
    EXPECT_EQ(first_wrong(out, expected), -1) << size;
    comm_->all_to_all(in, in).wait();
    EXPECT_EQ(first_wrong(in, expected), -1) << size;
  }
}

/// The sum is ((r0 + r1) + r2) + ..., in fp32: of values whose sum depends on the order, the very bits.
TEST_P(Collectives, sums_in_rank_order_on_all_ranks) {
  for (const int64_t size : {int64_t{5}, int64_t{5000}, int64_t{200001}}) {
    const auto rough = [](int rank, int64_t i) {
      return std::ldexp(1.0f + 0.37f * static_cast<float>(rank), static_cast<int>((i * 5 + rank * 11) % 40) - 20);
    };
    const Tensor t = tensor(DType::Float32, size);
    fill(t, [&](int64_t i) { return rough(comm_->rank(), i); });
    comm_->all_reduce(t, ReduceOp::Sum).wait();
    EXPECT_EQ(first_wrong(t,
                          [&](int64_t i) {
                            float sum = rough(0, i);
                            for (int r = 1; r < n_; ++r) sum += rough(r, i);
                            return sum;
                          }),
              -1);
  }
}

/// bf16 and fp16 are summed in fp32 and rounded once: 256 + 1 + 1 is 258, which steps of bf16 sums would lose.
TEST_P(Collectives, half_types_accumulate_in_fp32) {
  if (n_ < 3) GTEST_SKIP() << "needs three addends";
  const Tensor t = tensor(DType::BFloat16, 3000);
  fill(t, [&](int64_t) { return comm_->rank() == 0 ? 256.0 : (comm_->rank() < 3 ? 1.0 : 0.0); });
  comm_->all_reduce(t, ReduceOp::Sum).wait();
  EXPECT_EQ(first_wrong(t, [](int64_t) { return 258.0; }), -1);
}

TEST_P(Collectives, nan_and_infinity_reach_everybody) {
  for (const int64_t size : {int64_t{3}, int64_t{3000}}) {
    for (const ReduceOp op : kOps) {
      const Tensor t = mine(DType::Float32, size);
      if (comm_->rank() == n_ - 1) t.as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
      if (comm_->rank() == 0) t.as<float>()[2] = std::numeric_limits<float>::infinity();
      comm_->all_reduce(t, op).wait();
      EXPECT_EQ(at(t, 0), reduced(op, n_, 0));
      EXPECT_TRUE(std::isnan(at(t, 1)));
      EXPECT_EQ(std::isinf(at(t, 2)), op != ReduceOp::Min);
    }
  }
}

TEST_P(Collectives, symmetric_memory) {
  const Tensor t = comm_->allocate_symmetric(DType::Float64, 4099);
  fill(t, [&](int64_t i) { return value(comm_->rank(), i); });
  comm_->all_reduce(t, ReduceOp::Sum).wait();
  EXPECT_EQ(first_wrong(t, [&](int64_t i) { return reduced(ReduceOp::Sum, n_, i); }), -1);
}

/// Hundreds of small operations one after the other: a slot used again too early would show.
TEST_P(Collectives, storm_of_small_operations) {
  const Tensor t = tensor(DType::Int64, 3);
  for (int64_t k = 0; k < 300; ++k) {
    fill(t, [&](int64_t i) { return static_cast<double>(k + comm_->rank() + i); });
    comm_->all_reduce(t, ReduceOp::Sum).wait();
    const int64_t ranks = int64_t{n_} * (n_ - 1) / 2;
    ASSERT_EQ(first_wrong(t, [&](int64_t i) { return static_cast<double>(n_ * (k + i) + ranks); }), -1) << k;
    if (k % 10 == 0) comm_->barrier();
  }
}

std::string name_of_way(const testing::TestParamInfo<Way>& tested) {
  switch (tested.param) {
    case Way::WindowInPlace:
      return "window";
    case Way::HeapStaged:
      return "heap";
    case Way::Messages:
      return "messages";
    case Way::FakeNodes:
      return "fake_nodes";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Ways, Collectives,
                         testing::Values(Way::WindowInPlace, Way::HeapStaged, Way::Messages, Way::FakeNodes),
                         name_of_way);

}  // namespace
}  // namespace triax::comm
