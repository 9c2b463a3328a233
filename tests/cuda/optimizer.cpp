// Elementwise operations, reductions and weight updates on the GPU.
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr int64_t kN = 10007;

TEST(CudaElementwise, CopyAndAddConvertBetweenAllTypesAndStrides) {
  for (const DType from : kCudaTypes) {
    for (const DType to : kCudaTypes) {
      for (const int64_t gap : {0, 3, 5}) {
        const Matrix x = random_matrix(from, 37, 43, 1, 4, gap);
        Matrix y(to, 37, 43, gap), sum = random_matrix(to, 37, 43, 2, 1, gap), want(to, 37, 43), want_sum(to, 37, 43);
        for (int64_t r = 0; r < 37; ++r) {
          for (int64_t c = 0; c < 43; ++c) {
            want.set(r, c, x.at(r, c));
            want_sum.set(r, c, x.at(r, c) + sum.at(r, c));
          }
        }
        mirrored().copy(x.t, y.t);
        mirrored().add(x.t, sum.t);
        const std::string what = std::string(name_of(from)) + " to " + std::string(name_of(to));
        expect_close(y, want.values(), 0, "copy " + what);
        expect_close(sum, want_sum.values(), 2 * unit(to), "add " + what);
      }
    }
  }
}

TEST(CudaElementwise, RoundingIsToNearestEvenAndKeepsNonfinite) {
  const std::vector<double> edges{1 + 0x1p-8,      1 + 0x1p-8 + 0x1p-20,
                                  1 + 3 * 0x1p-8,  1 + 0x1p-11,
                                  1 + 3 * 0x1p-11, 65519.9,
                                  65520,           1e30,
                                  -1e39,           6e-8,
                                  2.9e-8,          3.1e-8,
                                  1e-40,           -0.0,
                                  INFINITY,        -INFINITY,
                                  3.4e38};
  for (const DType to : {DType::BFloat16, DType::Float16}) {
    const auto n = static_cast<int64_t>(edges.size());
    Matrix x(DType::Float32, 1, n), y(to, 1, n), back(DType::Float32, 1, n);
    for (int64_t i = 0; i < n; ++i) x.set(0, i, edges[static_cast<size_t>(i)]);
    mirrored().copy(x.t, y.t);
    mirrored().copy(y.t, back.t);
    for (int64_t i = 0; i < n; ++i) {
      const float v = static_cast<float>(edges[static_cast<size_t>(i)]);
      const float want = to == DType::BFloat16 ? static_cast<float>(bf16(v)) : static_cast<float>(fp16(v));
      EXPECT_EQ(back.at(i), want) << name_of(to) << " of " << v;
      EXPECT_EQ(std::signbit(back.at(i)), std::signbit(want)) << name_of(to) << " of " << v;
    }
    Matrix nan(DType::Float32, 1, 40), nan16(to, 1, 40);
    mirrored().fill(nan.t, NAN);
    mirrored().copy(nan.t, nan16.t);
    for (int64_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(nan16.at(i))) << name_of(to);
  }
}

TEST(CudaElementwise, FillScaleAndIntegers) {
  for (const DType dtype : kCudaTypes) {
    for (const int64_t gap : {0, 2}) {
      Matrix x(dtype, 31, 17, gap);
      mirrored().fill(x.t, 1.5);
      mirrored().scale(x.t, -2);
      expect_close(x, std::vector<double>(31 * 17, -3), 0, std::string(name_of(dtype)));
      mirrored().fill(x.t, 0);
      expect_close(x, std::vector<double>(31 * 17, 0), 0, std::string(name_of(dtype)));
    }
  }
  Matrix a(DType::Int32, 3, 5), b(DType::Int32, 3, 5, 2), c(DType::Float32, 3, 5);
  for (int64_t i = 0; i < 15; ++i) a.set(i / 5, i % 5, static_cast<double>(i));
  mirrored().copy(a.t, b.t);
  EXPECT_EQ(b.values(), a.values());
  EXPECT_THROW(mirrored().copy(a.t, c.t), std::logic_error);
}

TEST(CudaReductions, SumOfSquaresIsAccurateAndRepeats) {
  for (const DType dtype : kCudaTypes) {
    for (const int64_t n : {int64_t{1}, kN, int64_t{32767}, int64_t{70001}}) {
      const Matrix x = random_matrix(dtype, 1, n, 1);
      double want = 3;
      for (int64_t i = 0; i < n; ++i) want += x.at(i) * x.at(i);
      Matrix out(DType::Float64, 1, 1), again(DType::Float64, 1, 1);
      out.set(0, 0, 3), again.set(0, 0, 3);
      mirrored().sum_of_squares(x.vec(), out.vec());
      mirrored().sum_of_squares(x.vec(), again.vec());
      EXPECT_NEAR(out.at(0) / want, 1, 1e-13) << name_of(dtype) << " " << n;
      EXPECT_EQ(out.at(0), again.at(0));
    }
  }
}

TEST(CudaReductions, CountsEveryNonfiniteElement) {
  for (const DType dtype : kCudaTypes) {
    Matrix x = random_matrix(dtype, 1, kN, 1);
    x.set(0, 0, INFINITY);
    x.set(0, 5000, NAN);
    x.set(0, kN - 1, -INFINITY);
    x.set(0, 77, dtype == DType::Float16 ? 65504 : 3e38);
    Matrix out(DType::Float64, 1, 1);
    out.set(0, 0, 10);
    mirrored().count_nonfinite(x.vec(), out.vec());
    EXPECT_EQ(out.at(0), 13) << name_of(dtype);
  }
}

void check_adamw(DType grad_type, DType param_type, int64_t begin) {
  // A view that begins within the memory: aligned for 16 bytes or not.
  Matrix w = random_matrix(DType::Float32, 1, kN, 1), m(DType::Float32, 1, kN), v(DType::Float32, 1, kN);
  Matrix param(param_type, 1, kN);
  const auto view = [&](const Matrix& of) { return of.vec().range(begin, kN); };
  std::vector<double> rw = w.values(), rm(rw.size()), rv(rw.size());
  AdamW args{view(w), view(m), view(v), {}, param_type == DType::Float32 ? Tensor() : view(param),
             0.9,     0.95,    1e-8,    0.1};
  StepBlock step;
  step.learning_rate = 1e-3;
  step.grad_scale = 0.25;
  const std::string what = "grad " + std::string(name_of(grad_type)) + " param " + std::string(name_of(param_type));
  Matrix g(grad_type, 1, kN);
  for (int t = 1; t <= 3; ++t) {
    g = random_matrix(grad_type, 1, kN, 10 + static_cast<uint64_t>(t));
    args.grad = view(g);
    step.update = t;
    step.step = t - 1;
    for (auto i = static_cast<size_t>(begin); i < rw.size(); ++i) {
      const double grad = g.at(static_cast<int64_t>(i)) * 0.25;
      rm[i] = 0.9 * rm[i] + 0.1 * grad;
      rv[i] = 0.95 * rv[i] + 0.05 * grad * grad;
      const double mhat = rm[i] / (1 - std::pow(0.9, t)), vhat = rv[i] / (1 - std::pow(0.95, t));
      rw[i] -= 1e-3 * (mhat / (std::sqrt(vhat) + 1e-8) + 0.1 * rw[i]);
    }
    mirrored().adamw(args, &step);
  }
  expect_close(w, rw, 8 * 0x1p-24, what + " weights");
  expect_close(m, rm, 8 * 0x1p-24, what + " first moment");
  expect_close(v, rv, 8 * 0x1p-24, what + " second moment");
  const auto before = w.bytes();
  step.skip = 1;
  mirrored().adamw(args, &step);
  EXPECT_EQ(before, w.bytes()) << what << ": a skipped update changed the weights";
  for (int64_t i = begin; param_type != DType::Float32 && i < kN; ++i) {
    const float value = static_cast<float>(w.at(i));
    const float want =
        param_type == DType::BFloat16 ? static_cast<float>(bf16(value)) : static_cast<float>(fp16(value));
    ASSERT_EQ(param.at(i), want) << what << " " << i;
  }
}

TEST(CudaAdamW, MatchesItsFormulaAndRoundsTheParameter) {
  for (const DType grad : kCudaTypes) {
    for (const DType param : kCudaTypes) {
      for (const int64_t begin : {0, 3}) check_adamw(grad, param, begin);
    }
  }
}

TEST(CudaAdamW, ManyRangesAreOneLaunchWithTheBitsOfOneCallForEach) {
  // Ranges of one array, aligned and not, tails that no run divides, an empty one; more than one launch takes.
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0, i = 0; i < 70; ++i) {
    const int64_t n = i == 5 ? 0 : 1 + i * 37 % 211 + (i == 9 ? 3000 : 0);
    ranges.emplace_back(begin, begin + n);
    begin += (n + (i % 3 == 0 ? 3 : 0) + 3) / 4 * 4 + (i % 7 == 0 ? 1 : 0);
  }
  const int64_t size = ranges.back().second;
  struct State {
    Matrix w, m, v, param;
  };
  const Matrix grad = random_matrix(DType::Float32, 1, size, 5);
  StepBlock step;
  step.learning_rate = 1e-2;
  step.grad_scale = 0.5;
  step.update = 3;
  const auto updated = [&](bool together) {
    State s{random_matrix(DType::Float32, 1, size, 1), random_matrix(DType::Float32, 1, size, 2),
            Matrix(DType::Float32, 1, size), Matrix(DType::BFloat16, 1, size)};
    std::vector<AdamW> parts;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const auto part = [&](const Matrix& of) { return of.vec().range(ranges[i].first, ranges[i].second); };
      parts.push_back(
          {part(s.w), part(s.m), part(s.v), part(grad), part(s.param), 0.9, 0.95, 1e-8, i % 2 == 0 ? 0.1 : 0});
    }
    if (together) mirrored().adamw_many(parts, &step);
    for (size_t i = 0; i < parts.size() && !together; ++i) {
      if (parts[i].master.numel() > 0) mirrored().adamw(parts[i], &step);
    }
    return s;
  };
  const State one = updated(false), many = updated(true);
  EXPECT_EQ(one.w.bytes(), many.w.bytes());
  EXPECT_EQ(one.m.bytes(), many.m.bytes());
  EXPECT_EQ(one.v.bytes(), many.v.bytes());
  EXPECT_EQ(one.param.bytes(), many.param.bytes());
  EXPECT_NE(many.w.bytes(), random_matrix(DType::Float32, 1, size, 1).bytes());
}

TEST(CudaSgd, MatchesItsFormula) {
  for (const double momentum : {0.0, 0.9}) {
    Matrix w = random_matrix(DType::Float32, 1, kN, 1), buffer(DType::Float32, 1, kN), param(DType::BFloat16, 1, kN);
    std::vector<double> rw = w.values(), rb(rw.size());
    StepBlock step;
    step.learning_rate = 0.01;
    step.grad_scale = 2;
    for (uint64_t t = 0; t < 3; ++t) {
      const Matrix g = random_matrix(DType::Float32, 1, kN, 20 + t);
      for (size_t i = 0; i < rw.size(); ++i) {
        rb[i] = momentum * rb[i] + 2 * g.at(static_cast<int64_t>(i));
        rw[i] -= 0.01 * (rb[i] + 0.05 * rw[i]);
      }
      mirrored().sgd({w.vec(), momentum == 0 ? Tensor() : buffer.vec(), g.vec(), param.vec(), momentum, 0.05}, &step);
    }
    expect_close(w, rw, 8 * 0x1p-24, "sgd");
    for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(param.at(i), static_cast<float>(bf16(static_cast<float>(w.at(i)))));
  }
}

}  // namespace
}  // namespace triax::kernels::testing
