#include "plan/software.h"

#include <algorithm>

namespace triax::plan {
namespace {

using bench::assumed;
using bench::Constant;
using bench::Origin;

Software triax() {
  Software s;
  s.name = "triax";
  s.description = "this program";
  s.attention = AttentionKernel::Flash;
  s.attention_share = 0.5;
  s.forward_launches = 14;
  s.backward_launches = 26;
  s.launch_s = assumed(0, "kernels of this program are started by C++ in the time that each runs");
  s.step_s = assumed(0, "no host work between steps");
  s.micro_batch_s = assumed(0, "no host work between micro-batches");
  s.message_s = assumed(0, "messages start when their data are there");
  s.collective_s = assumed(0, "collectives start when their data are there");
  s.logit_bytes = assumed(10, "16-bit logits: twice read forward, read and written backward, statistics");
  s.elementwise = assumed(1, "fused as counted");
  return s;
}

}  // namespace

const std::vector<Software>& software_presets() {
  static const std::vector<Software> kPresets{triax()};
  return kPresets;
}

const Software* find_software(const std::string& name) {
  const auto& all = software_presets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Software& s) { return s.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace triax::plan
