// Compressed sums over a group: nothing is lost (sums and residuals add up), all ranks hold the same bits, the ledger
// counts what the formulas say, and what must equal the uncompressed sum does.
#include <cmath>

#include "tests/mpi/compression_job.h"

namespace triax::comm {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace triax::comm
