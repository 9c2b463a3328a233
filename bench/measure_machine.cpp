#include "bench/measure_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/checkpoint_io.h"
#include "bench/gpu_links.h"
#include "bench/kernel_calls.h"
#include "bench/link_tables.h"
#include "bench/machine.h"
#include "bench/measure_gpu.h"
#include "bench/overlap.h"
#include "bench/trainer_costs.h"
#include "bench/verdict.h"
#include "comm/process_grid.h"
#include "train/run_device.h"

namespace triax::bench {
namespace {

constexpr const char* kCommand = "bench all";

Constant measured(double value) { return {value, Origin::Measured, kCommand}; }

/// Everything that stands while the tables are measured.
struct Bench {
  Bench(comm::MpiSession& session, const MachineBench& given)
      : options(given),
        budget(given.budget_s, nullptr),
        machine(this_machine()),
        threads(threads_of_rank(session.local_size())),
        device(session, given.device, threads, given.search),
        grid(session, shape_of(session.size()), device.groups()),
        on{device.discrete(), device.groups(), given.registered},
        arena(on.device != nullptr ? on_memory() : grid.memory()),
        operands(device.get(), arena) {
    budget = Budget(given.budget_s, &grid.world());
    if (on.device != nullptr) timing.settle = [this] { device.get().synchronize(); };
    if (emulated()) timing.rounds = 1, timing.sample_s = 0;  // its times mean nothing, and its kernels are slow
  }
  static comm::GridOptions shape_of(int ranks) {
    comm::GridOptions grid;
    grid.shape.data = ranks;
    return grid;
  }
  MemoryProvider& on_memory() const { return on.groups != nullptr ? on.memory() : on.device->memory(); }
  void say(const std::string& what) const {
    if (options.say) options.say(fmt::format("{:5.1f} s: {}", budget.elapsed_s(), what));
  }
  bool on_gpu() const { return on.device != nullptr; }
  bool emulated() const { return options.device == "cuda-emulated"; }
  /// A size for the host, for a GPU, and for an emulated one.
  int64_t size(int64_t host, int64_t gpu, int64_t emulation) const {
    return !on_gpu() ? host : emulated() ? emulation : gpu;
  }

  const MachineBench& options;
  TimingOptions timing{.rounds = 5, .sample_s = 5e-4, .most_calls = 200};
  Budget budget;
  Machine machine;
  int threads;
  train::RunDevice device;
  comm::ProcessGrid grid;
  OnDevice on;
  Arena arena;
  Operands operands;
};

/// The largest rate among the points of a kernel, and the least time.
template <class Amount>
Throughput throughput(const std::vector<KernelPoint>& points, DType dtype, const char* kernel, Amount amount) {
  Throughput t{{0, Origin::Fitted, fmt::format("{}: best of {}", kCommand, kernel)},
               {0, Origin::Fitted, fmt::format("{}: shortest of {}", kCommand, kernel)}};
  for (const KernelPoint& p : points) {
    if (p.kernel != kernel || p.dtype != dtype) continue;
    const double rate = amount(p) / p.time_s;
    t.per_s.value = std::max(t.per_s.value, rate);
    t.floor_s.value = t.floor_s.value == 0 ? p.time_s : std::min(t.floor_s.value, p.time_s);
  }
  return t;
}

void summarise(Hardware& hw, DType dtype) {
  const auto bytes = [](const KernelPoint& p) { return bytes_of(p); };
  const auto flops = [](const KernelPoint& p) { return flops_of(p); };
  const std::pair<const char*, const char*> names[]{{"norm", "layer_norm_forward"},
                                                    {"activation", "gelu_forward"},
                                                    {"adamw", "adamw"},
                                                    {"copy", "copy"},
                                                    {"cross_entropy", "cross_entropy"}};
  for (const auto& [name, kernel] : names) hw.kernels[name] = throughput(hw.kernel_points, dtype, kernel, bytes);
  hw.kernels["attention"] = throughput(hw.kernel_points, dtype, "attention_forward", flops);
  hw.kernels["attention_backward"] = throughput(hw.kernel_points, dtype, "attention_backward", flops);
  std::erase_if(hw.kernels, [](const auto& entry) { return entry.second.per_s.value <= 0; });  // left out
  Throughput gemm{{0, Origin::Fitted, "bench all: best GEMM"}, {0, Origin::Fitted, "bench all: shortest GEMM"}};
  for (const GemmPoint& p : hw.gemms) {
    Constant& peak = hw.peak_flops.try_emplace(p.dtype, measured(0)).first->second;
    peak.value = std::max(peak.value, flops_of(p) / p.time_s);
    if (p.dtype != dtype) continue;
    gemm.per_s.value = peak.value;
    gemm.floor_s.value = gemm.floor_s.value == 0 ? p.time_s : std::min(gemm.floor_s.value, p.time_s);
  }
  if (gemm.per_s.value > 0) hw.kernels["gemm"] = gemm;
}

/// Time of a kernel with all ranks at work over its time with one rank at work.
void measure_sharing(Bench& b, DType dtype, Hardware& hw) {
  std::vector<std::function<void()>> calls{gemm_call(b.operands, {dtype, GemmLayout::TN, false, 256, 512, 512, 0}),
                                           kernel_call(b.operands, {"copy", dtype, 1, int64_t{1} << 22, 0}, 1),
                                           kernel_call(b.operands, {"adamw", dtype, 1, int64_t{1} << 20, 0}, 1)};
  const std::vector<Statistics> together = time_cases(calls, b.timing, &b.grid.world());
  std::vector<Statistics> alone;
  b.grid.world().barrier();
  if (b.grid.world_rank() == 0) alone = time_cases(calls, b.timing, nullptr);
  b.grid.world().barrier();
  const char* const names[]{"sharing_gemm", "sharing_copy", "sharing_adamw"};
  for (size_t i = 0; i < calls.size(); ++i) {
    double ratio = alone.empty() ? 0 : undisturbed_s(together[i]) / undisturbed_s(alone[i]);
    b.grid.world().broadcast(Tensor(&ratio, DType::Float64, {1}), 0).wait();
    hw.constants[names[i]] = measured(ratio);
  }
}

void measure_tables(Bench& b, Hardware& hw) {
  const std::vector<DType>& dtypes = b.options.dtypes;
  comm::Communicator* world = &b.grid.world();
  std::vector<GemmPoint> own = b.options.shapes;
  std::vector<KernelPoint> own_kernels = b.options.kernels;
  measure_gemms(b.operands, b.timing, b.budget, world, own);
  measure_kernels(b.operands, b.timing, b.budget, world, own_kernels);
  // What one point may cost: a hundredth of the budget for its seven calls.
  const double most_s = b.budget.total_s() / 700;
  const PlanFor what = b.on_gpu() ? PlanFor::Gpu : PlanFor::Host;
  CallLimits limits{0.5 * b.threads * core_peak_flops(b.machine, 4) * most_s, kAnyElements};
  if (b.on_gpu()) {
    constexpr int64_t kShareOfMemory = 128;  // an optimizer's call has 5 tensors of 4 bytes an element
    limits = call_limits(b.operands, b.timing, *world, most_s);
    hw.constants["runtime_bytes"] = {gpu_runtime_bytes(*b.on.device, b.arena), Origin::Measured,
                                     "GPU memory in use beside tensors, NCCL and cuBLASLt having run"};
    if (b.emulated()) limits = {std::min(limits.most_flops, 1e7), std::min(limits.most_elements, int64_t{1} << 12)};
    limits.most_elements = std::min(limits.most_elements, b.on.device->facts().memory_bytes / kShareOfMemory);
  }
  std::vector<GemmPoint> plan = gemm_plan(dtypes, what, limits.most_flops);
  std::vector<KernelPoint> kernels = kernel_plan(dtypes, what, limits.most_elements);
  const size_t planned = b.options.shapes.size() + b.options.kernels.size() + plan.size() + kernels.size();
  // The coarse half of the kernels, which every prediction needs, comes before the many GEMMs.
  const Budget most_kernels(0.45 * std::max(0.0, b.budget.total_s() - b.budget.elapsed_s()), world);
  measure_kernels(b.operands, b.timing, most_kernels, world, kernels);
  b.say(fmt::format("{} kernel sizes", kernels.size()));
  measure_gemms(b.operands, b.timing, b.budget, world, plan);
  b.say(fmt::format("{} GEMM shapes", plan.size() + own.size()));
  hw.gemms = std::move(own);
  hw.gemms.insert(hw.gemms.end(), plan.begin(), plan.end());
  hw.kernel_points = std::move(own_kernels);
  hw.kernel_points.insert(hw.kernel_points.end(), kernels.begin(), kernels.end());
  hw.environment["left_out"] = std::to_string(planned - hw.gemms.size() - hw.kernel_points.size());
}

/// What it is, and what belongs to no table.
void describe(Bench& b, int ranks, int local_ranks, Hardware& hw) {
  hw.name = b.options.name;
  hw.device = b.on_gpu() ? b.options.device : b.device.get().name();
  hw.environment = environment_of(b.machine, ranks, b.threads);
  hw.constants = trainer_costs();
  hw.constants["core_peak_flops"] = {core_peak_flops(b.machine, 4), Origin::Assumed,
                                     "measured clock x fp32 operations per cycle of the processor's family"};
  if (!b.on_gpu()) {
    hw.devices_per_node = local_ranks;
    hw.description =
        fmt::format("{}, {} ranks of {} threads, measured {}", b.machine.cpu, ranks, b.threads, hw.environment["date"]);
    hw.memory_bytes = {static_cast<double>(b.machine.memory_bytes) / local_ranks, Origin::Measured,
                       "hwloc, shared by the ranks of the node"};
    return;
  }
  const kernels::GpuFacts facts = b.on.device->facts();
  // Ranks that see one GPU each are as many as the node's GPUs that the job has.
  hw.devices_per_node = std::max(facts.visible > 1 && !b.emulated() ? facts.visible : 1, local_ranks);
  hw.description = fmt::format("{}{}, {} ranks, {} of {} GPUs of a node, measured {}",
                               b.emulated() ? std::string(kEmulated) + ": " : "", facts.name, ranks, local_ranks,
                               hw.devices_per_node, hw.environment["date"]);
  hw.environment["gpu"] = facts.name;
  hw.environment["device"] = b.device.describe();
  hw.memory_bytes = {static_cast<double>(facts.memory_bytes), Origin::Measured, "cudaMemGetInfo"};
  hw.constants.merge(gpu_constants(*b.on.device, b.arena, b.grid.world(), b.size(0, 64 << 20, 1 << 18)));
  b.say("launches and copies");
}

/// What joins the GPUs, by the name that presets have; the speed is measured.
std::string link_name(const Bench& b) {
  if (!b.on_gpu()) return "shared-memory";
  if (b.emulated()) return "emulated";
  const std::string of = gpu_link_peak(*b.on.device).of;
  return of == "NVLink" ? "nvlink" : "pcie";
}

void measure_communication(Bench& b, comm::MpiSession& session, Hardware& hw) {
  const DType first = b.options.dtypes.front();
  if (!b.options.links) {
    const Constant nothing{0, Origin::Assumed, "one rank measures no link"};
    Constant speed = hw.constants.at("device_to_host_bytes_per_s");
    speed.origin = Origin::Assumed;
    speed.source = "one rank measures no link: the GPU's copy to its host stands for it";
    Link& link = hw.links.emplace_back();
    link.name = "pcie";
    link.ranks = hw.devices_per_node;
    link.latency_s = {10e-6, Origin::Assumed, "one rank measures no link"};
    link.bytes_per_s = speed;
    link.ports_per_domain = link.contention = nothing;
    return;
  }
  LinkMeasure how{b.timing, b.options.most_bytes, b.on, link_name(b), hw.devices_per_node};
  if (how.most_bytes == 0) how.most_bytes = b.size(64 << 20, 256 << 20, 64 << 10);
  const LinkTables links = measure_links(session, b.options.dtypes, how, b.budget);
  hw.collectives = links.collectives;
  hw.links = links.links;
  if (!b.on_gpu()) hw.constants["queue_s"] = links.queue_s;
  b.say(fmt::format("{} collectives", hw.collectives.size()));
  const OverlapRow overlap = measure_overlap(b.grid, b.operands, b.arena, first, b.size(256, 4096, 32),
                                             b.size(8 << 20, 64 << 20, 16 << 10), 5);
  hw.links.front().contention = measured(1 - overlap.hidden());
  hw.constants["overlap_gemm_slowdown"] = measured(overlap.gemm_slowdown());
  hw.constants["overlap_all_reduce_slowdown"] = measured(overlap.collective_slowdown());
  if (!b.on_gpu()) measure_sharing(b, first, hw);
  b.say("overlap and sharing");
}

void measure_checkpoints(Bench& b, Hardware& hw) {
  if (b.options.directory.empty() || !b.budget.leaves(2)) return;
  const CheckpointIo io =
      measure_checkpoint_io(b.grid.world(), b.options.directory, b.size(16 << 20, 64 << 20, 64 << 10), 1);
  hw.constants["checkpoint_write_bytes_per_s"] = measured(io.write_per_s());
  hw.constants["checkpoint_read_bytes_per_s"] = measured(io.read_per_s());
  b.say("checkpoints");
}

}  // namespace

Hardware measure_machine(comm::MpiSession& session, const MachineBench& options) {
  Bench b(session, options);
  Hardware hw;
  describe(b, session.size(), session.local_size(), hw);
  b.say("costs of the trainer itself");
  measure_communication(b, session, hw);
  hw.memory_bytes_per_s =
      measured(2 * copy_peak(b.operands, b.grid.world(), b.size(4 << 20, 64 << 20, 1 << 12), b.timing.settle).per_s);
  measure_checkpoints(b, hw);
  measure_tables(b, hw);
  summarise(hw, options.dtypes.front());
  b.grid.world().barrier();
  return hw;
}

}  // namespace triax::bench
