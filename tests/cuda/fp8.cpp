// Products of fp8 operands against the same rounding done on the host, in double: both scalings, every transpose, both
// types; what the scales and the largest values become.
#include "base/fp8.h"

#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

double largest_of(const Matrix& x) {
  double max = 0;
  for (const double v : x.values()) max = std::max(max, std::abs(v));
  return max;
}

struct Side {
  Matrix x, scale, amax;
  Fp8Operand how;
  Side(DType in, DType type, int64_t rows, int64_t cols, uint64_t seed, double factor)
      : x(random_matrix(in, rows, cols, seed, 0.01, 8)), scale(DType::Float32, 1, 2), amax(DType::Float32, 1, 1) {
    scale.set(0, 0, factor);
    scale.set(0, 1, 1 / factor);
    amax.set(0, 0, 0);
    how = {type, scale.vec(), amax.vec()};
  }
  double at(int64_t r, int64_t c) const {
    return from_fp8(to_fp8(static_cast<float>(x.at(r, c)) * static_cast<float>(scale.at(0)), how.type), how.type) *
           scale.at(1);
  }
};

void check_product(DType in, DType type_a, Fp8Scaling scaling, int variant) {
  const bool ta = variant & 1, tb = variant & 2, wide = variant & 4;
  const int64_t m = 80, n = 48, k = 144;
  Side a(in, type_a, ta ? k : m, ta ? m : k, 1, 512), b(in, DType::Float8E4M3, tb ? n : k, tb ? k : n, 2, 4096);
  a.how.scaling = b.how.scaling = scaling;
  Matrix c = random_matrix(wide ? DType::Float32 : in, m, n, 3, 1e-3);
  const Matrix before = c, bias = random_matrix(in, 1, n, 4, 1e-3);
  const int64_t products = cuda_device().special_calls().fp8_products;
  mirrored().gemm({a.x.t, b.x.t, c.t, ta ? Transpose::Yes : Transpose::No, tb ? Transpose::Yes : Transpose::No,
                   wide ? Accumulate::Yes : Accumulate::No, wide ? Tensor() : bias.vec(), a.how, b.how});
  EXPECT_EQ(cuda_device().special_calls().fp8_products, products + 1);
  for (const Side* side : {&a, &b}) {
    EXPECT_EQ(side->amax.at(0), static_cast<float>(largest_of(side->x)));
    const double factor =
        scaling == Fp8Scaling::Current ? fp8_max(side->how.type) / side->amax.at(0) : (side == &a ? 512.0 : 4096.0);
    EXPECT_NEAR(side->scale.at(0), factor, factor * 1e-6);
    EXPECT_NEAR(side->scale.at(0) * side->scale.at(1), 1, 1e-6);
  }
  std::vector<double> want;
  double size = 0;  // sum of absolute products: tensor cores of Ada and Hopper keep 13 bits of their sums
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = wide ? before.at(i, j) : bias.at(0, j), absolute = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double p = (ta ? a.at(l, i) : a.at(i, l)) * (tb ? b.at(j, l) : b.at(l, j));
        sum += p;
        absolute += std::abs(p);
      }
      want.push_back(sum);
      size = std::max(size, absolute);
    }
  }
  expect_close(c, want, 4 * size * 0x1p-13 + 2e-2 * unit(c.t.dtype()),
               std::string(name_of(in)) + " variant " + std::to_string(variant));
}

TEST(CudaFp8, ProductsAreThoseOfTheRoundedOperands) {
  if (!cuda_device().fp8_refusal().empty()) GTEST_SKIP() << cuda_device().fp8_refusal();
  for (int variant = 0; variant < 8; ++variant) {
    for (const Fp8Scaling scaling : {Fp8Scaling::Delayed, Fp8Scaling::Current}) {
      check_product(DType::BFloat16, DType::Float8E4M3, scaling, variant);
      check_product(DType::Float16, DType::Float8E5M2, scaling, variant);
    }
  }
}

TEST(CudaFp8, BeyondTheLargestValueIsTheLargestAndInfinityIsNaN) {
  if (!cuda_device().fp8_refusal().empty()) GTEST_SKIP() << cuda_device().fp8_refusal();
  Side a(DType::BFloat16, DType::Float8E4M3, 16, 16, 1, 1), b(DType::BFloat16, DType::Float8E4M3, 16, 16, 2, 1);
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      a.x.set(i, j, i == j ? (i == 3 ? INFINITY : 1000) : 0);
      b.x.set(i, j, 1);
    }
  }
  Matrix c(DType::Float32, 16, 16);
  mirrored().gemm({a.x.t, b.x.t, c.t, Transpose::No, Transpose::No, Accumulate::No, {}, a.how, b.how});
  EXPECT_EQ(c.at(0, 0), 448);
  EXPECT_TRUE(std::isnan(c.at(3, 5)));
  EXPECT_TRUE(std::isinf(a.amax.at(0)));
}

TEST(CudaFp8, OldGpusAndOddSizesAreRefused) {
  Side a(DType::BFloat16, DType::Float8E4M3, 16, 24, 1, 1), b(DType::BFloat16, DType::Float8E4M3, 24, 16, 2, 1);
  Matrix c(DType::Float32, 16, 16);
  EXPECT_THROW(mirrored().gemm({a.x.t, b.x.t, c.t, Transpose::No, Transpose::No, Accumulate::No, {}, a.how, b.how}),
               std::logic_error);
  if (is_emulated() && cuda_device().describe().find("capability 8.6") != std::string::npos) {
    EXPECT_EQ(cuda_device().fp8_refusal(),
              "a GPU of compute capability 8.6 has no fp8 products, which begin with 8.9 (Ada, Hopper)");
  }
}

}  // namespace
}  // namespace triax::kernels::testing
