// Elementwise operations, reductions and weight updates.
#include <fstream>

#include "kernels/cpu/cpu_device.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr int64_t kN = 10007;

TEST(Elementwise, CopyAndAddConvertBetweenAllTypesAndStrides) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType from : kMathTypes) {
      for (const DType to : kMathTypes) {
        for (const int64_t gap : {0, 3}) {
          const Matrix x = random_matrix(from, 57, 43, 1, 4, gap);
          Matrix y(to, 57, 43, gap), sum = random_matrix(to, 57, 43, 2, 1, gap), want(to, 57, 43), want_sum(to, 57, 43);
          for (int64_t r = 0; r < 57; ++r) {
            for (int64_t c = 0; c < 43; ++c) {
              want.set(r, c, x.at(r, c));
              want_sum.set(r, c, x.at(r, c) + sum.at(r, c));
            }
          }
          device.copy(x.t, y.t);
          device.add(x.t, sum.t);
          const std::string what = label(isa, from) + " to " + std::string(name_of(to));
          expect_close(y, want.values(), 0, "copy " + what);
          // fp16 and bf16 sums are rounded to fp32 first: one unit of the result at most.
          expect_close(sum, want_sum.values(), 2 * unit(to), "add " + what);
        }
      }
    }
  });
}

TEST(Elementwise, RoundingIsToNearestEvenAndKeepsNonfinite) {
  const std::vector<double> edges{1 + 0x1p-8,      1 + 0x1p-8 + 0x1p-20,
                                  1 + 3 * 0x1p-8,  1 + 0x1p-11,
                                  1 + 3 * 0x1p-11, 65519.9,
                                  65520,           1e30,
                                  -1e39,           6e-8,
                                  2.9e-8,          3.1e-8,
                                  1e-40,           -0.0,
                                  INFINITY,        -INFINITY,
                                  3.4e38};
  for_each_isa([&](Device& device, const std::string& isa) {
    for (const DType to : {DType::BFloat16, DType::Float16}) {
      const auto n = static_cast<int64_t>(edges.size());
      Matrix x(DType::Float32, 1, n), y(to, 1, n), back(DType::Float32, 1, n);
      for (int64_t i = 0; i < n; ++i) x.set(0, i, edges[static_cast<size_t>(i)]);
      device.copy(x.t, y.t);
      device.copy(y.t, back.t);
      for (int64_t i = 0; i < n; ++i) {
        const float v = static_cast<float>(edges[static_cast<size_t>(i)]);
        // The bf16 instruction turns subnormal values into zero.
        if (isa == "avx512_bf16" && to == DType::BFloat16 && std::abs(v) < 0x1p-126f && back.at(i) == 0) continue;
        const float want = to == DType::BFloat16 ? static_cast<float>(bf16(v)) : static_cast<float>(fp16(v));
        EXPECT_EQ(back.at(i), want) << label(isa, to) << " of " << v;
        EXPECT_EQ(std::signbit(back.at(i)), std::signbit(want)) << label(isa, to) << " of " << v;
      }
      Matrix nan(DType::Float32, 1, 40), nan16(to, 1, 40);
      device.fill(nan.t, NAN);
      device.copy(nan.t, nan16.t);
      for (int64_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(nan16.at(i))) << label(isa, to);
    }
  });
}

TEST(Elementwise, FillScaleAndIntegers) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      Matrix x(dtype, 31, 17, 2);
      device.fill(x.t, 1.5);
      device.scale(x.t, -2);
      expect_close(x, std::vector<double>(31 * 17, -3), 0, label(isa, dtype));
      device.fill(x.t, 0);
      expect_close(x, std::vector<double>(31 * 17, 0), 0, label(isa, dtype));
    }
    Matrix a(DType::Int32, 3, 5), b(DType::Int32, 3, 5, 2);
    for (int64_t i = 0; i < 15; ++i) a.set(i / 5, i % 5, static_cast<double>(i));
    device.copy(a.t, b.t);
    EXPECT_EQ(b.values(), a.values());
    Matrix c(DType::Float32, 3, 4);
    EXPECT_THROW(device.copy(a.t, c.t), std::logic_error);
  });
}

TEST(Reductions, SumOfSquaresIsAccurateAndIndependentOfThreads) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix x = random_matrix(dtype, 1, kN, 1);
      double want = 3;
      for (int64_t i = 0; i < kN; ++i) want += x.at(i) * x.at(i);
      Matrix out(DType::Float64, 1, 1);
      out.set(0, 0, 3);
      device.sum_of_squares(x.vec(), out.vec());
      EXPECT_NEAR(out.at(0) / want, 1, 1e-13) << label(isa, dtype);
    }
  });
  const Matrix large = random_matrix(DType::Float32, 1, 300000, 2);
  Matrix one(DType::Float64, 1, 1);
  make_cpu_device({1})->sum_of_squares(large.vec(), one.vec());
  for (const int threads : {2, 3, 7}) {
    Matrix many(DType::Float64, 1, 1);
    make_cpu_device({threads})->sum_of_squares(large.vec(), many.vec());
    EXPECT_EQ(one.at(0), many.at(0)) << threads << " threads";
  }
}

TEST(Reductions, CountsEveryNonfiniteElement) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      Matrix x = random_matrix(dtype, 1, kN, 1);
      x.set(0, 0, INFINITY);
      x.set(0, 5000, NAN);
      x.set(0, kN - 1, -INFINITY);
      x.set(0, 77, dtype == DType::Float16 ? 65504 : 3e38);
      Matrix out(DType::Float64, 1, 1);
      out.set(0, 0, 10);
      device.count_nonfinite(x.vec(), out.vec());
      EXPECT_EQ(out.at(0), 13) << label(isa, dtype);
    }
  });
}

void check_adamw(Device& device, const std::string& isa, DType dtype, DType grad_type, DType param_type) {
  Matrix w = random_matrix(dtype, 1, kN, 1), m(dtype, 1, kN), v(dtype, 1, kN), param(param_type, 1, kN);
  std::vector<double> rw = w.values(), rm(rw.size()), rv(rw.size());
  AdamW args{w.vec(), m.vec(), v.vec(), {}, param_type == dtype ? Tensor() : param.vec(), 0.9, 0.95, 1e-8, 0.1};
  StepBlock step;
  step.learning_rate = 1e-3;
  step.grad_scale = 0.25;
  for (int t = 1; t <= 3; ++t) {
    const Matrix g = random_matrix(grad_type, 1, kN, 10 + static_cast<uint64_t>(t));
    args.grad = g.vec();
    step.update = t;
    step.step = t - 1;
    for (size_t i = 0; i < rw.size(); ++i) {
      const double grad = g.at(static_cast<int64_t>(i)) * 0.25;
      rm[i] = 0.9 * rm[i] + 0.1 * grad;
      rv[i] = 0.95 * rv[i] + 0.05 * grad * grad;
      const double mhat = rm[i] / (1 - std::pow(0.9, t)), vhat = rv[i] / (1 - std::pow(0.95, t));
      rw[i] -= 1e-3 * (mhat / (std::sqrt(vhat) + 1e-8) + 0.1 * rw[i]);
    }
    device.adamw(args, &step);
  }
  expect_close(w, rw, 8 * unit(dtype), label(isa, dtype) + " weights");
  expect_close(m, rm, 8 * unit(dtype), label(isa, dtype) + " first moment");
  expect_close(v, rv, 8 * unit(dtype), label(isa, dtype) + " second moment");
  const auto before = w.bytes();
  step.skip = 1;
  device.adamw(args, &step);
  EXPECT_EQ(before, w.bytes()) << isa << ": a skipped update changed the weights";
  if (param_type != dtype) {
    for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(param.at(i), static_cast<float>(bf16(static_cast<float>(w.at(i)))));
  }
}

TEST(AdamW, MatchesItsFormulaAndRoundsTheParameter) {
  for_each_isa([](Device& device, const std::string& isa) {
    check_adamw(device, isa, DType::Float64, DType::Float64, DType::Float64);
    check_adamw(device, isa, DType::Float32, DType::Float32, DType::Float32);
    check_adamw(device, isa, DType::Float32, DType::Float32, DType::BFloat16);
    check_adamw(device, isa, DType::Float32, DType::BFloat16, DType::BFloat16);
  });
}

TEST(Sgd, MatchesItsFormula) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : {DType::Float64, DType::Float32}) {
      for (const double momentum : {0.0, 0.9}) {
        Matrix w = random_matrix(dtype, 1, kN, 1), buffer(dtype, 1, kN);
        std::vector<double> rw = w.values(), rb(rw.size());
        StepBlock step;
        step.learning_rate = 0.01;
        step.grad_scale = 2;
        for (uint64_t t = 0; t < 3; ++t) {
          const Matrix g = random_matrix(dtype, 1, kN, 20 + t);
          for (size_t i = 0; i < rw.size(); ++i) {
            rb[i] = momentum * rb[i] + 2 * g.at(static_cast<int64_t>(i));
            rw[i] -= 0.01 * (rb[i] + 0.05 * rw[i]);
          }
          device.sgd({w.vec(), momentum == 0 ? Tensor() : buffer.vec(), g.vec(), {}, momentum, 0.05}, &step);
        }
        expect_close(w, rw, 8 * unit(dtype), label(isa, dtype));
      }
    }
  });
}

TEST(CpuDevice, UnknownInstructionSetIsAConfigError) {
  EXPECT_EQ(device_with_isa("neon9", 1), nullptr);
  setenv("TRIAX_CPU_ISA", "neon9", 1);
  try {
    make_cpu_device({1});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("TRIAX_CPU_ISA=neon9"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("base"), std::string::npos);
  }
  unsetenv("TRIAX_CPU_ISA");
}

/// The instruction sets by the flags that the kernel of the system lists, best first.
std::string best_isa_of_proc() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("flags", 0) != 0) continue;
  const auto has = [&](const std::string& flag) { return (line + " ").find(" " + flag + " ") != std::string::npos; };
  const bool avx2 = has("avx2") && has("fma") && has("f16c") && has("bmi1") && has("bmi2");
  const bool avx512 = avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  return avx512 && has("avx512_bf16") ? "avx512_bf16" : avx512 ? "avx512" : avx2 ? "avx2" : "base";
}

TEST(CpuDevice, TakesTheBestInstructionSetAndAllBelowItRun) {
  const std::string best = best_isa_of_proc();
  EXPECT_EQ(cpu_kernel_table().isa, best);
  for (const std::string isa : {"base", "avx2", "avx512", "avx512_bf16"}) {
    EXPECT_NE(device_with_isa(isa.c_str(), 1), nullptr) << isa;
    if (isa == best) break;
  }
}

TEST(CpuDevice, DescribesItself) {
  const CpuDevice device({2});
  EXPECT_NE(device.describe().find("2 threads"), std::string::npos) << device.describe();
  EXPECT_NE(device.describe().find("OpenBLAS"), std::string::npos) << device.describe();
}

}  // namespace
}  // namespace triax::kernels::testing
