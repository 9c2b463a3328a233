// Codes of gradient compression: sent + residual is what came in, packed bytes are as counted, QSGD is unbiased, Top-K
// takes the largest, factors are orthonormal; the same bits on every instruction set and number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/compression.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels {
namespace {

using testing::Matrix;
using testing::random_matrix;

const std::vector<Codec> kCodecs{Codec::BFloat16, Codec::Int8, Codec::Qsgd, Codec::Sign};
const std::vector<DType> kTypes{DType::Float32, DType::Float64};

/// Rows of 300 in blocks of 150, then an odd vector in blocks of 64 that begins within a block.
std::vector<CodeSegment> segments_of(Codec codec) {
  CodeSegment a{.begin = 3, .count = 2100, .row_length = 300, .block_length = 150, .stream = 5, .global_row = 300};
  CodeSegment b{.begin = 2150, .count = 77, .phase = 13, .row_length = 1000, .block_length = 64, .stream = 6};
  b.state = a.count;
  b.packed = packed_bytes(codec, a);
  return {a, b};
}
int64_t total_bytes(Codec codec) {
  const auto s = segments_of(codec);
  return s[1].packed + packed_bytes(codec, s[1]);
}
constexpr int64_t kFlat = 2240;
constexpr int64_t kState = 2177;

struct Coded {
  Matrix x, residual, sent;
  std::vector<uint8_t> bytes;
};

Coded encode(Device& device, Codec codec, DType dtype, bool residual = true, uint64_t step = 0) {
  Coded c{random_matrix(dtype, 1, kFlat, 1), random_matrix(dtype, 1, kState, 2, residual ? 0.5 : 0),
          Matrix(dtype, 1, kFlat), std::vector<uint8_t>(static_cast<size_t>(total_bytes(codec)), 0xee)};
  const Tensor packed(c.bytes.data(), DType::UInt8, {static_cast<int64_t>(c.bytes.size())});
  const auto segments = segments_of(codec);
  device.compression()->encode(
      {codec, segments, c.x.vec(), residual ? c.residual.vec() : Tensor(), packed, 127, {42, step, 3}});
  device.compression()->decode(codec, segments, packed, c.sent.vec(), Decode::Store);
  return c;
}

double ulp_of(DType dtype, double x) {
  if (dtype == DType::Float64) return std::nextafter(std::abs(x), INFINITY) - std::abs(x);
  const auto f = static_cast<float>(std::abs(x));
  return static_cast<double>(std::nextafter(f, INFINITY)) - static_cast<double>(f);
}

TEST(Compression, packed_bytes_of_every_codec) {
  const auto bytes = [](Codec codec, int i) { return packed_bytes(codec, segments_of(codec)[static_cast<size_t>(i)]); };
  EXPECT_EQ(bytes(Codec::BFloat16, 0), 4200);
  EXPECT_EQ(bytes(Codec::Int8, 0), 14 * 4 + 2100);
  EXPECT_EQ(bytes(Codec::Sign, 0), 14 * 4 + 268);  // 14 blocks of 150 bits in 19 bytes each: 266
  // Blocks of 51 and 26 elements.
  EXPECT_EQ(bytes(Codec::BFloat16, 1), 156);
  EXPECT_EQ(bytes(Codec::Qsgd, 1), 2 * 4 + 80);
  EXPECT_EQ(bytes(Codec::Sign, 1), 2 * 4 + 12);  // 7 + 4 bytes
}

TEST(Compression, sent_plus_residual_is_gradient_plus_old_residual) {
  testing::for_each_isa([&](Device& device, const std::string& isa) {
    for (const Codec codec : kCodecs) {
      for (const DType dtype : kTypes) {
        const Matrix old = random_matrix(dtype, 1, kState, 2, 0.5);
        const Coded c = encode(device, codec, dtype);
        double error = 0, size = 0;
        for (const CodeSegment& s : segments_of(codec)) {
          for (int64_t i = 0; i < s.count; ++i) {
            double a = c.x.at(s.begin + i) + old.at(s.state + i);
            if (dtype == DType::Float32) a = static_cast<double>(static_cast<float>(a));
            const double sent = c.sent.at(s.begin + i), rest = c.residual.at(s.state + i);
            double sum = sent + rest;
            if (dtype == DType::Float32) sum = static_cast<double>(static_cast<float>(sum));
            ASSERT_LE(std::abs(sum - a), ulp_of(dtype, std::max(std::abs(sent), std::abs(rest))))
                << isa << " codec " << static_cast<int>(codec) << " element " << i;
            error += rest * rest;
            size += a * a;
          }
        }
        // What stays behind: bf16 2^-9 of the values, int8 half a step of max/127, qsgd a step of |x|/127, the sign
        // code 1 - (E|x|)^2 / E x^2 = 1 - 2 / pi of normal numbers.
        const double left = std::sqrt(error / size);
        const auto within = [&](double low, double high) { EXPECT_TRUE(left > low && left < high) << isa << left; };
        if (codec == Codec::BFloat16) within(5e-4, 2e-3);
        if (codec == Codec::Int8) within(3e-3, 9e-3);
        if (codec == Codec::Qsgd) within(2e-2, 6e-2);
        if (codec == Codec::Sign) within(0.55, 0.65);
        // Between the segments nothing was written.
        for (int64_t i = 2103; i < 2150; ++i) ASSERT_EQ(c.sent.at(i), 0);
      }
    }
  });
}

TEST(Compression, same_bits_on_every_instruction_set_and_number_of_threads) {
  const auto one = testing::device_with_isa("base", 1);
  for (const Codec codec : kCodecs) {
    for (const DType dtype : kTypes) {
      const Coded want = encode(*one, codec, dtype);
      testing::for_each_isa([&](Device& device, const std::string& isa) {
        const Coded got = encode(device, codec, dtype);
        EXPECT_EQ(got.bytes, want.bytes) << isa;
        EXPECT_EQ(got.residual.bytes(), want.residual.bytes()) << isa;
      });
    }
  }
}

TEST(Compression, decode_adds_in_place) {
  const auto device = make_cpu_device({2});
  const Coded c = encode(*device, Codec::Int8, DType::Float32);
  Matrix y = random_matrix(DType::Float32, 1, kFlat, 9);
  const Matrix before = y;
  Coded copy = c;
  device->compression()->decode(Codec::Int8, segments_of(Codec::Int8),
                                Tensor(copy.bytes.data(), DType::UInt8, {static_cast<int64_t>(copy.bytes.size())}),
                                y.vec(), Decode::Add);
  for (int64_t i = 0; i < kFlat; ++i) {
    ASSERT_EQ(static_cast<float>(y.at(i)), static_cast<float>(before.at(i)) + static_cast<float>(c.sent.at(i)));
  }
}

TEST(Compression, qsgd_is_unbiased_and_draws_by_content) {
  const auto device = make_cpu_device({2});
  constexpr int kDraws = 10000;
  // Blocks of 8 with few levels: large steps, so that a bias would show.
  const CodeSegment s{.begin = 0, .count = 64, .row_length = 64, .block_length = 8, .stream = 11};
  Matrix x = random_matrix(DType::Float64, 1, 64, 4), y(DType::Float64, 1, 64);
  std::vector<uint8_t> bytes(static_cast<size_t>(packed_bytes(Codec::Qsgd, s)));
  const Tensor packed(bytes.data(), DType::UInt8, {static_cast<int64_t>(bytes.size())});
  constexpr int kLevels = 3;
  std::vector<double> sum(64), squares(64);
  for (int draw = 0; draw < kDraws; ++draw) {
    device->compression()->encode(
        {Codec::Qsgd, {&s, 1}, x.vec(), Tensor(), packed, kLevels, {1234, static_cast<uint64_t>(draw), 0}});
    device->compression()->decode(Codec::Qsgd, {&s, 1}, packed, y.vec(), Decode::Store);
    for (size_t i = 0; i < 64; ++i) {
      sum[i] += y.at(static_cast<int64_t>(i));
      squares[i] += y.at(static_cast<int64_t>(i)) * y.at(static_cast<int64_t>(i));
    }
  }
  double chi = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double mean = sum[i] / kDraws, variance = squares[i] / kDraws - mean * mean;
    ASSERT_GT(variance, 0) << i;
    const double z = (mean - x.at(static_cast<int64_t>(i))) / std::sqrt(variance / kDraws);
    EXPECT_LT(std::abs(z), 4.5) << i;  // of 64 normal deviates one beyond 4.5 has a chance of 4e-4
    chi += z * z;
  }
  EXPECT_LT(chi, 64 + 5 * std::sqrt(128.0));
  EXPECT_GT(chi, 64 - 5 * std::sqrt(128.0));
  // The upper half alone, as another layout would hold it, draws the same.
  const std::vector<uint8_t> whole = bytes;
  CodeSegment half = s;
  half.begin = 0;
  half.count = 32;
  half.phase = 32;
  Matrix upper(DType::Float64, 1, 32);
  for (int64_t i = 0; i < 32; ++i) upper.set(0, i, x.at(32 + i));
  std::vector<uint8_t> half_bytes(static_cast<size_t>(packed_bytes(Codec::Qsgd, half)));
  device->compression()->encode({Codec::Qsgd,
                                 {&half, 1},
                                 upper.vec(),
                                 Tensor(),
                                 Tensor(half_bytes.data(), DType::UInt8, {static_cast<int64_t>(half_bytes.size())}),
                                 kLevels,
                                 {1234, kDraws - 1, 0}});
  EXPECT_TRUE(std::equal(half_bytes.begin() + 16, half_bytes.end(), whole.begin() + 32 + 32));
}

TEST(Compression, what_is_not_finite_arrives_not_finite) {
  const auto device = make_cpu_device({1});
  for (const Codec codec : kCodecs) {
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      const auto segments = segments_of(codec);
      Matrix x = random_matrix(DType::Float32, 1, kFlat, 1), y(DType::Float32, 1, kFlat);
      x.set(0, 20, bad);
      std::vector<uint8_t> bytes(static_cast<size_t>(total_bytes(codec)));
      const Tensor packed(bytes.data(), DType::UInt8, {static_cast<int64_t>(bytes.size())});
      device->compression()->encode({codec, segments, x.vec(), Tensor(), packed, 127, {}});
      device->compression()->decode(codec, segments, packed, y.vec(), Decode::Store);
      EXPECT_FALSE(std::isfinite(y.at(20))) << static_cast<int>(codec) << " " << bad;
    }
  }
}

TEST(Compression, zeros_and_tiny_blocks_send_zeros) {
  const auto device = make_cpu_device({1});
  for (const Codec codec : {Codec::Int8, Codec::Qsgd}) {
    Matrix x(DType::Float32, 1, kFlat), residual(DType::Float32, 1, kState), y(DType::Float32, 1, kFlat);
    x.set(0, 5, 1e-38);
    std::vector<uint8_t> bytes(static_cast<size_t>(total_bytes(codec)));
    const Tensor packed(bytes.data(), DType::UInt8, {static_cast<int64_t>(bytes.size())});
    device->compression()->encode({codec, segments_of(codec), x.vec(), residual.vec(), packed, 127, {}});
    device->compression()->decode(codec, segments_of(codec), packed, y.vec(), Decode::Store);
    for (int64_t i = 0; i < kFlat; ++i) ASSERT_EQ(y.at(i), 0);
    EXPECT_EQ(residual.at(2), x.at(5));
  }
}

TEST(Compression, top_k_takes_the_largest_and_keeps_the_rest) {
  testing::for_each_isa([&](Device& device, const std::string& isa) {
    for (const DType dtype : kTypes) {
      for (const int64_t k : {1, 10, 333, 1000}) {
        Matrix x = random_matrix(dtype, 1, 1000, 1), residual = random_matrix(dtype, 1, 1000, 2);
        for (int64_t i = 100; i < 140; ++i) x.set(0, i, 1.5 - residual.at(i));  // equals
        std::vector<double> sum(1000);
        for (int64_t i = 0; i < 1000; ++i) {
          const double s = x.at(i) + residual.at(i);
          sum[static_cast<size_t>(i)] = dtype == DType::Float32 ? static_cast<double>(static_cast<float>(s)) : s;
        }
        Matrix value(dtype, 1, k), index(DType::Int32, 1, k);
        const TopK job{x.vec(), residual.vec(), value.vec(), index.vec(), 7};
        device.compression()->top_k({&job, 1});
        std::vector<int> order(1000);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
          return std::abs(sum[static_cast<size_t>(a)]) > std::abs(sum[static_cast<size_t>(b)]);
        });
        order.resize(static_cast<size_t>(k));
        std::sort(order.begin(), order.end());
        for (int64_t i = 0; i < k; ++i) {
          const int want = order[static_cast<size_t>(i)];
          ASSERT_EQ(index.at(i), want + 7) << isa << " k " << k;
          ASSERT_EQ(value.at(i), sum[static_cast<size_t>(want)]);
          sum[static_cast<size_t>(want)] = 0;
        }
        for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(residual.at(i), sum[static_cast<size_t>(i)]) << i;
      }
    }
  });
}

TEST(Compression, orthonormal_rows_span_every_dimension) {
  const auto device = make_cpu_device({1});
  for (const DType dtype : kTypes) {
    Matrix x = random_matrix(dtype, 6, 9, 3);
    for (int64_t c = 0; c < 9; ++c) {
      x.set(2, c, 0);                               // nothing
      x.set(3, c, 3 * x.at(0, c) - x.at(1, c));     // depends on those before
      x.set(4, c, x.at(0, c) + 1e-4 * x.at(4, c));  // nearly so
    }
    device->compression()->orthonormalize(x.t, 1, 2);
    const double tolerance = dtype == DType::Float64 ? 1e-14 : 1e-6;
    for (int64_t a = 0; a < 6; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t c = 0; c < 9; ++c) dot += x.at(a, c) * x.at(b, c);
        EXPECT_NEAR(dot, a == b ? 1 : 0, tolerance) << a << b;
      }
    }
  }
}

TEST(Compression, momentum_and_frozen_update) {
  const auto device = make_cpu_device({2});
  Matrix m = random_matrix(DType::Float64, 1, 50, 1), g = random_matrix(DType::Float64, 1, 50, 2);
  Matrix v(DType::Float64, 1, 50), w = random_matrix(DType::Float64, 1, 50, 3);
  const Matrix g0 = g, w0 = w;
  device->compression()->momentum(m.vec(), 0.9, 0.25, g.vec());
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_DOUBLE_EQ(g.at(i), 0.9 * m.at(i) + 0.25 * g0.at(i));
    v.set(0, i, i % 10 == 0 ? 0 : 0.1 * static_cast<double>(i));
  }
  StepBlock step;
  step.update = 3;
  step.learning_rate = 0.01;
  const FrozenAdam args{w.vec(), g.vec(), v.vec(), 0.9, 1e-8, 0.1, 2.0};
  step.skip = 1;
  device->compression()->frozen_adam(args, &step);
  EXPECT_EQ(w.values(), w0.values());
  step.skip = 0;
  const std::vector<double> m1 = g.values();
  device->compression()->frozen_adam(args, &step);
  for (int64_t i = 0; i < 50; ++i) {
    const double first = m1[static_cast<size_t>(i)] / (1 - 0.9 * 0.9 * 0.9);
    const double want = w0.at(i) - 0.01 * (first / (std::sqrt(v.at(i)) * 2 + 1e-8) + 0.1 * w0.at(i));
    EXPECT_NEAR(w.at(i), i % 10 == 0 ? w0.at(i) : want, 1e-15) << i;
    EXPECT_EQ(g.at(i), m1[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace triax::kernels
