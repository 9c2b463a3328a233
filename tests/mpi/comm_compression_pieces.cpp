// Pieces and blocks of compressed sums: reduce-scatter, all-gather of weights, the same bits in every layout.
#include <cmath>
#include <map>

#include "comm/compression/coded_gather.h"
#include "tests/mpi/compression_job.h"

namespace triax::comm {
namespace {

using namespace testing;

TEST(CommCompressionPieces, quantised_reduce_scatter_fills_the_own_piece) {
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

TEST(CommCompressionPieces, quantised_all_gather_of_weights) {
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
TEST(CommCompressionPieces, layouts_agree) {
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
TEST(CommCompressionPieces, pieces_cover_every_element_once) {
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
