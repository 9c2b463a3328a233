// Compressed sums over a group: nothing is lost (sums and residuals add up), all ranks hold the same bits, the ledger
// counts what the formulas say, and what must equal the uncompressed sum does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "comm/compression/coded_gather.h"
#include "comm/compression/compressed_sum.h"
#include "comm/compression/power_sgd_sum.h"
#include "comm/compression/top_k_sum.h"
#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

constexpr CompressionMethod kMethods[] = {CompressionMethod::TopK, CompressionMethod::PowerSgd, CompressionMethod::Qsgd,
                                          CompressionMethod::Int8, CompressionMethod::BFloat16};

GradientTensor tensor(const std::string& name, int64_t begin, int64_t rows, int64_t cols, int64_t global_begin = 0,
                      int64_t global_cols = 0) {
  return {name, stream_of(name), begin, rows * cols, rows, cols, global_begin, global_cols > 0 ? global_cols : cols};
}

/// Two buckets of matrices and vectors with gaps of zeros between; one tensor of each is exempt.
std::vector<CompressedBucket> buckets_of() {
  CompressedBucket a{0, 4800, {tensor("a", 0, 40, 50), tensor("bias", 2016, 1, 70), tensor("b", 2112, 7, 300)}};
  CompressedBucket b{4800, 7680, {tensor("table", 4800, 20, 24), tensor("c", 5280, 48, 50)}};
  a.tensors[1].compressed = false;
  b.tensors[0].compressed = false;
  return {a, b};
}

struct Job {
  explicit Job(DType type = DType::Float64, int64_t elements = 7680)
      : grid(test::session(), options()),
        device(kernels::make_cpu_device({1})),
        arena(device->memory()),
        buffer(arena.allocate(type, elements, MemoryCategory::Gradients)),
        gradient(buffer.view(type, {elements})),
        reference_buffer(arena.allocate(type, elements, MemoryCategory::Gradients)),
        reference(reference_buffer.view(type, {elements})) {
    device->fill(gradient, 0);
  }
  static GridOptions options() {
    GridOptions options;
    options.shape.data = test::session().size();
    options.timeout_s = 60;
    return options;
  }
  CompressionContext context() { return {&grid.data(), device.get(), &arena, gradient}; }
  int rank() { return grid.data().rank(); }
  int ranks() { return grid.data().size(); }
  double get(Tensor t, int64_t i) const {
    return t.dtype() == DType::Float64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
  }
  void set(int64_t i, double v) {
    if (gradient.dtype() == DType::Float64) {
      gradient.as<double>()[i] = v;
    } else {
      gradient.as<float>()[i] = static_cast<float>(v);
    }
  }
  /// By content: name, element of the global tensor, step and rank.
  void fill(const std::vector<CompressedBucket>& buckets, uint64_t step) {
    device->fill(gradient, 0);
    for (const CompressedBucket& b : buckets) {
      for (const GradientTensor& t : b.tensors) {
        for (int64_t i = 0; i < t.count; ++i) {
          const int64_t global = t.global_begin + i / t.cols * t.global_cols + i % t.cols;
          set(t.begin + i,
              normal_at(step * 100 + static_cast<uint64_t>(rank()), t.stream, static_cast<uint64_t>(global)));
        }
      }
    }
  }
  /// reference = sum over ranks of the gradient, uncompressed.
  void sum_reference() {
    device->copy(gradient, reference);
    grid.data().all_reduce(reference, ReduceOp::Sum).wait();
  }
  void run(BucketSum& sum, size_t buckets, uint64_t step) {
    for (size_t b = 0; b < buckets; ++b) sum.start(b, step);
    sum.finish();
  }
  double over_ranks(double x) {
    grid.data().all_reduce(Tensor(&x, DType::Float64, {1}), ReduceOp::Sum).wait();
    return x;
  }
  double sent() { return grid.ledger().total_sent_bytes(); }
  /// All ranks hold the gradient of rank 0, bit for bit.
  void expect_replicated() {
    device->copy(gradient, reference);
    grid.data().broadcast(reference, 0).wait();
    EXPECT_EQ(std::memcmp(reference.data(), gradient.data(), static_cast<size_t>(gradient.bytes())), 0);
  }

  ProcessGrid grid;
  std::unique_ptr<kernels::Device> device;
  Arena arena;
  Buffer buffer;
  Tensor gradient;
  Buffer reference_buffer;
  Tensor reference;
};

CompressionOptions options_of(CompressionMethod method) {
  CompressionOptions options;
  options.method = method;
  options.density = 0.1;
  options.rank = 3;
  options.block_length = 64;
  options.min_elements = 0;
  return options;
}

/// Sum over ranks and elements of residual * weight(flat element): a fingerprint that a lost element would change.
double residual_sum(Job& job, const BucketSum& sum) {
  double total = 0;
  for (const StateTensor& s : sum.state()) {
    for (int64_t i = 0; i < s.end - s.begin; ++i)
      total += job.get(s.values, i) * (1 + 0.01 * static_cast<double>((s.begin + i) % 97));
  }
  return job.over_ranks(total);
}
double gradient_sum(Job& job, bool over_ranks) {
  double total = 0;
  for (int64_t i = 0; i < job.gradient.numel(); ++i)
    total += job.get(job.gradient, i) * (1 + 0.01 * static_cast<double>(i % 97));
  return over_ranks ? job.over_ranks(total) : total;
}

TEST(CommCompression, sums_and_residuals_add_up_and_ranks_agree) {
  for (const CompressionMethod method : kMethods) {
    Job job;
    CompressionOptions options = options_of(method);
    options.error_feedback = true;
    const auto buckets = with_exemptions(buckets_of(), options);
    CompressedSum sum(job.context(), buckets, options, {}, 7);
    for (uint64_t step = 0; step < 3; ++step) {
      job.fill(buckets, step);
      job.sum_reference();
      const double before = gradient_sum(job, true) + residual_sum(job, sum);
      job.run(sum, buckets.size(), step);
      const double after = gradient_sum(job, false) + residual_sum(job, sum);
      EXPECT_NEAR(before, after, 1e-9) << name_of(method) << " step " << step;
      EXPECT_GT(std::abs(residual_sum(job, sum)), 1e-6) << name_of(method);
      // What is exempt is the plain sum, and the zeros between the tensors are still there.
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{2016, 2086}, {4800, 5280}, {2000, 2016}, {4212, 4800}}) {
        for (int64_t i = begin; i < end; ++i) ASSERT_EQ(job.get(job.gradient, i), job.get(job.reference, i)) << i;
      }
      job.expect_replicated();
    }
  }
}

/// The sum over steps of what arrives stays within the residual of the sum of what was given: error feedback.
TEST(CommCompression, error_feedback_delivers_everything_in_time) {
  for (const CompressionMethod method : kMethods) {
    double distance[2] = {};
    for (const bool feedback : {false, true}) {
      Job job(DType::Float32);
      CompressionOptions options = options_of(method);
      options.error_feedback = feedback;
      const auto buckets = with_exemptions(buckets_of(), options);
      CompressedSum sum(job.context(), buckets, options, {}, 7);
      std::vector<double> got(7680), want(7680);
      for (uint64_t step = 0; step < 40; ++step) {
        job.fill(buckets, 5);  // a constant gradient
        job.sum_reference();
        job.run(sum, buckets.size(), step);
        for (size_t i = 0; i < got.size(); ++i) {
          got[i] += job.get(job.gradient, static_cast<int64_t>(i)) / 40;
          want[i] += job.get(job.reference, static_cast<int64_t>(i)) / 40;
        }
      }
      double error = 0, size = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
      }
      distance[feedback ? 1 : 0] = std::sqrt(error / size);
    }
    EXPECT_LT(distance[1], method == CompressionMethod::Qsgd ? distance[0] : 0.4 * distance[0]) << name_of(method);
    EXPECT_LT(distance[1], 0.35) << name_of(method);
  }
}

TEST(CommCompression, ledger_counts_the_formulas) {
  Job first;
  const double n = first.ranks();
  const auto blocks = [](int64_t rows, int64_t cols) { return rows * ((cols + 63) / 64); };
  for (const CompressionMethod method : kMethods) {
    Job job(DType::Float32);
    const CompressionOptions options = options_of(method);
    const auto buckets = with_exemptions(buckets_of(), options);
    CompressedSum sum(job.context(), buckets, options, {}, 7);
    job.fill(buckets, 0);
    const double before = job.sent();
    job.run(sum, buckets.size(), 0);
    EXPECT_DOUBLE_EQ(job.sent() - before, sum.sent_bytes()) << name_of(method);
    const double plain = 2 * (n - 1) / n * 4 * (70 + 480);
    double want = plain;
    switch (method) {
      case CompressionMethod::TopK:  // K = 0.1 n of each tensor, 4 bytes of value and 4 of index
        want += (n - 1) * 8 * (200 + 210 + 240);
        break;
      case CompressionMethod::PowerSgd:  // r (n + m) fp32 elements
        want += 2 * (n - 1) / n * 4 * 3 * (40 + 50 + 7 + 300 + 48 + 50);
        break;
      case CompressionMethod::BFloat16:
        want += 2 * (n - 1) / n * 2 * (2000 + 2100 + 2400);
        break;
      default:  // 1 byte and a scale per block; rows of 50 have a block of their own, 300 are five of 60
        want += 2 * (n - 1) / n *
                (2000 + 2100 + 2400 + 4.0 * static_cast<double>(blocks(40, 50) + blocks(7, 300) + blocks(48, 50)));
        break;
    }
    // Coded pieces end with a block, and all messages are as long as the longest: at most a block more each.
    const bool coded = method != CompressionMethod::TopK && method != CompressionMethod::PowerSgd;
    EXPECT_GE(sum.sent_bytes(), want * (1 - 1e-12)) << name_of(method);
    EXPECT_LE(sum.sent_bytes(), want + (coded ? 2 * 2 * (n - 1) * 2 * 68 : 1e-6)) << name_of(method);
    if (n > 1 && method != CompressionMethod::TopK) {
      EXPECT_LT(sum.sent_bytes(), 0.7 * dense_bytes(buckets, DType::Float32, job.ranks(), SumFor::EveryRank));
    }
  }
}

TEST(CommCompression, top_k_at_density_one_has_the_bits_of_the_plain_sum) {
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    Job job(dtype);
    CompressionOptions options = options_of(CompressionMethod::TopK);
    options.density = 1;
    const auto buckets = buckets_of();
    CompressedSum sum(job.context(), buckets, options, {}, 7);
    for (uint64_t step = 0; step < 2; ++step) {
      job.fill(buckets, step);
      for (int64_t i = 100; i < 120; ++i) job.set(i, -0.0);
      job.sum_reference();
      job.run(sum, buckets.size(), step);
      EXPECT_EQ(std::memcmp(job.reference.data(), job.gradient.data(), static_cast<size_t>(job.gradient.bytes())), 0);
    }
    EXPECT_EQ(residual_sum(job, sum), 0);
  }
}

TEST(CommCompression, power_sgd_at_full_rank_is_the_plain_sum) {
  Job job;
  CompressionOptions options = options_of(CompressionMethod::PowerSgd);
  options.rank = 1000;
  const auto buckets = with_exemptions(buckets_of(), options);
  CompressedSum sum(job.context(), buckets, options, {}, 7);
  for (uint64_t step = 0; step < 4; ++step) {
    job.fill(buckets, step);
    if (step == 1) {  // of low rank, so that the kept factor spans too little for the step after
      for (int64_t i = 0; i < 2000; ++i) job.set(i, job.get(job.gradient, i % 50) * static_cast<double>(i / 50));
    }
    if (step == 3) {  // nothing at all in one tensor
      for (int64_t i = 2112; i < 4212; ++i) job.set(i, 0);
    }
    job.sum_reference();
    job.run(sum, buckets.size(), step);
    double worst = 0;
    for (int64_t i = 0; i < 7680; ++i) {
      worst = std::max(worst, std::abs(job.get(job.gradient, i) - job.get(job.reference, i)));
    }
    EXPECT_LT(worst, 1e-10) << step;
    job.expect_replicated();
  }
}

/// One tensor of low rank arrives whole, though only its factors are sent.
TEST(CommCompression, power_sgd_of_rank_r_sends_matrices_of_rank_r_exactly) {
  Job job;
  CompressionOptions options = options_of(CompressionMethod::PowerSgd);
  options.rank = 2;
  const std::vector<CompressedBucket> buckets{{0, 2016, {tensor("m", 0, 40, 50)}}};
  CompressedSum sum(job.context(), buckets, options, {}, 7);
  for (int64_t i = 0; i < 2000; ++i) {
    const auto r = static_cast<uint64_t>(i / 50), c = static_cast<uint64_t>(i % 50);
    job.set(i, normal_at(1, 1, r) * normal_at(2, 1, c) + (1 + job.rank()) * normal_at(3, 1, r) * normal_at(4, 1, c));
  }
  job.sum_reference();
  job.run(sum, 1, 0);
  for (int64_t i = 0; i < 2000; ++i) ASSERT_NEAR(job.get(job.gradient, i), job.get(job.reference, i), 1e-10);
}

TEST(CommCompression, quantised_reduce_scatter_fills_the_own_piece) {
  for (const CompressionMethod method : {CompressionMethod::Int8, CompressionMethod::BFloat16}) {
    Job job;
    const auto buckets = with_exemptions(buckets_of(), options_of(method));
    CompressedSum sum(job.context(), buckets, options_of(method), {SumFor::PieceOwner, PieceCut::Even}, 7);
    job.fill(buckets, 0);
    job.sum_reference();
    const double before = job.sent();
    job.run(sum, buckets.size(), 0);
    EXPECT_DOUBLE_EQ(job.sent() - before, sum.sent_bytes());
    for (const CompressedBucket& b : buckets) {
      const int64_t piece = (b.end - b.begin) / job.ranks();
      double error = 0, size = 0;
      for (int64_t i = b.begin + piece * job.rank(); i < b.begin + piece * (job.rank() + 1); ++i) {
        error += std::pow(job.get(job.gradient, i) - job.get(job.reference, i), 2);
        size += std::pow(job.get(job.reference, i), 2);
      }
      EXPECT_LT(std::sqrt(error), 0.01 * std::sqrt(size)) << name_of(method);
      for (const GradientTensor& t : b.tensors) {  // what is exempt is the plain sum
        for (int64_t i = t.begin; !t.compressed && i < t.begin + t.count; ++i) {
          if ((i - b.begin) / piece != job.rank()) continue;
          ASSERT_EQ(job.get(job.gradient, i), job.get(job.reference, i)) << i;
        }
      }
      EXPECT_GT(error, 0);
    }
  }
}

TEST(CommCompression, quantised_all_gather_of_weights) {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16}) {
    Job job;
    const int64_t piece = 1000, all = piece * job.ranks();
    CodedGather gather(job.grid.data(), *job.device, job.arena, kernels::Codec::Int8, 256, dtype, piece);
    const Buffer buffer = job.arena.allocate(dtype, all, MemoryCategory::Parameters);
    const Tensor values = buffer.view(dtype, {all});
    for (int64_t i = 0; i < all; ++i) {
      job.set(i, i / piece == job.rank() ? normal_at(3, 3, static_cast<uint64_t>(i)) : 77);
    }
    job.device->copy(job.gradient.range(0, all), values);
    const int64_t bytes = gather.message_bytes(piece);
    EXPECT_EQ(bytes, job.ranks() * (piece + 4 * 4));  // four blocks of at most 256
    const Buffer packed = job.arena.allocate(DType::UInt8, bytes, MemoryCategory::Communication);
    const Tensor message = packed.view(DType::UInt8, {bytes});
    const double before = job.sent();
    gather.start(values, message).wait();
    gather.finish(values, message);
    EXPECT_DOUBLE_EQ(job.sent() - before, (job.ranks() - 1) * (piece + 16.0));
    job.device->copy(values, job.gradient.range(0, all));
    for (int64_t i = 0; i < all; ++i) {
      // Half a step of 127 of the largest, below 4.5, and bf16's rounding.
      ASSERT_NEAR(job.get(job.gradient, i), normal_at(3, 3, static_cast<uint64_t>(i)),
                  dtype == DType::BFloat16 ? 0.05 : 0.5 * 4.5 / 127)
          << i;
    }
    job.expect_replicated();
  }
}

/// The same tensors in another order, in other buckets and cut over tensor-parallel ranks: the same bits.
TEST(CommCompression, layouts_agree) {
  for (const CompressionMethod method : kMethods) {
    CompressionOptions options = options_of(method);
    options.block_length = 100;
    std::map<std::string, std::vector<double>> want;
    const auto collect = [](Job& job, const std::vector<CompressedBucket>& buckets) {
      std::map<std::string, std::vector<double>> values;
      for (const CompressedBucket& b : buckets) {
        for (const GradientTensor& t : b.tensors) {
          for (int64_t i = 0; i < t.count; ++i) values[t.name].push_back(job.get(job.gradient, t.begin + i));
        }
      }
      return values;
    };
    const auto run = [&](const std::vector<CompressedBucket>& all) {
      Job job;
      CompressedSum sum(job.context(), all, options, {}, 7);
      for (uint64_t step = 0; step < 2; ++step) {
        job.fill(all, step);
        job.run(sum, all.size(), step);
      }
      return collect(job, all);
    };
    const auto whole = run(with_exemptions(buckets_of(), options));
    const std::vector<CompressedBucket> one{
        {0, 7680, {tensor("c", 0, 48, 50), tensor("b", 2400, 7, 300), tensor("a", 4512, 40, 50)}}};
    const auto moved = run(with_exemptions(one, options));
    for (const char* name : {"a", "b", "c"}) EXPECT_EQ(moved.at(name), whole.at(name)) << name_of(method) << name;
    // Selection and factors are taken over what a rank holds; blocks are chosen by global place.
    if (method == CompressionMethod::TopK || method == CompressionMethod::PowerSgd) continue;
    const std::vector<CompressedBucket> cut{
        {0,
         7680,
         {tensor("a", 0, 20, 50, 1000), tensor("b", 1024, 7, 100, 100, 300), tensor("c", 2016, 24, 50, 1200)}}};
    const auto shard = run(with_exemptions(cut, options));
    for (int64_t i = 0; i < 1000; ++i)
      ASSERT_EQ(shard.at("a")[static_cast<size_t>(i)], whole.at("a")[static_cast<size_t>(1000 + i)]);
    for (int64_t i = 0; i < 700; ++i) {
      ASSERT_EQ(shard.at("b")[static_cast<size_t>(i)],
                whole.at("b")[static_cast<size_t>(i / 100 * 300 + 100 + i % 100)]);
    }
  }
}

/// Every rank's pieces together are every compressed element once.
TEST(CommCompression, pieces_cover_every_element_once) {
  for (const PieceCut cut : {PieceCut::Blocks, PieceCut::Even}) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      auto buckets = buckets_of();
      if (cut == PieceCut::Even && (4800 % ranks != 0 || 2880 % ranks != 0)) continue;
      for (const CompressedBucket& bucket : buckets) {
        const CodePieces made = cut_pieces(bucket, kernels::Codec::Int8, 64, ranks, cut, 10);
        std::vector<int> seen(7680);
        for (size_t r = 0; r < made.pieces.size(); ++r) {
          for (const kernels::CodeSegment& s : made.pieces[r]) {
            for (int64_t i = s.begin; i < s.begin + s.count; ++i) {
              ++seen[static_cast<size_t>(i)];
              const int64_t piece = (bucket.end - bucket.begin) / ranks;
              EXPECT_TRUE(cut == PieceCut::Blocks || (i - bucket.begin) / piece == static_cast<int64_t>(r));
            }
          }
        }
        int64_t state = 10;
        for (const GradientTensor& t : bucket.tensors) {
          for (int64_t i = t.begin; i < t.begin + t.count; ++i) {
            ASSERT_EQ(seen[static_cast<size_t>(i)], t.compressed ? 1 : 0) << t.name << " " << i - t.begin;
          }
          state += t.compressed ? t.count : 0;
        }
        EXPECT_EQ(made.pieces.back().back().state + made.pieces.back().back().count, state);
      }
    }
  }
}

}  // namespace
}  // namespace triax::comm
