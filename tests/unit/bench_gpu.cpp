// What bench makes of GPUs without one: nvidia-smi's words, verdicts, a machine's figures, the sizes of its tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/figures.h"
#include "bench/gpu_links.h"
#include "bench/kernel_calls.h"
#include "bench/kernel_tables.h"
#include "bench/peer_links.h"

namespace triax::bench {
namespace {

TEST(GpuLinks, sums_what_nvidia_smi_says_of_nvlink) {
  const std::string text =
      "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5a4b)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
      "\t Link 2: <inactive>\n";
  EXPECT_DOUBLE_EQ(nvlink_bytes_per_s(text), 2 * 26.562e9);
  EXPECT_EQ(nvlink_bytes_per_s("GPU 0: NVIDIA GeForce RTX 4090\n"), 0);
}

TEST(GpuLinks, knows_the_generations_of_pcie) {
  EXPECT_DOUBLE_EQ(pcie_bytes_per_s("5, 16\n"), 32e9 / 8 * 128 / 130 * 16);
  EXPECT_DOUBLE_EQ(pcie_bytes_per_s("2, 4\n"), 2e9);
  for (const char* bad : {"", "[N/A], [N/A]", "7, 16", "0, 16", "4, 0", "4"})
    EXPECT_EQ(pcie_bytes_per_s(bad), 0) << bad;
}

TEST(GpuLinks, writes_a_uuid_as_nvidia_smi_takes_it) {
  EXPECT_EQ(uuid_text("00112233445566778899aabbccddeeff"), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

CollectiveRow row_of(double median_s, int nodes) {
  CollectiveRow row{.op = comm::Operation::AllReduce, .algorithm = "nccl"};
  row.ranks = 8;
  row.nodes = nodes;
  row.size_bytes = 8'000'000;
  row.in_place.time.samples = 1;
  row.in_place.time.median_s = median_s;
  return row;
}

TEST(GpuVerdict, says_the_share_of_the_link_and_the_cause) {
  const Peak link{200e9, "NVLink"};
  EXPECT_EQ(verdict_on_gpu(row_of(100e-6, 1), link, 0).text(), "70 % of NVLink");  // 2 x 7/8 x 8 MB in 100 us: 140 GB/s
  EXPECT_EQ(verdict_on_gpu(row_of(1e-3, 1), link, 0.5e-3).text(), "7 % of NVLink: small: latency decides");
  EXPECT_NE(verdict_on_gpu(row_of(1e-3, 1), link, 1e-5).text().find("GPUs do not reach each other"), std::string::npos);
  EXPECT_NE(verdict_on_gpu(row_of(1e-3, 2), link, 1e-5).text().find("GPUDirect RDMA"), std::string::npos);
  EXPECT_EQ(verdict_on_gpu(7e11, 1e-3, {1e12, "copy"}).text(), "70 % of copy");
  EXPECT_EQ(verdict_on_gpu(1e11, 5e-6, {1e12, "copy"}).text(), "10 % of copy: short: launching it costs as much");
}

TEST(Figures, are_shares_of_the_machines_best) {
  Hardware hw;
  hw.memory_bytes_per_s = {2e12, Origin::Measured, ""};
  hw.peak_flops[DType::BFloat16] = {4e14, Origin::Measured, ""};
  hw.gemms = {{DType::BFloat16, GemmLayout::TN, false, 100, 100, 100, 1e-8},  // 2e14
              {DType::BFloat16, GemmLayout::TN, false, 100, 100, 50, 1e-8}};  // 1e14: not the best
  hw.kernel_points = {{"copy", DType::Float32, 1, 1000, 8e-9},                // 8 kB: 1e12 bytes/s
                      {"copy", DType::Float32, 1, 10, 1}};                    // smaller: left out
  hw.collectives = {{comm::Operation::AllReduce, 8, 1, 1000, 1e-6, DType::Float32},
                    {comm::Operation::AllReduce, 8, 1, 1'000'000, 1.75e-6, DType::Float32}};
  hw.links = {{"nvlink", 8, {}, {2e12, Origin::Measured, ""}, {}, {}}};
  hw.constants["launch_s"] = {3e-6, Origin::Measured, ""};
  hw.constants["small_tile_share"] = {0.9, Origin::Assumed, ""};
  const std::vector<Figure> all = figures_of(hw);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].what, "copy, read and written");
  EXPECT_DOUBLE_EQ(all[1].value, 200);
  EXPECT_DOUBLE_EQ(all[1].share, 0.5);
  EXPECT_DOUBLE_EQ(all[2].value, 1000);
  EXPECT_DOUBLE_EQ(all[2].share, 0.5);
  EXPECT_EQ(all[3].what, "all_reduce fp32, 8 ranks on 1 node(s)");
  EXPECT_DOUBLE_EQ(all[3].value, 1000);  // 2 x 7/8 x 1 MB in 1.75 us
  EXPECT_DOUBLE_EQ(all[3].share, 0.5);
  EXPECT_DOUBLE_EQ(all[4].value, 1);
  EXPECT_EQ(all[4].unit, "us");
  EXPECT_EQ(all[5].what, "launch_s");
  EXPECT_DOUBLE_EQ(all[5].value, 3);
}

TEST(Plans, keep_to_what_a_call_may_cost) {
  const std::vector<DType> types{DType::BFloat16};
  for (const KernelPoint& p : kernel_plan(types, PlanFor::Gpu, 5000)) {
    const bool attention = flops_of(p) > 0;
    EXPECT_LE(p.rows * p.cols, attention ? 16 * 5000 : 5000) << p.kernel;
  }
  for (const GemmPoint& p : gemm_plan(types, PlanFor::Gpu, 1e6)) EXPECT_LE(flops_of(p), 1e6);
  EXPECT_FALSE(gemm_plan(types, PlanFor::Gpu, 1e6).empty());
  // Every kernel and a GEMM as large as a GPU wants, where nothing forbids it.
  std::set<std::string> names;
  int64_t most = 0;
  for (const KernelPoint& p : kernel_plan(types, PlanFor::Gpu)) {
    names.insert(p.kernel);
    most = std::max(most, p.rows * p.cols);
  }
  EXPECT_EQ(names.size(), kernel_names().size());
  EXPECT_EQ(most, int64_t{8192} * 8192 * 128);
  EXPECT_EQ(kernel_plan(types).size(), kernel_plan(types, PlanFor::Host, kAnyElements).size());
}

TEST(Copies, count_both_ways_together) {
  CopyRow row{CopyKind::BothWays, 0, 1'000'000};
  EXPECT_DOUBLE_EQ(row.gbps(1e-3), 2);
  row.kind = CopyKind::ToDevice;
  EXPECT_DOUBLE_EQ(row.gbps(1e-3), 1);
  EXPECT_EQ(row.gbps(0), 0);
}

}  // namespace
}  // namespace triax::bench
