#include "plan/hardware_presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/units.h"
#include "plan/papers/constants.h"

namespace triax::plan {
namespace {

using bench::assumed;
using bench::Constant;
using bench::Hardware;
using bench::Link;
using bench::Origin;

Constant published(double value, const char* source) { return {value, Origin::Published, source}; }

constexpr const char* kNcclModel = "NCCL's tuning table (src/graph/tuning.cc), LL128";
constexpr const char* kCalculonOverlap = "Calculon's system files (arXiv 2305.18068): share of the SMs that NCCL takes";
constexpr const char* kNicOf24 = "nccl-tests doc: 24 GB/s of a 200 Gb/s port";
constexpr const char* kNicOf47 = "nccl-tests issue 290: 46 to 48 GB/s of a 400 Gb/s port";

Link nvlink(int ranks, Constant bytes_per_s) {
  return {"nvlink",
          ranks,
          published(1.9e-6, kNcclModel),
          std::move(bytes_per_s),
          published(0, "NVSwitch: every device has its own port"),
          published(0.15, kCalculonOverlap)};
}

/// The network between nodes with `ports` adapters of bytes_per_s each in one domain of the level below.
Link infiniband(int ports, Constant bytes_per_s, const char* source) {
  return {"infiniband",
          0,
          published(4e-6, kNcclModel),
          std::move(bytes_per_s),
          published(ports, source),
          published(0.02, kCalculonOverlap)};
}

/// What no datasheet says: shares of the peak and of the memory's bandwidth that kernels reach, and what every launch
/// costs. `gemm` is the share of the 16-bit peak.
void add_kernels(Hardware& h, Constant gemm, Constant gemm_floor) {
  const DType half = h.peak_flops.contains(DType::BFloat16) ? DType::BFloat16 : DType::Float16;
  const double peak = h.peak_flops.at(half).value;
  const double memory = h.memory_bytes_per_s.value;
  gemm.value *= peak;
  h.kernels["gemm"] = {gemm, std::move(gemm_floor)};
  const Constant floor = assumed(4e-6, "3 to 6 microseconds a kernel launch");
  h.kernels["attention"] = {assumed(0.55 * peak, "FlashAttention-2 forward, 50 to 73 % of an A100 (arXiv 2307.08691)"),
                            floor};
  h.kernels["attention_backward"] = {
      assumed(0.45 * peak, "FlashAttention-2 backward, 43 to 63 % of an A100 (arXiv 2307.08691)"), floor};
  for (const char* name : {"norm", "activation", "adamw", "copy", "cross_entropy"}) {
    h.kernels[name] = {assumed(0.8 * memory, "80 % of the memory's bandwidth"), floor};
  }
  h.constants["small_tile_share"] =
      assumed(0.9, "speed of a GEMM's 128 x 128 tile against 256 x 128, by the operands that each loads per product");
  h.constants["split_depth"] =
      assumed(256, "elements of k that a cut of a GEMM's sum costs: filling its pipeline again");
  h.constants["runtime_bytes"] = assumed(1.6 * kGiB, "CUDA context, cuBLAS and NCCL buffers of a rank");
}

/// Constants of the device that published runs were fitted on (plan/papers/constants.cpp, docs/cost-model.md); `scope`
/// names it there. With `instead`, of another device of its kind: assumed, for that reason.
void add_fitted(Hardware& h, const std::string& scope, const char* instead = nullptr) {
  const DType half = h.peak_flops.contains(DType::BFloat16) ? DType::BFloat16 : DType::Float16;
  const double peak = h.peak_flops.at(half).value;
  const double memory = h.memory_bytes_per_s.value;
  const auto passes = [&](const std::function<void(bench::Throughput&)>& set) {
    for (const char* name : {"norm", "activation", "adamw", "copy", "cross_entropy"}) set(h.kernels[name]);
  };
  for (const PaperConstant& c : paper_constants()) {
    if (c.scope != scope) continue;
    Constant constant{c.value, c.origin, c.origin == Origin::Fitted ? "published runs: " + c.source : c.source};
    if (instead != nullptr) constant = {c.value, Origin::Assumed, instead};
    const auto times = [&](double factor) {
      Constant scaled = constant;
      scaled.value *= factor;
      return scaled;
    };
    if (c.name == "gemm_share_of_peak") h.kernels["gemm"].per_s = times(peak);
    if (c.name == "gemm_floor_s") h.kernels["gemm"].floor_s = constant;
    if (c.name == "gemm_memory_share") h.constants["gemm_bytes_per_s"] = times(memory);
    if (c.name == "memory_share") passes([&](bench::Throughput& t) { t.per_s = times(memory); });
    if (c.name == "kernel_floor_s") passes([&](bench::Throughput& t) { t.floor_s = constant; });
    if (c.name == "attention_flops") h.kernels["attention"].per_s = constant;
    if (c.name == "attention_backward_flops") h.kernels["attention_backward"].per_s = constant;
    if (c.name == "nvlink_bytes_per_s") h.links.front().bytes_per_s = constant;
    if (c.name == "nvlink_latency_s") h.links.front().latency_s = constant;
    if (c.name == "nic_bytes_per_s") h.links.back().bytes_per_s = constant;
    if (c.name == "nic_latency_s") h.links.back().latency_s = constant;
    for (const char* name : {"collective_copy_s_per_byte", "collective_base_s", "collective_fill_bytes",
                             "collective_fill_s_per_byte", "port_share", "unaligned_share"}) {
      if (c.name == name) h.constants[name] = constant;
    }
  }
}

struct Peaks {
  double half = 0, fp32 = 0, fp64 = 0, fp8 = 0;  ///< TFLOP/s, dense; 0: none
  bool bf16 = true;
};

Hardware device(const char* name, const char* description, int devices_per_node, double memory_gib, double memory_tbps,
                int multiprocessors, const Peaks& peaks, const char* source) {
  Hardware h;
  h.name = name;
  h.description = std::string("published, unmeasured: ") + description;
  h.device = "cuda";
  h.devices_per_node = devices_per_node;
  h.memory_bytes = published(memory_gib * kGiB, source);
  h.memory_bytes_per_s = published(memory_tbps * kTera, source);
  h.peak_flops[DType::Float16] = published(peaks.half * kTera, source);
  if (peaks.bf16) h.peak_flops[DType::BFloat16] = published(peaks.half * kTera, source);
  h.peak_flops[DType::Float32] = published(peaks.fp32 * kTera, source);
  h.peak_flops[DType::Float64] = published(peaks.fp64 * kTera, source);
  h.constants["multiprocessors"] = published(multiprocessors, source);
  if (peaks.fp8 > 0) h.peak_flops[DType::Float8E4M3] = published(peaks.fp8 * kTera, source);
  return h;
}

Hardware v100_dgx2() {
  constexpr const char* kSheet = "NVIDIA DGX-2 datasheet, 16 x V100 SXM3 32 GB";
  Hardware h = device("v100-dgx2", "DGX-2, 16 x V100 32 GB, 8 x 100 Gb/s InfiniBand (ZeRO, Megatron 2019)", 16, 32, 0.9,
                      80, {125, 15.7, 7.8, 0, false}, kSheet);
  h.links = {nvlink(16, published(134.5 * kGiga, "vTrain's NCCL table, V100, 8 ranks, all-reduce busbw at 1 GiB")),
             infiniband(8, assumed(11.75 * kGiga, "94 % of 12.5 GB/s, as a 200 Gb/s port reaches"),
                        "arXiv 1910.02054 section 10.1: 800 Gb/s between nodes")};
  add_kernels(h, assumed(0.75, "share of peak that large fp16 GEMMs reach"), assumed(8e-6, "as on an A100"));
  h.constants["devices_per_switch"] = published(2, kSheet);
  add_fitted(h, "v100");
  return h;
}

Hardware a100(const char* name, const char* description, double memory_gib, double memory_tbps, const char* sheet) {
  Hardware h = device(name, description, 8, memory_gib, memory_tbps, 108, {312, 19.5, 9.7, 0, true}, sheet);
  h.links = {
      nvlink(8, published(229.35 * kGiga, "vTrain's NCCL table, A100, 8 ranks, all-reduce busbw at 1 GiB")),
      infiniband(8, published(24 * kGiga, kNicOf24), "arXiv 2104.04473 section 5: 8 x 200 Gb/s HDR per DGX A100")};
  h.constants["devices_per_switch"] = published(2, "DGX A100 system topology: two devices and two adapters a switch");
  add_kernels(h, assumed(0.75, "share of peak that large bf16 GEMMs reach"), assumed(8e-6, "as published GEMM times"));
  add_fitted(h, "a100");
  return h;
}

/// H100 and later: NCCL's ring figure; NVLink SHARP raises all-reduce.
void add_hopper_links(Hardware& h, Constant ring, Constant sharp, const char* nics) {
  h.links = {nvlink(8, std::move(ring)), infiniband(8, published(47 * kGiga, kNicOf47), nics)};
  h.constants["nvlink_sharp_all_reduce_bytes_per_s"] = std::move(sharp);
}

/// `instead`: why figures fitted on H100 runs stand for this device, where it is another one.
Hardware hopper(const char* name, const char* description, double memory_gib, double memory_tbps, const char* sheet,
                const char* instead = nullptr) {
  Hardware h = device(name, description, 8, memory_gib, memory_tbps, 132, {989.4, 67, 34, 1978.9, true}, sheet);
  add_hopper_links(h, published(370 * kGiga, "nccl-tests issue 212: ring, 370 of 450 GB/s"),
                   published(480 * kGiga, "nccl-tests issue 212: all-reduce over NVLink SHARP"),
                   "DGX H100 datasheet: 8 x 400 Gb/s ConnectX-7");
  add_kernels(h, assumed(0.72, "share of peak that large bf16 GEMMs reach at the power limit"),
              assumed(8e-6, "as on an A100"));
  add_fitted(h, "h100", instead);
  return h;
}

constexpr Peaks kBlackwell{2250, 75, 37, 4500, true};

Hardware b200() {
  Hardware h = device("b200", "DGX B200, 8 x B200 180 GB, 8 x 400 Gb/s", 8, 180, 8.0, 148, kBlackwell,
                      "NVIDIA DGX B200 datasheet, an eighth of the system's figures");
  add_hopper_links(
      h, assumed(741 * kGiga, "82 % of 900 GB/s, the share that rings reach on H100"),
      assumed(900 * 0.74 * kGiga * 8 / 7, "NCCL's efficiency of NVLink SHARP on Blackwell, 0.74 (tuning.cc)"),
      "DGX B200 datasheet: 8 x 400 Gb/s ConnectX-7");
  add_kernels(h, assumed(0.72, "as on H100"), assumed(8e-6, "as on an A100"));
  return h;
}

Hardware gb200_nvl72() {
  Hardware h =
      device("gb200-nvl72", "GB200 NVL72 racks, 72 x B200 186 GB in one NVLink domain of 18 nodes", 4, 186, 8.0, 152,
             {2500, 80, 40, 5000, true}, "NVIDIA GB200 NVL72 datasheet, a 72nd of the rack's figures");
  h.links = {nvlink(72, assumed(741 * kGiga, "82 % of 900 GB/s, the share that rings reach on H100")),
             infiniband(72, published(47 * kGiga, kNicOf47), "GB200 NVL72: one 400 Gb/s ConnectX-7 for each device")};
  add_kernels(h, assumed(0.72, "as on H100"), assumed(8e-6, "as on an A100"));
  return h;
}

Hardware rtx4090() {
  Hardware h =
      device("rtx4090", "8 x RTX 4090 24 GB on PCIe 4.0, one 25 Gb/s Ethernet port per node", 8, 24, 1.008, 128,
             {165.2, 82.6, 1.29, 330.3, true}, "NVIDIA Ada GPU architecture paper, RTX 4090, fp32 accumulate");
  const Constant none = published(0, "every device has its own slot");
  h.links = {{"pcie", 8, published(2.5e-6, "NCCL's tuning table (src/graph/tuning.cc), LL128"),
              assumed(12 * kGiga, "31.5 GB/s of PCIe 4.0 x16; GeForce has no peer-to-peer, so through host memory"),
              none, assumed(0.1, "copies through host memory")},
             {"ethernet", 0, assumed(20e-6, "TCP over 25 Gb/s Ethernet"),
              assumed(2.9 * kGiga, "93 % of 3.125 GB/s: frames and TCP"), assumed(1, "one 25 Gb/s port per node"),
              assumed(0.02, "as InfiniBand")}};
  add_kernels(h, assumed(0.85, "share of peak that large bf16 GEMMs reach"), assumed(8e-6, "as on an A100"));
  return h;
}

/// Short names of presets.
const std::map<std::string, std::string>& short_names() {
  static const std::map<std::string, std::string> kNames{
      {"v100", "v100-dgx2"}, {"dgx-2", "v100-dgx2"}, {"a100", "a100-80gb"},   {"selene", "a100-80gb"},
      {"h100-80gb", "h100"}, {"4090", "rtx4090"},    {"gb200", "gb200-nvl72"}};
  return kNames;
}

}  // namespace

const std::vector<bench::Hardware>& hardware_presets() {
  static const std::vector<Hardware> kPresets{
      v100_dgx2(),
      a100("a100-80gb", "DGX A100 / Selene, 8 x A100 SXM 80 GB, 8 x 200 Gb/s HDR", 80, 2.039,
           "NVIDIA A100 80GB SXM datasheet"),
      a100("a100-40gb", "DGX A100, 8 x A100 SXM 40 GB, 8 x 200 Gb/s HDR", 40, 1.555, "NVIDIA A100 40GB SXM datasheet"),
      hopper("h100", "DGX H100, 8 x H100 SXM 80 GB, 8 x 400 Gb/s NDR", 80, 3.35, "NVIDIA H100 SXM datasheet, dense"),
      hopper("h200", "HGX H200, 8 x H200 SXM 141 GB, 8 x 400 Gb/s NDR", 141, 4.8, "NVIDIA H200 SXM datasheet, dense",
             "fitted on H100 runs: the same chip"),
      b200(),
      gb200_nvl72(),
      rtx4090()};
  return kPresets;
}

const bench::Hardware* find_hardware(const std::string& name) {
  const auto full = short_names().find(name);
  const std::string& wanted = full == short_names().end() ? name : full->second;
  const auto& all = hardware_presets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Hardware& h) { return h.name == wanted; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Hardware& h : hardware_presets()) names.push_back(h.name);
  for (const auto& [name, full] : short_names()) names.push_back(name);
  return names;
}

std::string list_hardware() {
  std::string text;
  for (const Hardware& h : hardware_presets()) {
    const bool bf16 = h.peak_flops.contains(DType::BFloat16);
    const double peak = h.peak_flops.at(bf16 ? DType::BFloat16 : DType::Float16).value;
    text += fmt::format("{:<12} {:>4.0f} GiB {:>5.0f} {} TFLOP/s", h.name, h.memory_bytes.value / kGiB, peak / kTera,
                        bf16 ? "bf16" : "fp16");
    for (const Link& link : h.links) {
      text += fmt::format("  {} {:.4g} GB/s", link.name, link.bytes_per_s.value / kGiga);
      if (link.ranks > 0) text += fmt::format(" x {}", link.ranks);
      if (link.ports_per_domain.value > 0) text += fmt::format(" x {:.0f} ports", link.ports_per_domain.value);
    }
    text += fmt::format("\n{:<12} {}\n", "", h.description);
  }
  return text;
}

}  // namespace triax::plan
