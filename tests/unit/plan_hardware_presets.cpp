// Presets: complete enough for the cost model, every number with its source, nothing that pretends to be measured.
#include <gtest/gtest.h>

#include <set>

#include "plan/hardware_presets.h"

namespace triax::plan {
namespace {

using bench::Constant;
using bench::Hardware;

std::vector<Constant> constants_of(const Hardware& h) {
  std::vector<Constant> all{h.memory_bytes, h.memory_bytes_per_s};
  for (const auto& [dtype, peak] : h.peak_flops) all.push_back(peak);
  for (const bench::Link& link : h.links) {
    for (const Constant& c : {link.latency_s, link.bytes_per_s, link.ports_per_domain, link.contention}) {
      all.push_back(c);
    }
  }
  for (const auto& [name, kernel] : h.kernels) {
    all.push_back(kernel.per_s);
    all.push_back(kernel.floor_s);
  }
  for (const auto& [name, constant] : h.constants) all.push_back(constant);
  return all;
}

TEST(HardwarePresets, every_constant_names_its_source_and_none_is_measured) {
  std::set<std::string> names;
  for (const Hardware& h : hardware_presets()) {
    SCOPED_TRACE(h.name);
    EXPECT_TRUE(names.insert(h.name).second);
    EXPECT_EQ(find_hardware(h.name), &h);
    EXPECT_EQ(h.description.rfind("published, unmeasured", 0), 0u);
    for (const Constant& c : constants_of(h)) {
      EXPECT_FALSE(c.source.empty());
      EXPECT_GE(c.value, 0);
      EXPECT_NE(c.origin, bench::Origin::Measured) << c.source;
    }
    for (const char* kernel : {"gemm", "attention", "attention_backward", "norm", "activation", "adamw", "copy"}) {
      EXPECT_GT(h.kernels.at(kernel).per_s.value, 0) << kernel;
    }
  }
}

// Levels widen from the device outwards, each slower than the one inside it; the last one spans the cluster.
TEST(HardwarePresets, links_are_a_hierarchy) {
  for (const Hardware& h : hardware_presets()) {
    SCOPED_TRACE(h.name);
    ASSERT_GE(h.links.size(), 2u);
    EXPECT_EQ(h.links.back().ranks, 0);
    for (size_t i = 0; i + 1 < h.links.size(); ++i) {
      EXPECT_GE(h.links[i].ranks, h.devices_per_node);
      EXPECT_GT(h.links[i].bytes_per_s.value, h.links[i + 1].bytes_per_s.value);
    }
  }
}

TEST(HardwarePresets, published_figures_stand_as_published) {
  const Hardware& selene = *find_hardware("selene");
  EXPECT_EQ(selene.name, "a100-80gb");
  EXPECT_EQ(selene.peak_flops.at(DType::BFloat16).value, 312e12);
  EXPECT_EQ(selene.memory_bytes.value, 80.0 * (1 << 30));
  EXPECT_EQ(selene.links[1].ports_per_domain.value, 8);
  EXPECT_EQ(find_hardware("a100-40gb")->memory_bytes_per_s.value, 1.555e12);
  EXPECT_FALSE(find_hardware("v100")->peak_flops.contains(DType::BFloat16));
  EXPECT_EQ(find_hardware("v100")->devices_per_node, 16);
  EXPECT_EQ(find_hardware("4090")->links[1].ports_per_domain.value, 1);
  EXPECT_EQ(find_hardware("gb200-nvl72")->links[0].ranks, 72);
  EXPECT_EQ(find_hardware("h101"), nullptr);
}

TEST(HardwarePresets, list_shows_each_with_its_links) {
  const std::string list = list_hardware();
  EXPECT_NE(list.find("a100-80gb      80 GiB   312 bf16 TFLOP/s  nvlink 300 GB/s x 8  infiniband 24 GB/s x 8 ports"),
            std::string::npos)
      << list;
  EXPECT_NE(list.find("v100-dgx2      32 GiB   125 fp16 TFLOP/s"), std::string::npos) << list;
}

}  // namespace
}  // namespace triax::plan
