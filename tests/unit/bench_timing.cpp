// Statistics, orders, splits, sizes, shapes and verdicts of `triax bench`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "bench/kernel_calls.h"
#include "bench/kernel_tables.h"
#include "bench/verdict.h"
#include "model/presets.h"

namespace triax::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Statistics, are_nearest_rank_and_take_any_order) {
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1.0);
  const Statistics s = statistics(hundred);
  EXPECT_EQ(s.min_s, 1);
  EXPECT_EQ(s.median_s, 50.5);
  EXPECT_EQ(s.p95_s, 95);
  EXPECT_EQ(s.p99_s, 99);
  EXPECT_EQ(s.max_s, 100);
  EXPECT_EQ(s.mean_s, 50.5);
  const Statistics two = statistics({1, 3});
  EXPECT_EQ(two.p95_s, 3);
  EXPECT_DOUBLE_EQ(two.cv, 0.5);
  EXPECT_EQ(statistics({}).samples, 0);
  EXPECT_EQ(undisturbed_s(two), 1);
  EXPECT_EQ(undisturbed_s(statistics({10, 10.1, 10.2})), 10.1);
}

TEST(Orders, are_permutations_that_differ) {
  const auto orders = random_orders(8, 3, 1);
  ASSERT_EQ(orders.size(), 3u);
  for (std::vector<size_t> order : orders) {
    std::sort(order.begin(), order.end());
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(orders, random_orders(8, 3, 1));
}

TEST(Timing, calls_every_case_in_every_round_and_throws_the_first_away) {
  int fast = 0, slow = 0;
  const std::vector<Statistics> times = time_cases({[&] { ++fast; }, [&] { ++slow; }}, {4, 0, 1}, nullptr);
  EXPECT_EQ(fast, 6);  // once to load, once in the round that does not count, four rounds
  EXPECT_EQ(slow, 6);
  EXPECT_EQ(times[1].samples, 4);
}

TEST(Split, colours_are_those_of_nccl_tests) {
  EXPECT_EQ(Split::parse("mod:4").colour(6), 2);
  EXPECT_EQ(Split::parse("div:4").colour(6), 1);
  EXPECT_EQ(Split::parse("and:4").colour(6), 4);
  for (const char* bad : {"mod", "mod:0", "mod:x", "or:1", "div:-1"})
    EXPECT_THROW(Split::parse(bad), ConfigError) << bad;
}

TEST(Sizes, go_by_factor_or_by_step) {
  EXPECT_THAT((Sizes{8, 100, 4, 0}.all()), ElementsAre(8, 32));
  EXPECT_THAT((Sizes{8, 30, 4, 10}.all()), ElementsAre(8, 18, 28));
}

TEST(ModelGemms, are_those_of_the_layers_on_one_tensor_rank) {
  const model::ModelConfig& llama = model::find_preset("llama2-70b")->config;
  const std::vector<ModelGemm> gemms = model_gemms(llama, {8, 1, DType::BFloat16});
  ASSERT_EQ(gemms.size(), 15u);
  const auto expect = [&](size_t i, const char* layer, GemmLayout layout, int64_t m, int64_t n, int64_t k) {
    EXPECT_STREQ(gemms[i].layer, layer);
    EXPECT_EQ(gemms[i].shape.layout, layout);
    EXPECT_THAT((std::vector<int64_t>{gemms[i].shape.m, gemms[i].shape.n, gemms[i].shape.k}), ElementsAre(m, n, k));
  };
  expect(0, "qkv", GemmLayout::TN, 4096, 8 * 128 + 2 * 128, 8192);
  expect(4, "proj", GemmLayout::NN, 4096, 1024, 8192);
  expect(8, "fc1", GemmLayout::NT, 2 * 3584, 8192, 4096);
  expect(9, "fc2", GemmLayout::TN, 4096, 8192, 3584);
  expect(12, "logits", GemmLayout::TN, 4096, 32768 / 8, 8192);
  EXPECT_TRUE(gemms[8].shape.accumulate);
  EXPECT_THROW(model_gemms(llama, {3, 1, DType::Float32}), ConfigError);
}

TEST(KernelCalls, every_kernel_runs_at_an_odd_size_in_every_type) {
  const auto device = kernels::make_cpu_device({1});
  HeapProvider heap;
  Arena arena(heap);
  Operands operands(*device, arena);
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
    for (const std::string& name : kernel_names()) {
      const bool attention = name.rfind("attention", 0) == 0;
      const KernelPoint point{name, dtype, attention ? 33 * 33 : 33, attention ? 16 : 48, 0};
      EXPECT_NO_THROW(kernel_call(operands, point, heads_of_call(point, operands.device()))()) << name << " " << name_of(dtype);
      EXPECT_GT(bytes_of(point), 0) << name;
    }
    for (const GemmLayout layout : {GemmLayout::TN, GemmLayout::NN, GemmLayout::NT}) {
      EXPECT_NO_THROW(gemm_call(operands, {dtype, layout, layout == GemmLayout::NT, 33, 17, 48, 0})());
    }
  }
  EXPECT_THROW(kernel_call(operands, {"softmax", DType::Float32, 1, 1, 0}, 1), ConfigError);
  EXPECT_EQ(flops_of(KernelPoint{"attention_forward", DType::Float32, 16, 8, 0}), 4 * 8 * 4 * 5 / 2);
}

CollectiveRow row_of(int64_t bytes, double time_s, double cv) {
  CollectiveRow row{comm::Operation::AllReduce, "default"};
  row.ranks = 2;
  row.size_bytes = bytes;
  row.converted = true;
  row.in_place.time.median_s = time_s;
  row.in_place.time.cv = cv;
  row.in_place.time.samples = 5;
  return row;
}

TEST(Verdict, says_the_share_and_likely_causes) {
  const Peak copy{10e9, "memory copy"};
  // busbw of two ranks is size / time: 8 GB/s of 10.
  EXPECT_EQ(verdict_of(row_of(8000000, 1e-3, 0), copy, {2, 2}).text(), "80 % of memory copy");
  EXPECT_EQ(verdict_of(row_of(8000, 1e-5, 0), copy, {2, 2, BufferPlace::Window, 9e-6}).text(),
            "8 % of memory copy: small: latency decides");
  EXPECT_EQ(
      verdict_of(row_of(8000000, 1e-2, 0.5), copy, {4, 2, BufferPlace::Heap, 9e-6}).text(),
      "8 % of memory copy: 4 ranks share 2 cores; unsteady (cv 50 %): other work on these cores; ordinary memory: "
      "copies through staging buffers");
  CollectiveRow wrong = row_of(8000000, 1e-3, 0);
  wrong.in_place.wrong = 1;
  EXPECT_THAT(verdict_of(wrong, copy, {2, 2}).text(), HasSubstr("wrong elements"));
  CollectiveRow far = row_of(8000000, 1, 0);
  far.nodes = 2;
  EXPECT_THAT(verdict_of(far, {0, "adapter"}, {1, 2}).text(), HasSubstr("network"));

  Machine machine;
  machine.vectors = "avx2";
  machine.clock_hz = 1e9;  // 32 GFLOP/s fp32
  machine.allowed = 1;
  EXPECT_EQ(verdict_of({DType::Float32, GemmLayout::TN, false, 1000, 1000, 1000, 0.0625}, machine, 1, 0).text(),
            "100 % of core peak");
  EXPECT_THAT(verdict_of({DType::BFloat16, GemmLayout::TN, false, 1000, 64, 1000, 0.0625}, machine, 1, 0).text(),
              HasSubstr("thin: one side is 64; no 16-bit instructions"));
}

}  // namespace
}  // namespace triax::bench
