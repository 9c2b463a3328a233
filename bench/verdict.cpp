#include "bench/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/kernel_calls.h"

namespace triax::bench {
namespace {

constexpr double kGood = 0.6;      ///< no causes are sought above this share
constexpr double kUnsteady = 0.2;  ///< coefficient of variation

/// First number of a file of /sys; 0 when it cannot be read.
double number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value && value > 0 ? value : 0;
}

void add_unsteady(Verdict& v, double cv) {
  if (cv > kUnsteady) v.causes.push_back(fmt::format("unsteady (cv {:.0f} %): other work on these cores", 100 * cv));
}

constexpr const char* kSmall = "small: latency decides";

bool waits_for_latency(const CollectiveRow& row, double least_time_s) {
  return least_time_s > 0 && row.training().time.median_s < 3 * least_time_s;
}

/// What both kinds of machine say first.
Verdict share_of(const CollectiveRow& row, const Peak& peak) {
  Verdict v;
  v.of = peak.of;
  if (peak.per_s > 0) v.share = 1e9 * row.busbw_gbps(row.training()) / peak.per_s;
  if (row.out_of_place.wrong > 0 || row.in_place.wrong > 0) {
    v.causes.push_back("wrong elements: the speed means nothing");
  }
  return v;
}

}  // namespace

std::string Verdict::text() const {
  if (share <= 0) return causes.empty() ? "no peak known" : fmt::format("{}", fmt::join(causes, "; "));
  const std::string head = fmt::format("{:.0f} % of {}", 100 * share, of);
  return causes.empty() ? head : fmt::format("{}: {}", head, fmt::join(causes, "; "));
}

Peak copy_peak(Operands& operands, comm::Communicator& group, int64_t elements, const std::function<void()>& settle) {
  const KernelPoint copy{"copy", DType::Float32, 1, elements, 0};
  const Statistics time = time_cases({kernel_call(operands, copy, 1)},
                                     {.rounds = 3, .sample_s = 1e-3, .most_calls = 10, .settle = settle}, &group)[0];
  return {bytes_of(copy) / 2 / time.median_s, "memory copy"};
}

Peak adapter_peak() {
  Peak best{0, "adapter"};
  std::error_code ignored;
  for (const auto& adapter : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    const double gigabits = number_in(adapter.path() / "ports/1/rate");
    best.per_s = std::max(best.per_s, gigabits * 1e9 / 8);
  }
  if (best.per_s > 0) return best;
  for (const auto& adapter : std::filesystem::directory_iterator("/sys/class/net", ignored)) {
    best.per_s = std::max(best.per_s, number_in(adapter.path() / "speed") * 1e6 / 8);
  }
  return best;
}

Verdict verdict_of(const CollectiveRow& row, const Peak& peak, const Circumstances& around) {
  Verdict v = share_of(row, peak);
  if (v.share >= kGood) return v;
  const PlaceTimes& times = row.training();
  if (waits_for_latency(row, around.least_time_s)) v.causes.push_back(kSmall);
  if (around.ranks_on_host > around.cores) {
    v.causes.push_back(fmt::format("{} ranks share {} cores", around.ranks_on_host, around.cores));
  }
  add_unsteady(v, times.time.cv);
  const double needed = comm::sent_bytes(row.op, row.size_bytes, row.ranks) * row.ranks;
  const double sent = row.inside_bytes + row.across_bytes;
  if (!row.converted && sent > 1.2 * needed) {
    v.causes.push_back(fmt::format("the algorithm sends {:.1f} times the bytes that busbw counts", sent / needed));
  }
  if (around.place == BufferPlace::Heap && row.nodes == 1) {
    v.causes.push_back("ordinary memory: copies through staging buffers");
  }
  if (row.nodes > 1) v.causes.push_back("network: look at the adapter MPI chose, NUMA binding, other jobs' traffic");
  return v;
}

Verdict verdict_on_gpu(const CollectiveRow& row, const Peak& link, double least_time_s) {
  Verdict v = share_of(row, link);
  if (v.share >= kGood) return v;
  const PlaceTimes& times = row.training();
  if (waits_for_latency(row, least_time_s)) {
    v.causes.push_back(kSmall);
    return v;
  }
  if (times.time.cv > kUnsteady) {
    v.causes.push_back(fmt::format("unsteady (cv {:.0f} %): other work on these GPUs or links", 100 * times.time.cv));
  }
  if (row.op == comm::Operation::Send) v.causes.push_back("few multiprocessors carry a message, as in training");
  v.causes.push_back(row.nodes > 1 ? "network: GPUDirect RDMA off, adapters far from their GPUs (NCCL_DEBUG=INFO says)"
                                   : "GPUs do not reach each other directly (nvidia-smi topo -m, NCCL_DEBUG=INFO say)");
  return v;
}

Verdict verdict_on_gpu(double per_s, double time_s, const Peak& peak) {
  constexpr double kShort_s = 20e-6;
  Verdict v;
  v.of = peak.of;
  if (peak.per_s > 0) v.share = per_s / peak.per_s;
  if (v.share < kGood && time_s < kShort_s) v.causes.push_back("short: launching it costs as much");
  return v;
}

Verdict verdict_of(const GemmPoint& point, const Machine& machine, int threads, double cv) {
  Verdict v;
  v.of = "core peak";
  const int width = static_cast<int>(size_of(point.dtype));
  const double peak = core_peak_flops(machine, width) * std::min(threads, std::max(machine.allowed, 1));
  v.share = flops_of(point) / point.time_s / peak;
  if (v.share >= kGood) return v;
  const int64_t least = std::min({point.m, point.n, point.k});
  if (flops_of(point) < 4e6) v.causes.push_back("small: the library's call costs as much");
  if (least < 128) v.causes.push_back(fmt::format("thin: one side is {}", least));
  if (bytes_of(point) > 0 && flops_of(point) / bytes_of(point) < 16) {
    v.causes.push_back(fmt::format("{:.0f} FLOP per byte: memory decides", flops_of(point) / bytes_of(point)));
  }
  if (point.accumulate) v.causes.push_back("C is read and written besides the product");
  if (width == 2 && !machine.bf16) v.causes.push_back("no 16-bit instructions: computed in fp32");
  if (threads > machine.allowed) v.causes.push_back(fmt::format("{} threads on {} cores", threads, machine.allowed));
  add_unsteady(v, cv);
  return v;
}

Verdict verdict_of(const KernelPoint& point, const Machine& machine, int threads, double memory_per_s, double cv) {
  Verdict v;
  const double flops = flops_of(point);
  if (flops > 0) {
    v.of = "core peak";
    v.share = flops / point.time_s / (core_peak_flops(machine, static_cast<int>(size_of(point.dtype))) * threads);
    if (v.share < kGood / 2 && point.rows < 128 * 128) v.causes.push_back("short sequence");
    if (v.share < kGood / 2 && point.cols < 64) v.causes.push_back("small head dimension");
  } else {
    v.of = "memory copy";
    v.share = memory_per_s > 0 ? bytes_of(point) / point.time_s / memory_per_s : 0;
    if (v.share < kGood && bytes_of(point) < 1 << 16) v.causes.push_back("small: the call costs as much");
    if (v.share < kGood && bytes_of(point) >= 1 << 16) {
      v.causes.push_back(point.cols * point.rows < 1 << 20
                             ? "arithmetic decides, not memory"
                             : "beyond the caches: lines are read before they are written");
    }
  }
  if (v.share < kGood) add_unsteady(v, cv);
  return v;
}

}  // namespace triax::bench
