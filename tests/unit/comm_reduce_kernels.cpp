// The arithmetic of reductions against base/dtype's conversions of single values.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "comm/reduce_kernels.h"

namespace triax::comm {
namespace {

template <class T>
std::vector<T> reduce(ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> out(inputs[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& input : inputs) sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
  auto* destination = reinterpret_cast<std::byte*>(out.data());
  reduce_buffers(DTypeOf<T>::value, op, sources, {&destination, 1}, static_cast<int64_t>(out.size()));
  return out;
}

TEST(ReduceBuffers, every_half_survives_the_way_through_fp32) {
  std::vector<fp16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  const std::vector<fp16> out = reduce<fp16>(ReduceOp::Sum, {all});
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(static_cast<float>(all[i]))) {
      ASSERT_TRUE(std::isnan(static_cast<float>(out[i]))) << i;
    } else {
      ASSERT_EQ(out[i].bits, all[i].bits) << i;
    }
  }
}

/// Sums of random bit patterns round as base's conversion does: subnormals, ties, overflow to infinity.
template <class T>
void sums_round_to_nearest_even() {
  std::mt19937 random(5);
  std::vector<T> a(300001);
  std::vector<T> b(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    a[i].bits = static_cast<uint16_t>(random());
    // Exponents close to each other, so that both matter.
    b[i].bits = static_cast<uint16_t>(a[i].bits ^ (random() & 0x87ffu));
  }
  const std::vector<T> out = reduce<T>(ReduceOp::Sum, {a, b});
  for (size_t i = 0; i < a.size(); ++i) {
    const T expected(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    if (std::isnan(static_cast<float>(expected))) {
      ASSERT_TRUE(std::isnan(static_cast<float>(out[i]))) << i;
    } else {
      ASSERT_EQ(out[i].bits, expected.bits) << a[i].bits << " + " << b[i].bits;
    }
  }
}

TEST(ReduceBuffers, half_sums_round_to_nearest_even) { sums_round_to_nearest_even<fp16>(); }
TEST(ReduceBuffers, bfloat16_sums_round_to_nearest_even) { sums_round_to_nearest_even<bf16>(); }

TEST(ReduceBuffers, integers_wrap_around_and_keep_64_bits) {
  const int64_t large = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reduce<int64_t>(ReduceOp::Sum, {{large, large - 5}, {1, 5}})[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reduce<int64_t>(ReduceOp::Max, {{large, -3}, {large - 1, -2}}), (std::vector<int64_t>{large, -2}));
}

TEST(ReduceBuffers, max_and_min_keep_a_nan_of_any_rank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    const std::vector<float> out = reduce<float>(op, {{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}});
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(ReduceBuffers, writes_every_destination_and_may_overwrite_a_source) {
  std::vector<double> a(3000, 1.0);
  std::vector<double> b(3000, 2.0);
  const std::array<const std::byte*, 2> sources{reinterpret_cast<std::byte*>(a.data()),
                                                reinterpret_cast<std::byte*>(b.data())};
  const std::array<std::byte*, 2> destinations{reinterpret_cast<std::byte*>(a.data()),
                                               reinterpret_cast<std::byte*>(b.data())};
  reduce_buffers(DType::Float64, ReduceOp::Sum, sources, destinations, 3000);
  EXPECT_EQ(a, std::vector<double>(3000, 3.0));
  EXPECT_EQ(b, a);
}

TEST(ReduceBuffers, refuses_types_without_a_sum) {
  EXPECT_THROW(reduce<uint8_t>(ReduceOp::Sum, {{1}, {2}}), std::logic_error);
}

}  // namespace
}  // namespace triax::comm
