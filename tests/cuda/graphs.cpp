// Operations that a recorder puts off: in order with all else, launched as graphs where they come again, and never as a
// graph of other arguments.
#include <functional>

#include "kernels/launch_recorder.h"
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr int64_t kRows = 4, kCols = 16, kN = kRows * kCols;

LaunchRecorder& recorder() { return *cuda_device().recorder(); }

RecorderCounts since(const RecorderCounts& before) {
  const auto& [graphs, made, launches, graph_operations, single_operations, passes, replayed] = before;
  const RecorderCounts now = recorder().counts();
  return {now.graphs - graphs,
          now.made - made,
          now.launches - launches,
          now.graph_operations - graph_operations,
          now.single_operations - single_operations,
          now.passes - passes,
          now.replayed_passes - replayed};
}

/// Matrices in the device's memory.
class CudaGraphs : public ::testing::Test {
 protected:
  Tensor matrix(double from, double step = 0.25) {
    std::vector<float> values(kN);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from + step * static_cast<double>(i));
    buffers_.push_back(arena_.allocate(DType::Float32, kN, MemoryCategory::Workspace));
    const Tensor t = buffers_.back().view(DType::Float32, {kRows, kCols});
    cuda_device().upload(Tensor(values.data(), DType::Float32, {kRows, kCols}), t);
    return t;
  }
  template <class T>
  Tensor integers(const std::vector<T>& values) {
    const auto n = static_cast<int64_t>(values.size());
    buffers_.push_back(arena_.allocate(DTypeOf<T>::value, n, MemoryCategory::Workspace));
    const Tensor t = buffers_.back().view(DTypeOf<T>::value, {n});
    std::vector<T> host = values;
    cuda_device().upload(Tensor(host.data(), DTypeOf<T>::value, {n}), t);
    return t;
  }
  StepBlock* step_block(int64_t step) {
    buffers_.push_back(arena_.allocate(sizeof(StepBlock), MemoryCategory::Workspace));
    auto* const there = static_cast<StepBlock*>(buffers_.back().data());
    StepBlock block;
    block.step = step;
    cuda_device().upload_step(block, there);
    return there;
  }
  static std::vector<float> values(const Tensor& t) {
    std::vector<float> host(static_cast<size_t>(t.numel()));
    cuda_device().download(t, Tensor(host.data(), DType::Float32, {t.rows(), t.cols()}));
    return host;
  }
  static void pass(const std::function<void(Device&)>& operations) {
    RecordedPass recorded(&recorder());
    operations(recorder().device());
    recorded.finish();
  }

  Arena arena_{cuda_device().memory()};
  std::vector<Buffer> buffers_;
};

TEST_F(CudaGraphs, AStretchIsCapturedTheSecondTimeAndOneLaunchFromThen) {
  const Tensor x = matrix(0), y = matrix(0);
  const RecorderCounts before = recorder().counts();
  for (int i = 1; i <= 5; ++i) {
    cuda_device().fill(x, i);
    pass([&](Device& device) {
      device.fill(y, 1);
      device.add(x, y);
      device.scale(y, 2);
    });
    EXPECT_EQ(values(y), std::vector<float>(kN, 2 * static_cast<float>(i + 1)));
    const RecorderCounts now = since(before);
    EXPECT_EQ(now.made, i < 2 ? 0 : 1);
    EXPECT_EQ(now.launches, i - 1);
    EXPECT_EQ(now.graph_operations, 3 * (i - 1));
    EXPECT_EQ(now.single_operations, 3);
    EXPECT_EQ(now.passes, i);
    EXPECT_EQ(now.replayed_passes, i - 1);
  }
}

// The step block is read when the graph runs.
TEST_F(CudaGraphs, WhatADeviceAddressHoldsMayChange) {
  const Tensor x = matrix(1), y = matrix(0);
  const TokenIndex index{integers<int64_t>({11}), integers<int32_t>({0, 1, 2, 3})};
  StepBlock* const step = step_block(1);
  const auto masked = [&](Device& device) {
    device.fill(y, 0);
    device.bias_dropout_add_forward(x, {}, {}, {0.5, 7, 3, step}, index, y);
  };
  for (int i = 0; i < 3; ++i) pass(masked);
  const std::vector<float> first = values(y);
  StepBlock later;
  later.step = 2;
  cuda_device().upload_step(later, step);
  const RecorderCounts before = recorder().counts();
  pass(masked);
  const std::vector<float> second = values(y);
  EXPECT_EQ(since(before).launches, 1);
  EXPECT_EQ(since(before).made, 0);
  EXPECT_NE(first, second);
  masked(cuda_device());
  EXPECT_EQ(values(y), second);
}

// Each case changes one argument of a pass that is a graph already.
TEST_F(CudaGraphs, AnArgumentThatChangesIsNeverServedByAnOlderGraph) {
  const Tensor x = matrix(1), other = matrix(-3, 0.5), out = matrix(0), gamma = matrix(1), square = matrix(0, 0.125);
  const Tensor statistics = matrix(0);
  const TokenIndex index{integers<int64_t>({11}), integers<int32_t>({0, 1, 2, 3})};
  const TokenIndex elsewhere{integers<int64_t>({12}), index.position};
  const TokenIndex later{index.sample, integers<int32_t>({4, 5, 6, 7})};
  StepBlock* const step = step_block(1);
  StepBlock* const next = step_block(2);
  const auto dropout = [&](Device& d, double p, uint64_t seed, uint32_t site, const StepBlock* s, const TokenIndex& i) {
    d.bias_dropout_add_forward(x, {}, {}, {p, seed, site, s}, i, out);
  };
  const Tensor a = square.row_slice(0, 4).col_slice(0, 4), product = out.col_slice(0, 4);
  const auto gemm = [&](Device& d, Transpose transpose, Accumulate accumulate, Tensor bias) {
    d.gemm({a, x.col_slice(0, 4), product, transpose, Transpose::No, accumulate, bias});
  };
  using Variant = std::function<void(Device&, bool changed)>;
  const std::vector<std::pair<const char*, Variant>> cases{
      {"scalar", [&](Device& d, bool c) { d.scale(out, c ? 3 : 2); }},
      {"address", [&](Device& d, bool c) { d.add(c ? other : x, out); }},
      {"output", [&](Device& d, bool c) { d.fill(c ? out.row_slice(0, 2) : out.row_slice(2, 4), 5); }},
      {"rows", [&](Device& d, bool c) { d.scale(out.row_slice(0, c ? 2 : 4), 7); }},
      {"stride",
       [&](Device& d, bool c) {
         d.copy(c ? x.col_slice(0, 8) : x.flat().range(0, 32).reshape({4, 8}), out.col_slice(0, 8));
       }},
      {"accumulation", [&](Device& d, bool c) { gemm(d, Transpose::No, c ? Accumulate::No : Accumulate::Yes, {}); }},
      {"transpose", [&](Device& d, bool c) { gemm(d, c ? Transpose::Yes : Transpose::No, Accumulate::No, {}); }},
      {"bias",
       [&](Device& d, bool c) { gemm(d, Transpose::No, Accumulate::No, c ? Tensor() : gamma.flat().range(0, 4)); }},
      {"epsilon",
       [&](Device& d, bool c) {
         d.rms_norm_forward(x, gamma.flat().range(0, kCols), c ? 10 : 1e-5, out, statistics.flat().range(0, kRows));
       }},
      {"dropout p", [&](Device& d, bool c) { dropout(d, c ? 0.25 : 0.5, 7, 3, step, index); }},
      {"dropout seed", [&](Device& d, bool c) { dropout(d, 0.5, c ? 8 : 7, 3, step, index); }},
      {"dropout site", [&](Device& d, bool c) { dropout(d, 0.5, 7, c ? 4 : 3, step, index); }},
      {"step block", [&](Device& d, bool c) { dropout(d, 0.5, 7, 3, c ? next : step, index); }},
      {"samples", [&](Device& d, bool c) { dropout(d, 0.5, 7, 3, step, c ? elsewhere : index); }},
      {"positions", [&](Device& d, bool c) { dropout(d, 0.5, 7, 3, step, c ? later : index); }}};
  for (const auto& [name, operation] : cases) {
    const auto all = [&, &vary = operation](Device& device, bool changed) {
      device.fill(out, 1);
      vary(device, changed);
      device.add(out, out);
    };
    all(cuda_device(), true);
    const std::vector<float> wanted = values(out);
    for (int i = 0; i < 3; ++i) pass([&](Device& device) { all(device, false); });
    EXPECT_NE(values(out), wanted) << name << ": the case changes nothing";
    pass([&](Device& device) { all(device, true); });
    EXPECT_EQ(values(out), wanted) << name;
  }
}

TEST_F(CudaGraphs, OtherWorkOnTheStreamComesInOrder) {
  const Tensor x = matrix(0), y = matrix(0);
  for (int i = 0; i < 4; ++i) {
    const RecorderCounts before = recorder().counts();
    pass([&](Device& device) {
      device.fill(x, 2);
      device.fill(y, 1);
      cuda_device().scale(x, 5);  // not put off: after the two
      device.add(x, y);           // after it
      device.scale(x, 0);
    });
    EXPECT_EQ(values(y), std::vector<float>(kN, 11));
    EXPECT_EQ(values(x), std::vector<float>(kN, 0));
    EXPECT_EQ(since(before).launches, i == 0 ? 0 : 2);
  }
}

TEST_F(CudaGraphs, ASingleOperationIsNoGraph) {
  const Tensor x = matrix(0);
  const RecorderCounts before = recorder().counts();
  for (int i = 0; i < 3; ++i) pass([&](Device& device) { device.fill(x, 4); });
  EXPECT_EQ(values(x), std::vector<float>(kN, 4));
  EXPECT_EQ(since(before).made, 0);
  EXPECT_EQ(since(before).single_operations, 3);
}

TEST_F(CudaGraphs, APassThatAnExceptionLeavesIsNotDone) {
  const Tensor x = matrix(0), y = matrix(0);
  cuda_device().fill(x, 1);
  EXPECT_THROW(pass([&](Device& device) {
                 device.fill(x, 2);
                 device.scale(x, 3);
                 throw std::runtime_error("between two operations");
               }),
               std::runtime_error);
  EXPECT_EQ(values(x), std::vector<float>(kN, 1));
  // A bug in an operation shows when it is given to the GPU.
  EXPECT_THROW(pass([&](Device& device) {
                 device.fill(x, 2);
                 device.gelu_forward(x, y.row_slice(0, 2));
               }),
               std::logic_error);
  pass([&](Device& device) {
    device.fill(y, 3);
    device.scale(y, 3);
  });
  EXPECT_EQ(values(y), std::vector<float>(kN, 9));
}

TEST_F(CudaGraphs, NoMoreThanTheBoundAreHeldAndOneOutOfUseGivesWay) {
  const Tensor x = matrix(0).flat().range(0, 1);
  const auto fill = [&](int value) {
    pass([&](Device& device) {
      device.fill(x, value);
      device.scale(x, 2);
    });
  };
  constexpr int kMost = 1024;
  const int more = kMost - static_cast<int>(recorder().counts().graphs);  // other tests' are there
  for (int round = 0; round < 2; ++round) {
    for (int value = 1; value <= more; ++value) fill(value);
  }
  EXPECT_EQ(recorder().counts().graphs, kMost);
  // All are in use between two passes of the new one: it stays as it is.
  const RecorderCounts before = recorder().counts();
  fill(-1);
  for (int value = 1; value <= more; ++value) fill(value);
  fill(-1);
  EXPECT_EQ(since(before).made, 0);
  EXPECT_EQ(since(before).launches, more);
  EXPECT_EQ(since(before).replayed_passes, more);
  EXPECT_EQ(values(x), std::vector<float>(1, -2));
  // Now one alone is, for long.
  for (int i = 0; i < 4 * kMost; ++i) fill(1);
  fill(-1);
  EXPECT_EQ(since(before).made, 1);
  EXPECT_EQ(recorder().counts().graphs, 2);
  EXPECT_EQ(values(x), std::vector<float>(1, -2));
}

}  // namespace
}  // namespace triax::kernels::testing
