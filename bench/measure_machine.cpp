#include "bench/measure_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/kernel_calls.h"
#include "bench/link_tables.h"
#include "bench/machine.h"
#include "bench/overlap.h"
#include "bench/trainer_costs.h"
#include "bench/verdict.h"
#include "comm/process_grid.h"

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
        grid(session, shape_of(session.size())),
        device(kernels::make_cpu_device({threads})),
        arena(grid.memory()),
        operands(*device, arena) {
    budget = Budget(given.budget_s, &grid.world());
  }
  static comm::GridOptions shape_of(int ranks) {
    comm::GridOptions grid;
    grid.shape.data = ranks;
    return grid;
  }
  void say(const std::string& what) const {
    if (options.say) options.say(fmt::format("{:5.1f} s: {}", budget.elapsed_s(), what));
  }

  const MachineBench& options;
  TimingOptions timing{.rounds = 5, .sample_s = 5e-4, .most_calls = 200};
  Budget budget;
  Machine machine;
  int threads;
  comm::ProcessGrid grid;
  std::unique_ptr<kernels::Device> device;
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
  const double peak = b.threads * core_peak_flops(b.machine, 4);
  std::vector<GemmPoint> plan = gemm_plan(dtypes, 0.5 * peak * b.budget.total_s() / 700);
  std::vector<KernelPoint> kernels = kernel_plan(dtypes);
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

}  // namespace

Hardware measure_machine(comm::MpiSession& session, const MachineBench& options) {
  Bench b(session, options);
  Hardware hw;
  hw.name = options.name;
  hw.device = b.device->name();
  hw.devices_per_node = session.local_size();
  hw.environment = environment_of(b.machine, session.size(), b.threads);
  hw.description = fmt::format("{}, {} ranks of {} threads, measured {}", b.machine.cpu, session.size(), b.threads,
                               hw.environment["date"]);
  hw.memory_bytes = {static_cast<double>(b.machine.memory_bytes) / session.local_size(), Origin::Measured,
                     "hwloc, shared by the ranks of the node"};
  hw.constants = trainer_costs();
  hw.constants["core_peak_flops"] = {core_peak_flops(b.machine, 4), Origin::Assumed,
                                     "measured clock x fp32 operations per cycle of the processor's family"};
  b.say("costs of the trainer itself");
  const LinkTables links = measure_links(session, options.dtypes, b.timing, b.budget, options.most_bytes);
  hw.collectives = links.collectives;
  hw.links = links.links;
  hw.constants["queue_s"] = links.queue_s;
  b.say(fmt::format("{} collectives", hw.collectives.size()));
  const DType first = options.dtypes.front();
  const OverlapRow overlap = measure_overlap(b.grid, b.operands, b.arena, first, 256, int64_t{8} << 20, 5);
  hw.links.front().contention = measured(1 - overlap.hidden());
  measure_sharing(b, first, hw);
  hw.memory_bytes_per_s = measured(2 * copy_peak(b.operands, b.grid.world()).per_s);
  b.say("overlap and sharing");
  measure_tables(b, hw);
  summarise(hw, first);
  b.grid.world().barrier();
  return hw;
}

}  // namespace triax::bench
