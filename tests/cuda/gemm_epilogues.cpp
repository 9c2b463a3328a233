// A product and what follows it: GELU, its gradient, the gradient of a bias, against sums in double; when cuBLASLt's
// epilogue does it and when a pass of its own does; the same bits every time.
#include <cstdlib>

#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr double kRootTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
}

/// sum over k of a[i, k] * b[j, k].
std::vector<double> product(const Matrix& a, const Matrix& b) {
  std::vector<double> c;
  for (int64_t i = 0; i < a.t.rows(); ++i) {
    for (int64_t j = 0; j < b.t.rows(); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a.t.cols(); ++k) sum += a.at(i, k) * b.at(j, k);
      c.push_back(sum);
    }
  }
  return c;
}

int64_t epilogues() { return cuda_device().special_calls().gemm_epilogues; }

/// A layer's expansion on `device`: GELU forward and backward, weight and bias gradient; `fused` counts its epilogues.
struct Expansion {
  Matrix x, w, bias, before, dy, dz, u, y, du, dw, dbias;
  Expansion(DType type, DType gradients, int64_t rows, int64_t n, int64_t k, int64_t gap)
      : x(random_matrix(type, rows, k, 1)),
        w(random_matrix(type, n, k, 2, 0.3)),
        bias(random_matrix(type, 1, n, 3)),
        before(random_matrix(type, rows, n, 4, 2, gap)),
        dy(random_matrix(type, rows, k, 5)),
        dz(random_matrix(type, rows, n, 6)),
        u(type, rows, n, gap),
        y(type, rows, n, gap),
        du(type, rows, n, gap),
        dw(random_matrix(gradients, n, k, 7)),
        dbias(random_matrix(gradients, 1, n, 8)) {}

  void run(Device& device, Tensor with_bias) {
    device.gemm_gelu({x.t, w.t, u.t, Transpose::No, Transpose::Yes, Accumulate::No, with_bias}, y.t);
    device.gemm_gelu_backward({dy.t, w.t, du.t, Transpose::No, Transpose::Yes}, before.t);
    device.gemm_bias_backward({dz.t, x.t, dw.t, Transpose::Yes, Transpose::No, Accumulate::Yes}, dbias.vec());
  }

  void check(Device& device, bool with_bias, const std::string& what) {
    std::vector<double> want_u = product(x, w), want_y, want_du = product(dy, w);
    std::vector<double> want_dw, want_dbias = dbias.values();
    const auto n = static_cast<size_t>(w.t.rows());
    for (size_t i = 0; i < want_u.size(); ++i) {
      if (with_bias) want_u[i] += bias.at(static_cast<int64_t>(i % n));
      want_y.push_back(gelu(want_u[i]));
      want_du[i] *= gelu_slope(before.at(static_cast<int64_t>(i)));
    }
    for (int64_t j = 0; j < w.t.rows(); ++j) {
      for (int64_t l = 0; l < x.t.cols(); ++l) {
        double sum = dw.at(j, l);
        for (int64_t r = 0; r < x.t.rows(); ++r) sum += dz.at(r, j) * x.at(r, l);
        want_dw.push_back(sum);
      }
      for (int64_t r = 0; r < x.t.rows(); ++r) want_dbias[static_cast<size_t>(j)] += dz.at(r, j);
    }
    run(device, with_bias ? bias.vec() : Tensor());
    // A pass of its own reads what was rounded.
    const double sums = 200 * 0x1p-24, twice = sums + 3 * unit(x.t.dtype());
    expect_close(u, want_u, sums + 2 * unit(x.t.dtype()), what + " u");
    expect_close(y, want_y, twice, what + " gelu(u)");
    expect_close(du, want_du, twice, what + " du");
    expect_close(dw, want_dw, sums + unit(dw.t.dtype()), what + " dw");
    expect_close(dbias, want_dbias, sums + unit(dbias.t.dtype()), what + " dbias");
  }
};

struct Case {
  DType type, gradients;
  int64_t n, gap, gelu, bias_gradient;  // how many epilogues
};
// fp32's GELU and 16-bit gradients are never cuBLASLt's; rows of the matrix beside GELU stand at multiples of 8.
const std::vector<Case> kCases{
    {DType::BFloat16, DType::Float32, 72, 0, 2, 1},  {DType::BFloat16, DType::Float32, 72, 8, 2, 1},
    {DType::BFloat16, DType::Float32, 44, 0, 0, 1},  {DType::BFloat16, DType::Float32, 72, 2, 0, 1},
    {DType::BFloat16, DType::BFloat16, 72, 0, 2, 0}, {DType::Float16, DType::Float32, 72, 0, 2, 1},
    {DType::Float32, DType::Float32, 72, 0, 0, 1}};

std::string name_of_case(const Case& c) {
  return std::string(name_of(c.type)) + " gradients " + std::string(name_of(c.gradients)) + " n " +
         std::to_string(c.n) + " gap " + std::to_string(c.gap);
}

TEST(CudaGemmEpilogue, MatchesSumsInDoubleAndIsTakenWhereItIsExactEnough) {
  for (const Case& c : kCases) {
    for (const bool with_bias : {false, true}) {
      const int64_t before = epilogues();
      Expansion(c.type, c.gradients, 51, c.n, 40, c.gap).check(mirrored(), with_bias, name_of_case(c));
      if (is_emulated()) {
        EXPECT_EQ(epilogues() - before, c.gelu + c.bias_gradient) << name_of_case(c);
      }
    }
  }
}

/// Where cuBLASLt has no such algorithm, a pass of its own follows the product, and that is said once for each kind.
TEST(CudaGemmEpilogue, WithoutAnAlgorithmPassesFollowAndItIsSaid) {
  if (!is_emulated()) GTEST_SKIP() << "cuBLASLt of this GPU has what it has";
  ::setenv("TRIAX_EMULATED_EPILOGUES", "0", 1);
  std::vector<std::string> said;
  const auto device =
      make_cuda_device({.log = [&](const std::string& text) { said.push_back(text); }}, CudaModule::Emulated);
  MirroredDevice without(*device);
  for (int call = 0; call < 2; ++call) {
    for (const Case& c : kCases) {
      Expansion(c.type, c.gradients, 51, c.n, 40, c.gap).check(without, true, "no epilogues: " + name_of_case(c));
    }
  }
  ::unsetenv("TRIAX_EMULATED_EPILOGUES");
  EXPECT_EQ(device->special_calls().gemm_epilogues, 0);
  ASSERT_EQ(said.size(), 7u);  // GELU and its gradient in bf16 and fp16; bias gradients from three types
  EXPECT_EQ(said[0],
            "cuBLASLt has no algorithm with GELU epilogue from bf16 to bf16 for a product of 51 x 72 x 40: where "
            "it has none, a pass of its own follows the product");
}

TEST(CudaGemmEpilogue, SteadyCallsAskTheProviderForNothingAndRepeatTheirBits) {
  Expansion first(DType::BFloat16, DType::Float32, 51, 72, 40, 0);
  first.run(mirrored(), first.bias.vec());
  const int64_t calls = cuda_device().workspace().provider_calls();
  Expansion second(DType::BFloat16, DType::Float32, 51, 72, 40, 0);
  second.run(mirrored(), second.bias.vec());
  for (const auto& [a, b] :
       {std::pair(&first.u, &second.u), std::pair(&first.y, &second.y), std::pair(&first.du, &second.du),
        std::pair(&first.dw, &second.dw), std::pair(&first.dbias, &second.dbias)}) {
    EXPECT_EQ(a->bytes(), b->bytes());
  }
  EXPECT_EQ(cuda_device().workspace().provider_calls(), calls);
  EXPECT_EQ(cuda_device().workspace().ledger().live_total, 0);
}

}  // namespace
}  // namespace triax::kernels::testing
