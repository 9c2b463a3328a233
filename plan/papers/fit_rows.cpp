#include "plan/papers/fit_rows.h"

#include <cmath>
#include <set>
#include <string>

namespace triax::plan {
namespace {

/// Rows of the small tables that constants were fitted on: at most a third of those at hand.
const std::set<std::string>& fitted_ids() {
  static const std::set<std::string> kIds{"vt_multi_64_512_8_3072_32_30_2048_1_64_1",
                                          "vt_multi_64_512_8_3072_32_30_2048_4_16_1",
                                          "vt_multi_64_512_8_3072_32_30_2048_8_8_1",
                                          "vt_multi_64_512_16_3072_32_30_2048_16_4_1",
                                          "vt_multi_256_1024_4_6144_48_40_2048_8_32_1",
                                          "vt_multi_256_1024_2_6144_48_40_2048_4_32_2",
                                          "vt_multi_256_1024_4_6144_48_40_2048_2_32_4",
                                          "vt_multi_256_1024_2_6144_48_40_2048_8_16_2",
                                          "vt_multi_256_1024_8_6144_48_40_2048_8_4_8",
                                          "m21t1_1.7",
                                          "m19_baseline",
                                          "m21t1_145.6",
                                          "m21t2_zero3_529.6_1120",
                                          "m21f7_single_4",
                                          "m21f11_bs8_8",
                                          "m21f11_bs128_4",
                                          "m21f14_bs512_16,4",
                                          "m21f15_bs128_8,8",
                                          "m21f15_bs128_16,4",
                                          "m21f14_bs512_4,16",
                                          "k22t5_22B_full",
                                          "k22t4_0_forward",
                                          "k22t4_0_backward",
                                          "k22t4_3_backward",
                                          "m20_V100-DGX2_1B",
                                          "m20_A100-DGX_8B",
                                          "mc24_70"};
  return kIds;
}

/// Of the large tables every id whose FNV-1a hash falls into 31 of 100, whatever else the file holds.
bool in_fit(const std::string& id) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return (hash >> 16) % 100 < 31;
}

}  // namespace

void mark_fitted(std::vector<PaperRun>& runs) {
  static const std::set<std::string> kLarge{"vtrain-single", "llmfoundry-fsdp"};
  for (PaperRun& run : runs) {
    if (run.preset == "vtrain-nccl") {
      // 1 MiB, 64 MiB, ...: every third of the sizes 4^k MiB.
      const double third = std::log2(run.bytes / 1048576) / 6;
      run.fitted = std::abs(third - std::round(third)) < 1e-9;
      continue;
    }
    run.fitted = run.published > 0 && run.metric != Metric::Estimated &&
                 (kLarge.contains(run.preset) ? in_fit(run.id) : fitted_ids().contains(run.id));
  }
}

}  // namespace triax::plan
