// Embedding and vocabulary-parallel cross-entropy, one rank and several; the accuracy of exp through the latter.
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

TEST(Embedding, LooksUpRowsOfThisRankOnly) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix table = random_matrix(dtype, 10, 19, 1);
      Matrix token(DType::Int32, 1, 6), y = random_matrix(dtype, 6, 19, 2, 1, 3), sum = random_matrix(dtype, 6, 19, 2);
      const int ids[] = {20, 29, 19, 30, 25, 25};
      std::vector<double> want, want_sum;
      for (int64_t r = 0; r < 6; ++r) {
        token.set(0, r, ids[r]);
        for (int64_t c = 0; c < 19; ++c) {
          want.push_back(ids[r] >= 20 && ids[r] < 30 ? table.at(ids[r] - 20, c) : 0);
          want_sum.push_back(sum.at(r, c) + want.back());
        }
      }
      device.embedding_forward(token.vec(), table.t, 20, Accumulate::No, y.t);
      device.embedding_forward(token.vec(), table.t, 20, Accumulate::Yes, sum.t);
      expect_close(y, want, 0, label(isa, dtype));
      expect_close(sum, want_sum, unit(dtype), label(isa, dtype));
    }
  });
}

TEST(Embedding, BackwardAddsEqualTokensInOrder) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix dy = random_matrix(dtype, 300, 200, 1);
      Matrix token(DType::Int32, 1, 300), dtable = random_matrix(statistics_type(dtype), 4, 200, 2);
      std::vector<double> want = dtable.values();
      for (int64_t r = 0; r < 300; ++r) {
        const int64_t id = (r * r) % 7;
        token.set(0, r, static_cast<double>(id));
        if (id < 1 || id >= 5) continue;
        for (int64_t c = 0; c < 200; ++c) want[static_cast<size_t>((id - 1) * 200 + c)] += dy.at(r, c);
      }
      device.embedding_backward(token.vec(), dy.t, 1, dtable.t);
      expect_close(dtable, want, 200 * unit(dtable.t.dtype()), label(isa, dtype));
    }
  });
}

/// Loss and logit gradients of `ranks` ranks that hold equal shares of the vocabulary, columns padded by 3.
void check_loss(Device& device, const std::string& isa, DType dtype, int64_t vocab, int64_t ranks) {
  constexpr int64_t kRows = 21;
  const std::string what = label(isa, dtype) + " ranks " + std::to_string(ranks);
  const DType statistics = statistics_type(dtype);
  const Matrix logits = random_matrix(dtype, kRows, vocab, 1, 3);
  Matrix target(DType::Int32, 1, kRows), mask(DType::Float32, 1, kRows);
  double want_loss = 0;
  std::vector<double> want;
  const double factor = 0.125 * 64;
  for (int64_t r = 0; r < kRows; ++r) {
    target.set(0, r, static_cast<double>((r * 13) % vocab));
    mask.set(0, r, r % 5 == 0 ? 0 : 0.5);
    double max = -1e300, sum = 0;
    for (int64_t c = 0; c < vocab; ++c) max = std::max(max, logits.at(r, c));
    for (int64_t c = 0; c < vocab; ++c) sum += std::exp(logits.at(r, c) - max);
    const auto t = static_cast<int64_t>(target.at(r));
    want_loss += mask.at(r) * (std::log(sum) + max - logits.at(r, t));
    for (int64_t c = 0; c < vocab; ++c) {
      want.push_back((std::exp(logits.at(r, c) - max) / sum - (c == t ? 1 : 0)) * mask.at(r) * factor);
    }
  }
  const int64_t share = vocab / ranks;
  std::vector<Matrix> part;
  Matrix max(statistics, 1, kRows), sum(statistics, 1, kRows), hit(statistics, 1, kRows), one(statistics, 1, kRows);
  device.fill(max.t, -INFINITY);
  for (int64_t k = 0; k < ranks; ++k) {
    part.push_back(random_matrix(dtype, kRows, share + 3, 50, 100));  // padding columns hold large numbers
    device.copy(logits.t.col_slice(k * share, (k + 1) * share), part.back().t.col_slice(0, share));
    device.cross_entropy_max(part.back().t, share, one.vec());
    for (int64_t r = 0; r < kRows; ++r) max.set(0, r, std::max(max.at(r), one.at(r)));
  }
  for (int64_t k = 0; k < ranks; ++k) {
    Matrix s(statistics, 1, kRows), h(statistics, 1, kRows);
    device.cross_entropy_sum(part[static_cast<size_t>(k)].t, k * share, share, target.vec(), max.vec(), s.vec(),
                             h.vec());
    device.add(s.t, sum.t);
    device.add(h.t, hit.t);
  }
  Matrix loss(DType::Float64, 1, 1);
  loss.set(0, 0, 1);
  device.cross_entropy_loss(max.vec(), sum.vec(), hit.vec(), mask.vec(), loss.vec());
  EXPECT_NEAR(loss.at(0) - 1, want_loss, 100 * unit(statistics) * want_loss) << what;
  StepBlock step;
  step.loss_scale = 64;
  Matrix got(dtype, kRows, vocab);
  for (int64_t k = 0; k < ranks; ++k) {
    Matrix& mine = part[static_cast<size_t>(k)];
    device.cross_entropy_backward(mine.t, k * share, share, target.vec(), max.vec(), sum.vec(), mask.vec(), 0.125,
                                  &step);
    device.copy(mine.t.col_slice(0, share), got.t.col_slice(k * share, (k + 1) * share));
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = share; c < share + 3; ++c) ASSERT_EQ(mine.at(r, c), 0) << what;
    }
  }
  expect_close(got, want, 16 * unit(statistics) + 4 * unit(dtype), what);
}

TEST(CrossEntropy, OneRankAndSeveralMatchTheNaiveLoss) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      check_loss(device, isa, dtype, 52, 1);
      check_loss(device, isa, dtype, 52, 4);
    }
  });
}

/// sum_exp of a one-column row is exp(logit - row_max).
std::vector<double> exp_of(Device& device, DType dtype, const std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size());
  Matrix logits(dtype, n, 1), target(DType::Int32, 1, n), zero(dtype, 1, n), e(dtype, 1, n), hit(dtype, 1, n);
  for (int64_t i = 0; i < n; ++i) logits.set(i, 0, x[static_cast<size_t>(i)]);
  device.cross_entropy_sum(logits.t, 0, 1, target.vec(), zero.vec(), e.vec(), hit.vec());
  return e.values();
}

TEST(Exp, SinglePrecisionIsWithinTwoUlp) {
  for_each_isa([](Device& device, const std::string& isa) {
    std::vector<double> x;
    for (int i = 0; i < 200000; ++i) x.push_back(static_cast<float>(-87.0 + i * (175.6 / 200000)));
    const std::vector<double> got = exp_of(device, DType::Float32, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(x[i]);
      const double ulp = std::exp2(std::floor(std::log2(want)) - 23);
      worst = std::max(worst, std::abs(got[i] - want) / ulp);
    }
    EXPECT_LE(worst, 1.5) << isa;
    const std::vector<double> edge = exp_of(device, DType::Float32, {0, -INFINITY, INFINITY, NAN, -200, 88.8, -100});
    EXPECT_EQ(edge[0], 1);
    EXPECT_EQ(edge[1], 0);
    EXPECT_EQ(edge[2], INFINITY);
    EXPECT_TRUE(std::isnan(edge[3])) << isa;
    EXPECT_EQ(edge[4], 0);
    EXPECT_EQ(edge[5], INFINITY);
    EXPECT_NEAR(edge[6], std::exp(-100.0), 1.5e-45) << isa << " subnormal";
  });
}

TEST(Exp, DoublePrecisionIsTheLibrarys) {
  for_each_isa([](Device& device, const std::string& isa) {
    std::vector<double> x;
    for (int i = 0; i < 10000; ++i) x.push_back(-700 + i * 0.14);
    const std::vector<double> got = exp_of(device, DType::Float64, x);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i] / std::exp(x[i]), 1, 3e-16) << isa << " " << x[i];
  });
}

}  // namespace
}  // namespace triax::kernels::testing
