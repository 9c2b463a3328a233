// Which assumed constants decide the predicted step: each is made 10 % larger, and the step priced again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "plan/prediction.h"

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

double step_of(const io::RunOptions& options, const Hardware& hardware) {
  PredictionOptions cheap;
  cheap.detail = Detail::Cheap;
  return predict(options, hardware, cheap).step_s();
}

}  // namespace

std::vector<AssumedConstant> assumed_that_matter(const io::RunOptions& options, const Hardware& hardware,
                                                 double least) {
  const double before = step_of(options, hardware);
  Hardware changed = hardware;
  std::vector<AssumedConstant> all;
  visit(changed, [&](const std::string& name, Constant& constant) {
    if (constant.origin != bench::Origin::Assumed) return;
    const Constant was = constant;
    constant.value *= 1.1;
    const double change = step_of(options, changed) / before - 1;
    constant = was;
    if (std::abs(change) >= least) all.push_back({name, was, change});
  });
  std::stable_sort(all.begin(), all.end(), [](const AssumedConstant& a, const AssumedConstant& b) {
    return std::abs(a.step_change) > std::abs(b.step_change);
  });
  return all;
}

}  // namespace triax::plan
