// Codes, selection and their inverses on the GPU have the bits of the CPU device: packed bytes, residuals, values.
#include <cstring>

#include "tests/cuda/cuda_testing.h"
#include "tests/cuda/mirror_compression.h"

namespace triax::kernels::testing {
namespace {

const std::vector<Codec> kCodecs{Codec::BFloat16, Codec::Int8, Codec::Qsgd, Codec::Sign};
const char* const kNames[] = {"bf16", "int8", "qsgd", "sign"};

/// Number i of a fixed random sequence, in [low, high].
int64_t drawn(uint64_t seed, uint64_t i, int64_t low, int64_t high) {
  const uint32_t word = philox4x32({static_cast<uint32_t>(i), 7, 0, 0}, {static_cast<uint32_t>(seed), 1})[0];
  return low + static_cast<int64_t>(word % static_cast<uint32_t>(high - low + 1));
}

struct Case {
  std::vector<CodeSegment> segments;
  int64_t flat = 0, state = 0, bytes = 0;
};

/// Segments with gaps between them that begin anywhere in rows of any length; more than one launch takes.
Case random_case(Codec codec, uint64_t seed, int64_t segments) {
  Case c;
  for (int64_t i = 0; i < segments; ++i) {
    const auto at = static_cast<uint64_t>(i * 8);
    CodeSegment s;
    s.row_length = drawn(seed, at, 1, 700);
    s.block_length = drawn(seed, at + 1, 1, 300);
    s.phase = drawn(seed, at + 2, 0, s.row_length - 1);
    s.count = i == 3 ? 0 : drawn(seed, at + 3, 1, 900);
    s.begin = c.flat + drawn(seed, at + 4, 0, 5);
    s.state = c.state;
    s.packed = c.bytes;
    s.stream = static_cast<uint64_t>(i + 3);
    s.global_begin = drawn(seed, at + 5, 0, 1000);
    s.global_row = s.row_length + drawn(seed, at + 6, 0, 50);
    c.flat = s.begin + s.count;
    c.state += s.count;
    c.bytes += packed_bytes(codec, s);
    c.segments.push_back(s);
  }
  return c;
}

/// The bytes of fp32 values, where every NaN has the same bits: a GPU has one NaN, a CPU keeps those it is given.
std::vector<char> bytes_of(const Matrix& values) {
  std::vector<char> bytes(values.bytes());
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float v = 0;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    if (std::isnan(v)) std::memset(bytes.data() + at, 0x7f, sizeof v);
  }
  return bytes;
}

struct Coded {
  std::vector<char> packed, residual, stored, added;
  bool operator==(const Coded&) const = default;
};

Coded coded_by(Compression& codes, Codec codec, const Case& c, bool with_residual, double bad) {
  Matrix x = random_matrix(DType::Float32, 1, c.flat, 1), residual = random_matrix(DType::Float32, 1, c.state, 2, 0.5);
  for (int64_t i = 40; i < std::min<int64_t>(60, c.flat); ++i) x.set(0, i, 0);
  if (bad != 0) x.set(0, c.flat / 2, bad);
  std::vector<char> packed(static_cast<size_t>(c.bytes), 0x33);
  const Tensor bytes(packed.data(), DType::UInt8, {c.bytes});
  Matrix stored(DType::Float32, 1, c.flat), added = random_matrix(DType::Float32, 1, c.flat, 4);
  codes.encode({codec, c.segments, x.vec(), with_residual ? residual.vec() : Tensor(), bytes, 100, {42, 9, 3}});
  codes.decode(codec, c.segments, bytes, stored.vec(), Decode::Store);
  codes.decode(codec, c.segments, bytes, added.vec(), Decode::Add);
  return {packed, bytes_of(residual), bytes_of(stored), bytes_of(added)};
}

TEST(CudaCompression, CodesHaveTheBitsOfTheCpu) {
  const auto cpu = make_cpu_device({1});
  MirroredCompression gpu(cuda_device());
  for (const Codec codec : kCodecs) {
    for (uint64_t i = 1; i <= 3; ++i) {
      const uint64_t seed = i + 3 * shapes_seed();
      const Case c = random_case(codec, seed, i == 1 ? 90 : 12);
      for (const bool residual : {true, false}) {
        const std::string what = std::string(kNames[static_cast<size_t>(codec)]) + " seed " + std::to_string(seed);
        const Coded want = coded_by(*cpu->compression(), codec, c, residual, 0);
        const Coded got = coded_by(gpu, codec, c, residual, 0);
        EXPECT_EQ(want.packed, got.packed) << what;
        EXPECT_EQ(want.residual, got.residual) << what;
        EXPECT_EQ(want.stored, got.stored) << what;
        EXPECT_EQ(want.added, got.added) << what;
      }
    }
  }
}

TEST(CudaCompression, TheLongestBlockAndLargeValues) {
  const auto cpu = make_cpu_device({1});
  MirroredCompression gpu(cuda_device());
  for (const Codec codec : kCodecs) {
    Case c;
    c.segments = {
        {.begin = 1, .count = 2 * kLongestBlock + 5, .phase = 3, .row_length = 1 << 20, .block_length = kLongestBlock}};
    c.flat = c.state = 2 * kLongestBlock + 7;
    c.bytes = packed_bytes(codec, c.segments[0]);
    EXPECT_EQ(coded_by(*cpu->compression(), codec, c, true, 3e38), coded_by(gpu, codec, c, true, 3e38));
  }
}

TEST(CudaCompression, WhatIsNotFiniteArrivesNotFinite) {
  MirroredCompression gpu(cuda_device());
  const CodeSegment s{.count = 200, .row_length = 200, .block_length = 64};
  for (const Codec codec : kCodecs) {
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      Matrix x = random_matrix(DType::Float32, 1, 200, 1), y(DType::Float32, 1, 200);
      x.set(0, 20, bad);
      std::vector<char> packed(static_cast<size_t>(packed_bytes(codec, s)));
      const Tensor bytes(packed.data(), DType::UInt8, {static_cast<int64_t>(packed.size())});
      gpu.encode({codec, {&s, 1}, x.vec(), Tensor(), bytes, 127, {}});
      gpu.decode(codec, {&s, 1}, bytes, y.vec(), Decode::Store);
      EXPECT_FALSE(std::isfinite(y.at(20))) << kNames[static_cast<size_t>(codec)] << " " << bad;
    }
  }
}

struct Selected {
  std::vector<char> value, index, residual, x, y;
  bool operator==(const Selected&) const = default;
};

Selected selected_by(Compression& codes, int64_t n, int64_t k, bool with_residual, double bad) {
  Matrix x = random_matrix(DType::Float32, 1, n, 1), residual = random_matrix(DType::Float32, 1, n, 2);
  Matrix small = random_matrix(DType::Float32, 1, 37, 3);
  for (int64_t i = 0; i < n; i += 3) x.set(0, i, i % 2 == 0 ? 1.5 : -1.5), residual.set(0, i, 0);  // many equals
  if (bad != 0) x.set(0, n / 2, bad), x.set(0, n - 1, -bad);
  Matrix value(DType::Float32, 1, k + 5), index(DType::Int32, 1, k + 5), y(DType::Float32, 1, n + 100);
  const std::vector<TopK> jobs{
      {x.vec(), with_residual ? residual.vec() : Tensor(), value.vec().range(0, k), index.vec().range(0, k), 0},
      {small.vec(), Tensor(), value.vec().range(k, k + 5), index.vec().range(k, k + 5), n}};
  codes.top_k(jobs);
  codes.scatter(index.vec(), value.vec(), y.vec(), Decode::Store);
  codes.scatter(index.vec(), value.vec(), y.vec(), Decode::Add);
  return {bytes_of(value), index.bytes(), bytes_of(residual), x.bytes(), bytes_of(y)};
}

TEST(CudaCompression, TopKIsTheCpus) {
  const auto cpu = make_cpu_device({1});
  MirroredCompression gpu(cuda_device());
  for (const int64_t n : {int64_t{1}, int64_t{255}, int64_t{4096}, int64_t{20011}}) {
    for (const int64_t k : {int64_t{1}, (n + 99) / 100, n / 3 + 1, n}) {
      for (const double bad : {0.0, std::nan(""), static_cast<double>(INFINITY)}) {
        for (const bool residual : {true, false}) {
          EXPECT_EQ(selected_by(*cpu->compression(), n, k, residual, bad), selected_by(gpu, n, k, residual, bad))
              << n << " " << k << " " << residual << " " << bad;
        }
      }
    }
  }
}

TEST(CudaCompression, OrthonormalRowsSpanEveryDimension) {
  MirroredCompression gpu(cuda_device());
  for (const int64_t n : {int64_t{9}, int64_t{1700}}) {
    Matrix x = random_matrix(DType::Float32, 6, n, 3);
    for (int64_t c = 0; c < n; ++c) {
      x.set(2, c, 0);                               // nothing
      x.set(3, c, 3 * x.at(0, c) - x.at(1, c));     // depends on those before
      x.set(4, c, x.at(0, c) + 1e-4 * x.at(4, c));  // nearly so
    }
    const std::vector<char> given(x.bytes());
    gpu.orthonormalize(x.t, 1, 2);
    const std::vector<char> first(x.bytes());
    std::memcpy(x.t.data(), given.data(), static_cast<size_t>(x.t.bytes()));
    gpu.orthonormalize(x.t, 1, 2);
    EXPECT_EQ(x.bytes(), first);
    for (int64_t a = 0; a < 6; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t c = 0; c < n; ++c) dot += x.at(a, c) * x.at(b, c);
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << n << ": " << a << b;
      }
    }
  }
  // The replacement of a row of zeros is the CPU's: the first row of a matrix of zeros.
  Matrix zeros(DType::Float32, 1, 50), of_cpu(DType::Float32, 1, 50);
  gpu.orthonormalize(zeros.t, 7, 8);
  make_cpu_device({1})->compression()->orthonormalize(of_cpu.t, 7, 8);
  expect_close(zeros, of_cpu.values(), 1e-6, "the row in place of zeros");
}

TEST(CudaCompression, OneBitAdamsUpdatesHaveTheBitsOfTheCpu) {
  const auto cpu = make_cpu_device({1});
  MirroredCompression gpu(cuda_device());
  const int64_t n = 1003;
  StepBlock step;
  step.update = 7;
  step.learning_rate = 0.013;
  const auto run = [&](Compression& codes) {
    Matrix w = random_matrix(DType::Float32, 1, n, 1), m = random_matrix(DType::Float32, 1, n, 2);
    Matrix g = random_matrix(DType::Float32, 1, n, 3), v(DType::Float32, 1, n);
    for (int64_t i = 0; i < n; ++i) v.set(0, i, i % 10 == 0 ? 0 : 0.01 * static_cast<double>(i));
    codes.momentum(m.vec(), 0.9, 0.3, g.vec());
    codes.frozen_adam({w.vec(), g.vec(), v.vec(), 0.9, 1e-8, 0.1, 1.7}, &step);
    return std::pair(w.bytes(), g.bytes());
  };
  EXPECT_EQ(run(*cpu->compression()), run(gpu));
  step.skip = 1;
  EXPECT_EQ(run(*cpu->compression()), run(gpu));
}

}  // namespace
}  // namespace triax::kernels::testing
