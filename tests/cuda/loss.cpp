// Embedding and vocabulary-parallel cross-entropy on the GPU, one rank and several.
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

TEST(CudaEmbedding, LooksUpRowsOfThisRankOnly) {
  for (const DType dtype : kCudaTypes) {
    for (const auto& [cols, gap] : std::vector<std::pair<int64_t, int64_t>>{{19, 3}, {64, 0}}) {
      const Matrix table = random_matrix(dtype, 10, cols, 1);
      Matrix token(DType::Int32, 1, 6), y = random_matrix(dtype, 6, cols, 2, 1, gap),
                                        sum = random_matrix(dtype, 6, cols, 2);
      const int ids[] = {20, 29, 19, 30, 25, 25};
      std::vector<double> want, want_sum;
      for (int64_t r = 0; r < 6; ++r) {
        token.set(0, r, ids[r]);
        for (int64_t c = 0; c < cols; ++c) {
          want.push_back(ids[r] >= 20 && ids[r] < 30 ? table.at(ids[r] - 20, c) : 0);
          want_sum.push_back(sum.at(r, c) + want.back());
        }
      }
      mirrored().embedding_forward(token.vec(), table.t, 20, Accumulate::No, y.t);
      mirrored().embedding_forward(token.vec(), table.t, 20, Accumulate::Yes, sum.t);
      expect_close(y, want, 0, std::string(name_of(dtype)));
      expect_close(sum, want_sum, unit(dtype), std::string(name_of(dtype)));
    }
  }
}

TEST(CudaEmbedding, BackwardAddsEqualTokensInOrder) {
  for (const DType dtype : kCudaTypes) {
    for (const DType grad : {DType::Float32, DType::BFloat16}) {
      for (const int64_t cols : {61, 64}) {
        const int64_t rows = 700;
        const Matrix dy = random_matrix(dtype, rows, cols, 1);
        Matrix token(DType::Int32, 1, rows), dtable = random_matrix(grad, 40, cols, 2);
        std::vector<double> want = dtable.values();
        for (int64_t r = 0; r < rows; ++r) {
          // One frequent token, some rare ones, one that occurs once, others of other ranks.
          const int64_t id = r == 333 ? 39 : r % 3 == 0 ? 1 : (r * r) % 37;
          token.set(0, r, static_cast<double>(id + 5));
          if (id < 1) continue;
          for (int64_t c = 0; c < cols; ++c) want[static_cast<size_t>((id - 1) * cols + c)] += dy.at(r, c);
        }
        mirrored().embedding_backward(token.vec(), dy.t, 6, dtable.t);
        expect_close(dtable, want, rounding(grad, 400),
                     std::string(name_of(dtype)) + " into " + std::string(name_of(grad)));
      }
    }
  }
}

TEST(CudaEmbedding, BackwardHasTheBitsOfASumInOrder) {
  const int64_t rows = 300, cols = 32;
  const Matrix dy = random_matrix(DType::Float32, rows, cols, 1);
  Matrix token(DType::Int32, 1, rows), dtable(DType::Float32, 3, cols);
  std::vector<float> want(static_cast<size_t>(3 * cols), 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    token.set(0, r, static_cast<double>(r * r % 3));
    for (int64_t c = 0; c < cols; ++c)
      want[static_cast<size_t>(r * r % 3 * cols + c)] += static_cast<float>(dy.at(r, c));
  }
  mirrored().embedding_backward(token.vec(), dy.t, 0, dtable.t);
  for (int64_t i = 0; i < dtable.t.numel(); ++i) ASSERT_EQ(dtable.at(i), want[static_cast<size_t>(i)]) << i;
}

/// Loss and logit gradients of `ranks` ranks that hold equal shares of the vocabulary, columns padded by 4.
void check_loss(DType dtype, int64_t vocab, int64_t ranks) {
  constexpr int64_t kRows = 21, kPadding = 4;
  const std::string what =
      std::string(name_of(dtype)) + " vocabulary " + std::to_string(vocab) + " ranks " + std::to_string(ranks);
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
  Matrix max(DType::Float32, 1, kRows), sum(DType::Float32, 1, kRows), hit(DType::Float32, 1, kRows);
  Device& d = mirrored();
  for (int64_t r = 0; r < kRows; ++r) max.set(0, r, -INFINITY);
  for (int64_t k = 0; k < ranks; ++k) {
    part.push_back(random_matrix(dtype, kRows, share + kPadding, 50, 100));  // padding columns hold large numbers
    d.copy(logits.t.col_slice(k * share, (k + 1) * share), part.back().t.col_slice(0, share));
    Matrix one(DType::Float32, 1, kRows);
    d.cross_entropy_max(part.back().t, share, one.vec());
    for (int64_t r = 0; r < kRows; ++r) max.set(0, r, std::max(max.at(r), one.at(r)));
  }
  for (int64_t k = 0; k < ranks; ++k) {
    Matrix s(DType::Float32, 1, kRows), h(DType::Float32, 1, kRows);
    d.cross_entropy_sum(part[static_cast<size_t>(k)].t, k * share, share, target.vec(), max.vec(), s.vec(), h.vec());
    d.add(s.t, sum.t);
    d.add(h.t, hit.t);
  }
  Matrix loss(DType::Float64, 1, 1);
  loss.set(0, 0, 1);
  d.cross_entropy_loss(max.vec(), sum.vec(), hit.vec(), mask.vec(), loss.vec());
  EXPECT_NEAR(loss.at(0) - 1, want_loss, 100 * 0x1p-24 * want_loss) << what;
  StepBlock step;
  step.loss_scale = 64;
  Matrix got(dtype, kRows, vocab);
  for (int64_t k = 0; k < ranks; ++k) {
    Matrix& mine = part[static_cast<size_t>(k)];
    d.cross_entropy_backward(mine.t, k * share, share, target.vec(), max.vec(), sum.vec(), mask.vec(), 0.125, &step);
    d.copy(mine.t.col_slice(0, share), got.t.col_slice(k * share, (k + 1) * share));
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = share; c < share + kPadding; ++c) ASSERT_EQ(mine.at(r, c), 0) << what;
    }
  }
  expect_close(got, want, 64 * 0x1p-24 + 4 * unit(dtype), what);
}

TEST(CudaCrossEntropy, OneRankAndSeveralMatchTheNaiveLoss) {
  for (const DType dtype : kCudaTypes) {
    check_loss(dtype, 52, 1);
    check_loss(dtype, 52, 4);
    check_loss(dtype, 4500, 1);  // more than a block's first round
  }
  if (!is_emulated()) check_loss(DType::BFloat16, 50304, 2);
}

TEST(CudaCrossEntropy, AMaskedRowMayHoldAnything) {
  Matrix logits(DType::BFloat16, 2, 8), target(DType::Int32, 1, 2), mask(DType::Float32, 1, 2),
      max(DType::Float32, 1, 2), sum(DType::Float32, 1, 2), hit(DType::Float32, 1, 2), loss(DType::Float64, 1, 1);
  for (int64_t c = 0; c < 8; ++c) logits.set(0, c, c == 3 ? NAN : 1), logits.set(1, c, 0.0);
  mask.set(0, 1, 1);
  StepBlock step;
  Device& d = mirrored();
  d.cross_entropy_max(logits.t, 8, max.vec());
  d.cross_entropy_sum(logits.t, 0, 8, target.vec(), max.vec(), sum.vec(), hit.vec());
  d.cross_entropy_loss(max.vec(), sum.vec(), hit.vec(), mask.vec(), loss.vec());
  d.cross_entropy_backward(logits.t, 0, 8, target.vec(), max.vec(), sum.vec(), mask.vec(), 1, &step);
  EXPECT_NEAR(loss.at(0), std::log(8.0), 1e-6);
  for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(logits.at(0, c), 0) << c;
}

}  // namespace
}  // namespace triax::kernels::testing
