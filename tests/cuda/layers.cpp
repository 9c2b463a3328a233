// Norms, rotary embedding and activations on the GPU: against naive sums in double, aligned and unaligned, short and
// long rows, every dtype; twice with the same bits.
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr double kEps = 1e-5;

/// h columns; a gap of 0 or 8 keeps rows aligned, another does not.
struct NormCase {
  int64_t rows, cols, gap;
};

struct NormResult {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;
};

NormResult naive_norm(const Matrix& x, const Matrix& gamma, const Matrix* beta, const Matrix& dy, const Matrix& dx,
                      const Matrix& dgamma, const Matrix& dbeta) {
  const int64_t rows = x.t.rows(), cols = x.t.cols();
  const auto h = static_cast<double>(cols);
  NormResult want;
  want.dgamma = dgamma.values();
  want.dbeta = dbeta.values();
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, var = 0, mean_g = 0, mean_ghat = 0;
    for (int64_t c = 0; beta != nullptr && c < cols; ++c) mean += x.at(r, c) / h;
    for (int64_t c = 0; c < cols; ++c) var += (x.at(r, c) - mean) * (x.at(r, c) - mean) / h;
    const double rstd = 1 / std::sqrt(var + kEps);
    want.mean.push_back(mean);
    want.rstd.push_back(rstd);
    for (int64_t c = 0; c < cols; ++c) {
      const double hat = (x.at(r, c) - mean) * rstd, g = dy.at(r, c) * gamma.at(c);
      want.y.push_back(hat * gamma.at(c) + (beta != nullptr ? beta->at(c) : 0));
      mean_g += beta != nullptr ? g / h : 0;
      mean_ghat += g * hat / h;
      want.dgamma[static_cast<size_t>(c)] += dy.at(r, c) * hat;
      want.dbeta[static_cast<size_t>(c)] += dy.at(r, c);
    }
    for (int64_t c = 0; c < cols; ++c) {
      const double hat = (x.at(r, c) - mean) * rstd, g = dy.at(r, c) * gamma.at(c);
      want.dx.push_back(dx.at(r, c) + rstd * (g - mean_g - hat * mean_ghat));
    }
  }
  return want;
}

void check_norm(DType dtype, const NormCase& shape, bool centered) {
  const auto [rows, cols, gap] = shape;
  const std::string what = std::string(name_of(dtype)) + (centered ? " layer norm [" : " rms norm [") +
                           std::to_string(rows) + ", " + std::to_string(cols) + "] gap " + std::to_string(gap);
  const Matrix x = random_matrix(dtype, rows, cols, 1, 2, gap), dy = random_matrix(dtype, rows, cols, 2, 1, gap);
  const Matrix gamma = random_matrix(dtype, 1, cols, 3), beta = random_matrix(dtype, 1, cols, 4);
  Matrix y(dtype, rows, cols, gap), dx = random_matrix(dtype, rows, cols, 5, 1, gap), fresh(dtype, rows, cols, gap);
  Matrix mean(DType::Float32, 1, rows), rstd(DType::Float32, 1, rows);
  Matrix dgamma = random_matrix(DType::Float32, 1, cols, 6), dbeta = random_matrix(DType::Float32, 1, cols, 7);
  const NormResult want = naive_norm(x, gamma, centered ? &beta : nullptr, dy, dx, dgamma, dbeta);
  Device& d = mirrored();
  if (centered) {
    d.layer_norm_forward(x.t, gamma.vec(), beta.vec(), kEps, y.t, mean.vec(), rstd.vec());
    d.layer_norm_backward(dy.t, x.t, gamma.vec(), mean.vec(), rstd.vec(), dx.t, Accumulate::Yes, dgamma.vec(),
                          dbeta.vec());
    d.layer_norm_backward(dy.t, x.t, gamma.vec(), mean.vec(), rstd.vec(), fresh.t, Accumulate::No, {}, {});
    expect_close(mean, want.mean, 40 * 0x1p-24, what + " mean");
    expect_close(dbeta, want.dbeta, (160 + static_cast<double>(rows)) * 0x1p-24, what + " dbeta");
  } else {
    d.rms_norm_forward(x.t, gamma.vec(), kEps, y.t, rstd.vec());
    d.rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), dx.t, Accumulate::Yes, dgamma.vec());
    d.rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), fresh.t, Accumulate::No, {});
  }
  expect_close(rstd, want.rstd, 40 * 0x1p-24, what + " rstd");
  expect_close(y, want.y, rounding(dtype, 40), what + " y");
  expect_close(dx, want.dx, rounding(dtype, 40), what + " dx");
  expect_close(dgamma, want.dgamma, (160 + static_cast<double>(rows)) * 0x1p-24, what + " dgamma");
  // Overwriting is the same without what was there.
  const Matrix held = random_matrix(dtype, rows, cols, 5, 1, gap);
  for (int64_t i = 0; i < cols; ++i) EXPECT_NEAR(fresh.at(i) + held.at(i), dx.at(i), 8 * unit(dtype)) << what;
}

TEST(CudaNorms, MatchNaiveSums) {
  for (const DType dtype : kCudaTypes) {
    // One run per thread; four; unaligned rows; a length that no run divides; one row.
    for (const NormCase& shape :
         {NormCase{70, 64, 0}, NormCase{5, 1536, 8}, NormCase{33, 96, 3}, NormCase{19, 101, 0}, NormCase{1, 40, 0}}) {
      check_norm(dtype, shape, false);
      check_norm(dtype, shape, true);
    }
  }
  // More rows than blocks of the fused kernel, with one warp and with several.
  check_norm(DType::Float32, {1100, 16, 0}, true);
  check_norm(DType::BFloat16, {530, 512, 0}, false);
  check_norm(DType::BFloat16, {530, 512, 0}, true);
  if (is_emulated()) return;
  check_norm(DType::BFloat16, {3000, 4096, 0}, false);
  check_norm(DType::BFloat16, {777, 12288, 0}, true);
  check_norm(DType::Float32, {300, 20000, 0}, true);  // too long for registers
}

TEST(CudaRotary, RotatesPairsAndBackwardIsItsTranspose) {
  constexpr int64_t kRows = 9, kHeads = 3, kPositions = 20;
  for (const DType dtype : kCudaTypes) {
    for (const auto& [dim, half] : std::vector<std::pair<int64_t, int64_t>>{{10, 5}, {64, 32}, {80, 16}}) {
      for (const int64_t gap : {0, 3}) {
        const Matrix before = random_matrix(dtype, kRows, kHeads * dim, 1, 1, gap);
        Matrix x = random_matrix(dtype, kRows, kHeads * dim, 1, 1, gap);
        Matrix cos(DType::Float32, kPositions, half), sin(DType::Float32, kPositions, half);
        Matrix position(DType::Int32, 1, kRows);
        for (int64_t p = 0; p < kPositions; ++p) {
          for (int64_t i = 0; i < half; ++i) {
            cos.set(p, i, std::cos(0.1 * static_cast<double>(p * (i + 1))));
            sin.set(p, i, std::sin(0.1 * static_cast<double>(p * (i + 1))));
          }
        }
        for (int64_t r = 0; r < kRows; ++r) position.set(0, r, static_cast<double>((r * 7) % kPositions));
        std::vector<double> want = before.values();
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t i = 0; i < kHeads * half; ++i) {
            const int64_t p = (r * 7) % kPositions, c = i / half * dim + i % half;
            const double x0 = before.at(r, c), x1 = before.at(r, c + half);
            const auto at = static_cast<size_t>(r * kHeads * dim + c);
            want[at] = x0 * cos.at(p, i % half) - x1 * sin.at(p, i % half);
            want[at + static_cast<size_t>(half)] = x1 * cos.at(p, i % half) + x0 * sin.at(p, i % half);
          }
        }
        const std::string what = std::string(name_of(dtype)) + " rotary " + std::to_string(dim);
        mirrored().rotary(x.t, cos.t, sin.t, position.vec(), kHeads, Device::RotaryDirection::Forward);
        expect_close(x, want, rounding(dtype, 4), what);
        mirrored().rotary(x.t, cos.t, sin.t, position.vec(), kHeads, Device::RotaryDirection::Backward);
        expect_close(x, before.values(), 8 * 0x1p-24 + 3 * unit(dtype), what + " back");
      }
    }
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST(CudaGelu, MatchesTheTanhForm) {
  for (const DType dtype : kCudaTypes) {
    for (const int64_t gap : {0, 3, 8}) {
      Matrix x = random_matrix(dtype, 11, 77, 1, 3, gap);
      const Matrix dy = random_matrix(dtype, 11, 77, 2, 1, gap);
      x.set(0, 0, -60000), x.set(0, 1, 60000);  // far out: 0 and the identity
      Matrix y(dtype, 11, 77, gap), dx(dtype, 11, 77, gap);
      std::vector<double> want, want_dx;
      for (int64_t i = 0; i < x.t.numel(); ++i) {
        want.push_back(gelu(x.at(i)));
        want_dx.push_back(dy.at(i) * gelu_slope(x.at(i)));
      }
      mirrored().gelu_forward(x.t, y.t);
      mirrored().gelu_backward(dy.t, x.t, dx.t);
      expect_close(y, want, rounding(dtype, 8), std::string(name_of(dtype)) + " gelu");
      expect_close(dx, want_dx, rounding(dtype, 64), std::string(name_of(dtype)) + " gelu dx");
    }
  }
}

TEST(CudaSwiGlu, MatchesSiluTimesUp) {
  for (const DType dtype : kCudaTypes) {
    for (const auto& [f, gap] : std::vector<std::pair<int64_t, int64_t>>{{21, 3}, {40, 0}, {64, 8}}) {
      const Matrix x = random_matrix(dtype, 9, 2 * f, 1, 3, gap), dy = random_matrix(dtype, 9, f, 2, 1, gap);
      Matrix y(dtype, 9, f, gap), dx(dtype, 9, 2 * f, gap);
      std::vector<double> want, want_dx(static_cast<size_t>(18 * f));
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t c = 0; c < f; ++c) {
          const double g = x.at(r, c), u = x.at(r, f + c), s = 1 / (1 + std::exp(-g));
          want.push_back(g * s * u);
          want_dx[static_cast<size_t>(r * 2 * f + c)] = dy.at(r, c) * u * s * (1 + g * (1 - s));
          want_dx[static_cast<size_t>(r * 2 * f + f + c)] = dy.at(r, c) * g * s;
        }
      }
      mirrored().swiglu_forward(x.t, y.t);
      mirrored().swiglu_backward(dy.t, x.t, dx.t);
      expect_close(y, want, rounding(dtype, 8), std::string(name_of(dtype)) + " swiglu");
      expect_close(dx, want_dx, rounding(dtype, 8), std::string(name_of(dtype)) + " swiglu dx");
    }
  }
}

TEST(CudaNorms, TwoRunsHaveTheSameBits) {
  const int64_t rows = is_emulated() ? 600 : 20000, cols = is_emulated() ? 64 : 2048;
  const Matrix x = random_matrix(DType::BFloat16, rows, cols, 1), dy = random_matrix(DType::BFloat16, rows, cols, 2);
  const Matrix gamma = random_matrix(DType::BFloat16, 1, cols, 3);
  Matrix rstd(DType::Float32, 1, rows), y(DType::BFloat16, rows, cols);
  mirrored().rms_norm_forward(x.t, gamma.vec(), kEps, y.t, rstd.vec());
  std::vector<std::vector<char>> results;
  for (int run = 0; run < 2; ++run) {
    Matrix dx(DType::BFloat16, rows, cols), dgamma(DType::Float32, 1, cols), dbias(DType::Float32, 1, cols);
    mirrored().rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), dx.t, Accumulate::No, dgamma.vec());
    mirrored().bias_backward(dy.t, dbias.vec());
    for (const Matrix* m : {&dx, &dgamma, &dbias}) results.push_back(m->bytes());
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]) << i;
}

}  // namespace
}  // namespace triax::kernels::testing
