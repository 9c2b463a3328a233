// nccl-tests' text and JSON become collectives of hw.json; what cannot be understood is refused by line or key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/compare.h"
#include "bench/nccl_import.h"

namespace triax::bench {
namespace {

using comm::Operation;
using testing::HasSubstr;

const std::string kText =
    "# Collective test starting: all_reduce_perf\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  11 on    nodeA device  0 [0000:17:00] GPU\n"
    "#  Rank  1 Group  0 Pid  12 on    nodeA device  1 [0000:65:00] GPU\n"
    "#  Rank  2 Group  0 Pid  13 on    nodeB device  0 [0000:17:00] GPU\n"
    "#  Rank  3 Group  0 Pid  14 on    nodeB device  1 [0000:65:00] GPU\n"
    "#\n"
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)    "
    "   \n"
    "           0             0     float     sum      -1     1.50    0.00    0.00       0     1.40    0.00    0.00    "
    "   0\n"
    "     1048576        262144     float     sum      -1    60.00   17.48   26.21       0    58.00   18.08   27.12    "
    "   0\n"
    "  1073741824     268435456     float     sum      -1    1.2e4   89.48  134.22       0    12100   88.74  133.11    "
    " N/A\n"
    "# Out of bounds values : 0 OK\n";

TEST(Import, reads_text) {
  const std::vector<CollectivePoint> points = import_nccl(kText, "a.txt", {});
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].operation, Operation::AllReduce);
  EXPECT_EQ(points[0].ranks, 4);
  EXPECT_EQ(points[0].nodes, 2);
  EXPECT_EQ(points[0].bytes, 1048576);
  EXPECT_DOUBLE_EQ(points[0].time_s, 60e-6);
  EXPECT_DOUBLE_EQ(points[1].time_s, 12e-3);
  EXPECT_EQ(points[1].dtype, DType::Float32);
}

TEST(Import, reads_json) {
  const std::string json = R"({"config": {"devices": [{"rank": 0, "group": 0, "hostname": "a"},
      {"rank": 1, "group": 0, "hostname": "a"}]},
    "results": [
      {"size": 4096, "count": 1024, "type": "bfloat16", "redop": "none", "root": "-1", "experiment_name": "AllGather",
       "out_of_place": {"time": 12.5, "alg_bw": 0.3, "bus_bw": 0.2, "nwrong": 0.0}, "in_place": null},
      {"size": 4096, "count": 1024, "type": "bfloat16", "redop": "none", "root": "-1", "experiment_name": "SendRecv",
       "out_of_place": null, "in_place": {"cpu_time": 3.0, "alg_bw": 1, "bus_bw": 1, "nwrong": null}}]})";
  const std::vector<CollectivePoint> points = import_nccl(json, "a.json", {});
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].operation, Operation::AllGather);
  EXPECT_EQ(points[0].ranks, 2);
  EXPECT_EQ(points[0].nodes, 1);
  EXPECT_EQ(points[0].dtype, DType::BFloat16);
  EXPECT_DOUBLE_EQ(points[0].time_s, 12.5e-6);
  EXPECT_EQ(points[1].operation, Operation::Send);
  EXPECT_DOUBLE_EQ(points[1].time_s, 3e-6);
}

std::string refusal(const std::string& text, const ImportHints& hints = {}) {
  try {
    import_nccl(text, "a.txt", hints);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Import, refuses_what_is_missing_or_wrong) {
  EXPECT_EQ(refusal("hello\n"), "a.txt: file holds no result line of nccl-tests");
  EXPECT_THAT(refusal("{\"x\": 1}"), HasSubstr("'results' is missing"));
  EXPECT_THAT(refusal(replaced(kText, "26.21       0", "26.21       3")), HasSubstr("line 11 has wrong elements"));
  EXPECT_THAT(refusal(replaced(kText, "262144     float", "262144     uint32")), HasSubstr("the type 'uint32'"));
  const std::string old = kText.substr(kText.find("#       size"));
  EXPECT_THAT(refusal(old), HasSubstr("give --op"));
  EXPECT_THAT(refusal(old, {Operation::Reduce, 0, 0}), HasSubstr("give --ranks"));
  const std::vector<CollectivePoint> hinted = import_nccl(old, "a.txt", {Operation::Reduce, 8, 2});
  EXPECT_EQ(hinted[0].operation, Operation::Reduce);
  EXPECT_EQ(hinted[0].ranks, 8);
  EXPECT_EQ(hinted[0].nodes, 2);
}

TEST(Import, merging_replaces_the_same_table_and_gives_links) {
  Hardware hw;
  hw.collectives = {{Operation::AllReduce, 4, 2, 8, 1}, {Operation::AllReduce, 2, 1, 8, 1}};
  merge(hw, import_nccl(kText, "a.txt", {}), "a.txt");
  ASSERT_EQ(hw.collectives.size(), 3u);
  EXPECT_EQ(hw.collectives[0].ranks, 2);
  ASSERT_EQ(hw.links.size(), 1u);
  EXPECT_EQ(hw.links[0].ranks, 0);
  EXPECT_EQ(hw.links[0].latency_s.origin, Origin::Measured);
  EXPECT_DOUBLE_EQ(hw.links[0].latency_s.value, 10e-6);  // 60 us over 2 (4 - 1) steps
  EXPECT_DOUBLE_EQ(hw.links[0].bytes_per_s.value, 1.5 * 1073741824.0 / 12e-3);
  EXPECT_EQ(hw.devices_per_node, 2);
}

TEST(Compare, compares_equal_sizes_only) {
  Hardware a, b;
  a.gemms = {{DType::Float32, GemmLayout::TN, false, 2, 2, 2, 1e-6},
             {DType::Float32, GemmLayout::TN, false, 4, 4, 4, 1e-6}};
  b.gemms = {{DType::Float32, GemmLayout::TN, false, 2, 2, 2, 5e-7},
             {DType::Float32, GemmLayout::TN, false, 8, 8, 8, 1e-9}};
  a.constants["queue_s"] = {4, Origin::Measured, ""};
  b.constants["queue_s"] = {1, Origin::Measured, ""};
  const std::vector<Difference> all = compare(a, b);
  const auto find = [&](const std::string& what) {
    return *std::find_if(all.begin(), all.end(), [&](const Difference& d) { return d.what == what; });
  };
  EXPECT_EQ(find("gemm fp32 TN").points, 1);
  EXPECT_DOUBLE_EQ(find("gemm fp32 TN").ratio, 2);
  EXPECT_DOUBLE_EQ(find("gemm fp32 TN").most, 2);
  EXPECT_DOUBLE_EQ(find("constant queue_s").ratio, 0.25);
}

}  // namespace
}  // namespace triax::bench
