// GEMM against sums in double, and the bit-identity under splits that tensor-parallel layers rely on.
#include <array>

#include "kernels/cpu/cpu_device.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

struct Case {
  DType in, out;
};
const std::vector<Case> kCases{{DType::Float64, DType::Float64},   {DType::Float32, DType::Float32},
                               {DType::BFloat16, DType::BFloat16}, {DType::BFloat16, DType::Float32},
                               {DType::Float16, DType::Float16},   {DType::Float16, DType::Float32}};

void check_product(Device& device, const Case& type, int64_t m, int64_t n, int64_t k, int variant) {
  const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4, with_bias = variant & 8;
  const int64_t gap = variant & 16 ? 5 : 0;
  Matrix a = ta ? random_matrix(type.in, k, m, 1, 1, gap) : random_matrix(type.in, m, k, 1, 1, gap);
  Matrix b = tb ? random_matrix(type.in, n, k, 2, 1, gap) : random_matrix(type.in, k, n, 2, 1, gap);
  Matrix c = random_matrix(type.out, m, n, 3, 1, gap);
  Matrix bias = random_matrix(type.in, 1, n, 4);
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
  Gemm g{a.t,
         b.t,
         c.t,
         ta ? Transpose::Yes : Transpose::No,
         tb ? Transpose::Yes : Transpose::No,
         accumulate ? Accumulate::Yes : Accumulate::No,
         with_bias ? bias.vec() : Tensor()};
  device.gemm(g);
  const double sums = 4 * size * unit(type.in == DType::Float64 ? DType::Float64 : DType::Float32);
  expect_close(c, want, sums + unit(type.out),
               "gemm " + std::string(name_of(type.in)) + " -> " + std::string(name_of(type.out)) + " variant " +
                   std::to_string(variant) + " m n k " + std::to_string(m) + " " + std::to_string(n) + " " +
                   std::to_string(k));
}

TEST(Gemm, MatchesSumsInDoubleForEveryTransposeStrideAccumulateAndBias) {
  const auto device = make_cpu_device({1});
  for (const Case& type : kCases) {
    for (int variant = 0; variant < 32; ++variant) {
      check_product(*device, type, 1, 1, 1, variant);
      check_product(*device, type, 7, 5, 3, variant);
      check_product(*device, type, 33, 100, 64, variant);
      check_product(*device, type, 300, 17, 80, variant);
    }
  }
}

TEST(Gemm, EmptySumIsBiasOrNothing) {
  const auto device = make_cpu_device({1});
  Matrix a(DType::Float32, 3, 0), b(DType::Float32, 0, 4), c = random_matrix(DType::Float32, 3, 4, 1);
  Matrix bias = random_matrix(DType::Float32, 1, 4, 2);
  device->gemm({a.t, b.t, c.t, Transpose::No, Transpose::No, Accumulate::No, bias.vec()});
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(c.at(i), bias.at(i % 4));
}

TEST(Gemm, RefusesShapesThatDoNotFit) {
  const auto device = make_cpu_device({1});
  Matrix a(DType::Float32, 3, 5), b(DType::Float32, 4, 4), c(DType::Float32, 3, 4);
  const Gemm product{a.t, b.t, c.t};
  EXPECT_THROW(device->gemm(product), std::logic_error);
}

/// Bytes of op(A) op(B), computed in `parts` pieces along M or N, with `threads` threads.
std::vector<char> product_in_parts(Device& device, DType in, DType out, bool ta, bool tb, int parts, bool split_n) {
  constexpr int64_t kM = 192, kN = 256, kK = 320;
  const Matrix a = ta ? random_matrix(in, kK, kM, 1) : random_matrix(in, kM, kK, 1);
  const Matrix b = tb ? random_matrix(in, kN, kK, 2) : random_matrix(in, kK, kN, 2);
  Matrix c(out, kM, kN);
  for (int p = 0; p < parts; ++p) {
    Gemm g{a.t, b.t, c.t, ta ? Transpose::Yes : Transpose::No, tb ? Transpose::Yes : Transpose::No, Accumulate::No, {}};
    if (split_n) {
      const int64_t begin = kN * p / parts, end = kN * (p + 1) / parts;
      g.b = tb ? b.t.row_slice(begin, end) : b.t.col_slice(begin, end);
      g.c = c.t.col_slice(begin, end);
    } else {
      const int64_t begin = kM * p / parts, end = kM * (p + 1) / parts;
      g.a = ta ? a.t.col_slice(begin, end) : a.t.row_slice(begin, end);
      g.c = c.t.row_slice(begin, end);
    }
    device.gemm(g);
  }
  return c.bytes();
}

TEST(Gemm, BitsDoNotDependOnSplitsOfMAndNOrThreads) {
  const CpuDevice one({1}), two({2});
  if (one.describe().find("oneDNN") == std::string::npos) GTEST_SKIP() << "OpenBLAS promises no such thing";
  const auto d1 = make_cpu_device({1});
  const auto d2 = make_cpu_device({2});
  for (const Case& type : {kCases[1], kCases[2], kCases[3]}) {
    for (int t = 0; t < 4; ++t) {
      const bool ta = t & 1, tb = t & 2;
      const auto whole = product_in_parts(*d1, type.in, type.out, ta, tb, 1, true);
      for (const int parts : {2, 4}) {
        for (const bool split_n : {false, true}) {
          EXPECT_EQ(whole, product_in_parts(*d2, type.in, type.out, ta, tb, parts, split_n))
              << name_of(type.in) << " -> " << name_of(type.out) << ", transposes " << t << ", " << parts
              << " parts of " << (split_n ? "N" : "M");
        }
      }
    }
  }
}

struct PackedCase {
  int64_t m, n, k;
  bool ta, tb, accumulate, wide, with_bias;
};

/// C of our own kernel, the matrix cut in two along M at `row` and in two along N at `col`.
Matrix packed_product(const TypeKernels& kernel, DType dtype, const PackedCase& p, int64_t row, int64_t col,
                      std::vector<double>* want) {
  const Matrix a = p.ta ? random_matrix(dtype, p.k, p.m, 1, 1, 3) : random_matrix(dtype, p.m, p.k, 1, 1, 3);
  const Matrix b = p.tb ? random_matrix(dtype, p.n, p.k, 2, 1, 3) : random_matrix(dtype, p.k, p.n, 2, 1, 3);
  const Matrix bias = random_matrix(dtype, 1, p.n, 4);
  Matrix c = random_matrix(p.wide ? statistics_type(dtype) : dtype, p.m, p.n, 3, 1, 3);
  for (int64_t i = 0; want != nullptr && i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = (p.accumulate ? c.at(i, j) : 0) + (p.with_bias ? bias.at(0, j) : 0);
      for (int64_t l = 0; l < p.k; ++l) {
        sum += (p.ta ? a.at(l, i) : a.at(i, l)) * (p.tb ? b.at(j, l) : b.at(l, j));
      }
      want->push_back(sum);
    }
  }
  const GemmArgs args{{a.t.data(), a.t.row_stride()},
                      {b.t.data(), b.t.row_stride()},
                      {c.t.data(), c.t.row_stride()},
                      p.m,
                      p.n,
                      p.k,
                      p.ta,
                      p.tb,
                      p.accumulate,
                      p.wide,
                      p.with_bias ? bias.t.data() : nullptr};
  std::vector<char> memory(static_cast<size_t>(kernel.gemm_bytes(args, p.m)) + 64, 0x7f);  // large numbers of all types
  char* const scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  kernel.gemm(args, 0, row, 0, p.n, scratch);
  kernel.gemm(args, row, p.m, 0, col, scratch);
  kernel.gemm(args, row, p.m, col, p.n, scratch);
  EXPECT_TRUE(c.gaps_intact());
  return c;
}

TEST(PackedGemm, MatchesSumsInDoubleAndBitsDoNotDependOnSplits) {
  for_each_isa([](Device&, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const TypeKernels& kernel = cpu_kernel_table(isa.c_str()).type[static_cast<size_t>(dtype)];
      for (int variant = 0; variant < 16; ++variant) {
        const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4, wide = variant & 8;
        // One of each; edges in every dimension; k in several blocks, the last of an odd length.
        for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {103, 70, 65}, {20, 389, 7}, {7, 20, 2101}}) {
          const PackedCase p{m, n, k, ta, tb, accumulate, wide, variant % 3 == 0};
          std::vector<double> want;
          const Matrix c = packed_product(kernel, dtype, p, m, 0, &want);
          const double sums = 4 * static_cast<double>(k + 2) * unit(statistics_type(dtype));
          expect_close(c, want, sums + 2 * unit(c.t.dtype()),
                       label(isa, dtype) + " variant " + std::to_string(variant));
          EXPECT_EQ(c.bytes(), packed_product(kernel, dtype, p, m / 3, n / 2, nullptr).bytes()) << label(isa, dtype);
        }
      }
    }
  });
}

TEST(Gemm, WeightGradientsFromBf16AreTheSameAtAnyNumberOfThreads) {
  const Matrix dy = random_matrix(DType::BFloat16, 1030, 77, 1), x = random_matrix(DType::BFloat16, 1030, 130, 2);
  std::vector<char> first;
  for (const int threads : {1, 2, 3, 5}) {
    const auto device = make_cpu_device({threads});
    Matrix dw = random_matrix(DType::Float32, 77, 130, 3);
    device->gemm({dy.t, x.t, dw.t, Transpose::Yes, Transpose::No, Accumulate::Yes, {}});
    if (threads == 1) first = dw.bytes();
    EXPECT_EQ(first, dw.bytes()) << threads << " threads";
  }
}

TEST(Gemm, SteadyCallsAskTheProviderForNothing) {
  CpuDevice device({2});
  const Matrix a = random_matrix(DType::Float16, 300, 64, 1), b = random_matrix(DType::Float16, 64, 48, 2);
  const Matrix a16 = random_matrix(DType::BFloat16, 300, 64, 1), b16 = random_matrix(DType::BFloat16, 64, 48, 2);
  Matrix c(DType::Float16, 300, 48), c16(DType::BFloat16, 300, 48);
  int64_t calls = 0;
  for (int step = 0; step < 3; ++step) {
    device.gemm({a.t, b.t, c.t});
    device.gemm({a16.t, b16.t, c16.t});
    if (step == 0) calls = device.workspace().provider_calls();
  }
  EXPECT_EQ(calls, device.workspace().provider_calls());
  EXPECT_EQ(device.workspace().ledger().live_total, 0);
}

TEST(BiasBackward, AddsColumnSums) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix dy = random_matrix(dtype, 101, 37, 5, 1, 3);
      Matrix dbias = random_matrix(statistics_type(dtype), 1, 37, 6);
      std::vector<double> want = dbias.values();
      for (int64_t r = 0; r < 101; ++r) {
        for (int64_t c = 0; c < 37; ++c) want[static_cast<size_t>(c)] += dy.at(r, c);
      }
      device.bias_backward(dy.t, dbias.vec());
      expect_close(dbias, want, 100 * unit(dbias.t.dtype()), label(isa, dtype));
    }
  });
}

}  // namespace
}  // namespace triax::kernels::testing
