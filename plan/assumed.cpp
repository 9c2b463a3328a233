// Which assumed constants decide the predicted step: each is made 10 % larger, and the step priced again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "plan/prediction.h"
#include "plan/step_time.h"

namespace triax::plan {
namespace {

using bench::Constant;
using bench::Hardware;

void visit(Hardware& h, const std::function<void(const std::string&, Constant&)>& see) {
  see("memory_bytes_per_s", h.memory_bytes_per_s);
  for (auto& [dtype, peak] : h.peak_flops) see(fmt::format("peak_flops.{}", name_of(dtype)), peak);
  for (bench::Link& link : h.links) {
    see(fmt::format("links.{}.latency_s", link.name), link.latency_s);
    see(fmt::format("links.{}.bytes_per_s", link.name), link.bytes_per_s);
    see(fmt::format("links.{}.contention", link.name), link.contention);
  }
  for (auto& [name, kernel] : h.kernels) {
    see(fmt::format("kernels.{}.per_s", name), kernel.per_s);
    see(fmt::format("kernels.{}.floor_s", name), kernel.floor_s);
  }
  for (auto& [name, constant] : h.constants) see("constants." + name, constant);
}

void visit(Software& s, const std::function<void(const std::string&, Constant&)>& see) {
  see("program.launch_s", s.launch_s);
  see("program.host_norm", s.host_norm);
  see("program.step_s", s.step_s);
  see("program.micro_batch_s", s.micro_batch_s);
  see("program.message_s", s.message_s);
  see("program.collective_s", s.collective_s);
  see("program.shard_bytes_per_s", s.shard_bytes_per_s);
  see("program.optimizer_bytes", s.optimizer_bytes);
  see("program.logit_bytes", s.logit_bytes);
  see("program.elementwise", s.elementwise);
}

}  // namespace

std::vector<AssumedConstant> assumed_that_matter(const io::RunOptions& options, const Hardware& hardware,
                                                 double least) {
  const StepShape shape = shape_of(options);
  Hardware machine = with_defaults(hardware, shape.dtype);
  Software program = *find_software("triax");
  const auto step_s = [&] { return step_time(Pricing(machine, program, shape.dtype), shape).step_s; };
  const double before = step_s();
  std::vector<AssumedConstant> all;
  const auto see = [&](const std::string& name, Constant& constant) {
    if (constant.origin != bench::Origin::Assumed || constant.value == 0) return;
    const Constant was = constant;
    constant.value *= 1.1;
    const double change = step_s() / before - 1;
    constant = was;
    if (std::abs(change) >= least) all.push_back({name, was, change});
  };
  visit(machine, see);
  visit(program, see);
  std::stable_sort(all.begin(), all.end(), [](const AssumedConstant& a, const AssumedConstant& b) {
    return std::abs(a.step_change) > std::abs(b.step_change);
  });
  return all;
}

}  // namespace triax::plan
