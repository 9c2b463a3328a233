// hw.json: what is written reads back the same, and a file that is not understood wholly is refused by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/hardware.h"

namespace triax::bench {
namespace {

Constant constant(double value, Origin origin = Origin::Measured) { return {value, origin, "bench \"x\""}; }

Hardware sample() {
  Hardware hw;
  hw.name = "two cores";
  hw.description = "measured 2026-01-02";
  hw.device = "cpu";
  hw.devices_per_node = 2;
  hw.memory_bytes = constant(24e9, Origin::Published);
  hw.memory_bytes_per_s = constant(0.1 + 0.2);
  hw.peak_flops[DType::Float32] = constant(1.0 / 3, Origin::Fitted);
  hw.peak_flops[DType::BFloat16] = constant(1e-9 / 3, Origin::Assumed);
  hw.gemms = {{DType::BFloat16, GemmLayout::NT, true, 3, 5, 7, 1e-7 / 3},
              {DType::Float32, GemmLayout::NN, false, 1, 2, 3, 2}};
  hw.kernel_points = {{"attention", DType::Float32, 128, 64, 1.5e-5}};
  hw.collectives = {{comm::Operation::ReduceScatter, 8, 2, 4096, 7e-6}, {comm::Operation::Send, 2, 1, 8, 1e-6}};
  hw.links = {{"shared-memory", 2, constant(1e-6), constant(1e10), constant(0), constant(1)}};
  hw.kernels["adamw"] = {constant(4e9), constant(2e-6)};
  hw.constants["op_s"] = constant(1e-6);
  hw.environment["threads"] = "1";
  return hw;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    hardware_from_json(text, "a.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Hardware, reads_back_what_it_wrote) {
  const Hardware hw = sample();
  const std::string text = to_json(hw);
  const Hardware back = hardware_from_json(text, "a.json");
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(back.memory_bytes_per_s.value, 0.1 + 0.2);
  EXPECT_EQ(back.memory_bytes.origin, Origin::Published);
  EXPECT_EQ(back.memory_bytes.source, "bench \"x\"");
  EXPECT_EQ(back.peak_flops.at(DType::BFloat16).value, 1e-9 / 3);
  ASSERT_EQ(back.gemms.size(), 2u);
  EXPECT_EQ(back.gemms[0].layout, GemmLayout::NT);
  EXPECT_TRUE(back.gemms[0].accumulate);
  EXPECT_EQ(back.gemms[0].k, 7);
  EXPECT_EQ(back.gemms[0].time_s, 1e-7 / 3);
  EXPECT_EQ(back.kernel_points.at(0).cols, 64);
  EXPECT_EQ(back.collectives.at(1).operation, comm::Operation::Send);
  EXPECT_EQ(back.links.at(0).contention.value, 1);
  EXPECT_EQ(back.kernels.at("adamw").floor_s.value, 2e-6);
  EXPECT_EQ(back.environment.at("threads"), "1");
}

TEST(Hardware, an_empty_description_reads_back) {
  const std::string text = to_json({});
  EXPECT_EQ(to_json(hardware_from_json(text, "a.json")), text);
}

TEST(Hardware, refuses_what_it_does_not_know_by_file_and_key) {
  const std::string text = to_json(sample());
  using testing::HasSubstr;
  EXPECT_THAT(refusal("{"), HasSubstr("a.json: not JSON"));
  EXPECT_EQ(refusal("[]"), "a.json: must be an object");
  EXPECT_EQ(refusal(replaced(text, "triax-hw/1", "triax-hw/9")),
            "a.json: 'schema' is 'triax-hw/9'; this version reads 'triax-hw/1'");
  EXPECT_EQ(refusal(replaced(text, "\"links\"", "\"link\"")), "a.json: 'links' is missing");
  EXPECT_EQ(refusal(replaced(text, "\"name\":", "\"nick\": \"\", \"name\":")),
            "a.json: 'nick' is not a key of triax-hw/1");
  EXPECT_EQ(refusal(replaced(text, "\"m\":3", "\"m\":3,\"mm\":3")), "a.json: 'gemms[0].mm' is not a key of triax-hw/1");
  EXPECT_EQ(refusal(replaced(text, "\"m\":3", "\"m\":0")),
            "a.json: 'gemms[0].m' must be a whole number from 1 to 1000000000000000");
  EXPECT_EQ(refusal(replaced(text, "\"layout\":\"NT\"", "\"layout\":\"TT\"")),
            "a.json: 'gemms[0].layout' 'TT' is none of TN, NN, NT");
  EXPECT_EQ(refusal(replaced(text, "\"ranks\":8", "\"ranks\":1")),
            "a.json: 'collectives[0].ranks' must be a whole number from 2 to 1000000");
  EXPECT_EQ(refusal(replaced(text, "\"value\":4000000000.0", "\"value\":null")),
            "a.json: 'kernels.adamw.per_s.value' must be a number");
  EXPECT_EQ(refusal(replaced(text, "\"fp32\": {", "\"fp31\": {")), "a.json: 'peak_flops.fp31' is no element type");
  EXPECT_EQ(refusal(replaced(text, "\"time_s\":2.0", "\"time_s\":0.0")),
            "a.json: 'gemms[1].time_s' must be seconds from 1e-18 to 1e+06");
  EXPECT_EQ(refusal(replaced(text, "\"value\":4000000000.0", "\"value\":-1.0")),
            "a.json: 'kernels.adamw.per_s.value' must be 0, or from 1e-18 to 1e+18");
}

TEST(Hardware, refuses_what_no_machine_does) {
  const std::string text = to_json(sample());
  const auto with = [&](const char* from, const char* to) { return refusal(replaced(text, from, to)); };
  for (const char* const value : {"\"value\":1e308", "\"value\":1.1e18", "\"value\":1e-308", "\"value\":-0.5"}) {
    EXPECT_EQ(with("\"value\":4000000000.0", value),
              "a.json: 'kernels.adamw.per_s.value' must be 0, or from 1e-18 to 1e+18");
  }
  EXPECT_EQ(with("\"value\":4000000000.0", "\"value\":0.0"), "accepted");  // not measured
  EXPECT_EQ(with("\"value\":4000000000.0", "\"value\":1e18"), "accepted");
  EXPECT_EQ(with("\"floor_s\":{\"value\":2e-06", "\"floor_s\":{\"value\":1e7"),
            "a.json: 'kernels.adamw.floor_s.value' must be 0, or from 1e-18 to 1e+06");
  EXPECT_EQ(with("\"latency_s\":{\"value\":1e-06", "\"latency_s\":{\"value\":1e7"),
            "a.json: 'links[0].latency_s.value' must be 0, or from 1e-18 to 1e+06");
  for (const char* const value : {"\"time_s\":1e308", "\"time_s\":1e-308", "\"time_s\":-1"}) {
    EXPECT_EQ(with("\"time_s\":2.0", value), "a.json: 'gemms[1].time_s' must be seconds from 1e-18 to 1e+06");
  }
  EXPECT_EQ(with("\"ranks\":8", "\"ranks\":4294967298"),
            "a.json: 'collectives[0].ranks' must be a whole number from 2 to 1000000");
  EXPECT_EQ(with("\"m\":3", "\"m\":18446744073709551615"),
            "a.json: 'gemms[0].m' must be a whole number from 1 to 1000000000000000");
  EXPECT_EQ(with("\"rows\":128,\"cols\":64", "\"rows\":100000000000,\"cols\":100000000000"),
            "a.json: 'kernel_points[0].rows' times cols must be at most 1000000000000000000");
}

}  // namespace
}  // namespace triax::bench
