// GEMM on the GPU against sums in double: every transpose, stride, accumulation and bias, through cuBLASLt and through
// the kernel for what it refuses.
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

struct Case {
  DType in, out;
};
const std::vector<Case> kCases{{DType::Float32, DType::Float32},
                               {DType::BFloat16, DType::BFloat16},
                               {DType::BFloat16, DType::Float32},
                               {DType::Float16, DType::Float16},
                               {DType::Float16, DType::Float32}};

void check_product(const Case& type, int64_t m, int64_t n, int64_t k, int variant, int64_t gap) {
  const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4, with_bias = variant & 8;
  const Matrix a = ta ? random_matrix(type.in, k, m, 1, 1, gap) : random_matrix(type.in, m, k, 1, 1, gap);
  const Matrix b = tb ? random_matrix(type.in, n, k, 2, 1, gap) : random_matrix(type.in, k, n, 2, 1, gap);
  Matrix c = random_matrix(type.out, m, n, 3, 1, gap);
  const Matrix bias = random_matrix(type.in, 1, n, 4);
  std::vector<double> want;
  double size = 1;  // sum of absolute products, which bounds the rounding
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = (accumulate ? c.at(i, j) : 0) + (with_bias ? bias.at(0, j) : 0);
      double absolute = std::abs(sum);
      for (int64_t l = 0; l < k; ++l) {
        const double p = (ta ? a.at(l, i) : a.at(i, l)) * (tb ? b.at(j, l) : b.at(l, j));
        sum += p;
        absolute += std::abs(p);
      }
      want.push_back(sum);
      size = std::max(size, absolute);
    }
  }
  mirrored().gemm({a.t, b.t, c.t, ta ? Transpose::Yes : Transpose::No, tb ? Transpose::Yes : Transpose::No,
                   accumulate ? Accumulate::Yes : Accumulate::No, with_bias ? bias.vec() : Tensor()});
  // A bias that is added by a pass of its own rounds a 16-bit result twice.
  expect_close(c, want, 4 * size * 0x1p-24 + 2 * unit(type.out),
               std::string(name_of(type.in)) + " -> " + std::string(name_of(type.out)) + " variant " +
                   std::to_string(variant) + " gap " + std::to_string(gap) + " m n k " + std::to_string(m) + " " +
                   std::to_string(n) + " " + std::to_string(k));
}

TEST(CudaGemm, MatchesSumsInDoubleForEveryTransposeStrideAccumulateAndBias) {
  for (const Case& type : kCases) {
    for (int variant = 0; variant < 16; ++variant) {
      check_product(type, 1, 1, 1, variant, 0);
      check_product(type, 7, 5, 3, variant, 5);     // odd strides
      check_product(type, 33, 24, 40, variant, 0);  // strides that cuBLASLt likes
      check_product(type, 70, 17, 80, variant, 8);
    }
  }
}

TEST(CudaGemm, EmptySumIsBiasOrNothing) {
  Matrix a(DType::BFloat16, 3, 0), b(DType::BFloat16, 0, 4), c = random_matrix(DType::Float32, 3, 4, 1);
  const Matrix bias = random_matrix(DType::BFloat16, 1, 4, 2);
  mirrored().gemm({a.t, b.t, c.t, Transpose::No, Transpose::No, Accumulate::No, bias.vec()});
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(c.at(i), bias.at(i % 4));
}

TEST(CudaGemm, RefusesShapesThatDoNotFitAndFp64) {
  Matrix a(DType::Float32, 3, 5), b(DType::Float32, 4, 4), c(DType::Float32, 3, 4);
  EXPECT_THROW(mirrored().gemm({a.t, b.t, c.t}), std::logic_error);
  Matrix a64(DType::Float64, 4, 4), c64(DType::Float64, 4, 4);
  try {
    mirrored().gemm({a64.t, a64.t, c64.t});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("--fp64"), std::string::npos) << e.what();
  }
}

TEST(CudaGemm, SteadyCallsAskTheProviderForNothingAndRepeatTheirBits) {
  const Matrix a = random_matrix(DType::BFloat16, 96, 64, 1), b = random_matrix(DType::BFloat16, 64, 48, 2);
  const Matrix odd = random_matrix(DType::BFloat16, 64, 47, 3);
  Matrix c(DType::BFloat16, 96, 48), c_odd(DType::Float32, 96, 47), before(DType::BFloat16, 96, 48);
  int64_t calls = 0;
  for (int step = 0; step < 3; ++step) {
    mirrored().gemm({a.t, b.t, c.t});
    mirrored().gemm({a.t, odd.t, c_odd.t});
    if (step == 0) {
      calls = cuda_device().workspace().provider_calls();
      before = c;
    }
    EXPECT_EQ(before.bytes(), c.bytes());
  }
  EXPECT_EQ(calls, cuda_device().workspace().provider_calls());
  EXPECT_EQ(cuda_device().workspace().ledger().live_total, 0);
}

TEST(CudaBiasBackward, AddsColumnSums) {
  for (const DType dtype : kCudaTypes) {
    for (const auto& [cols, gap] : std::vector<std::pair<int64_t, int64_t>>{{37, 3}, {300, 4}, {256, 0}}) {
      for (const int64_t rows : {1, 101}) {
        const Matrix dy = random_matrix(dtype, rows, cols, 5, 1, gap);
        Matrix dbias = random_matrix(DType::Float32, 1, cols, 6);
        std::vector<double> want = dbias.values();
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) want[static_cast<size_t>(c)] += dy.at(r, c);
        }
        mirrored().bias_backward(dy.t, dbias.vec());
        expect_close(dbias, want, 100 * 0x1p-24, std::string(name_of(dtype)));
      }
    }
  }
}

}  // namespace
}  // namespace triax::kernels::testing
