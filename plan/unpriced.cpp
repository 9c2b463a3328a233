#include <fmt/format.h>

#include "plan/prediction.h"

namespace triax::plan {

std::vector<std::string> unpriced(const io::RunOptions& options) {
  const io::ParallelOptions& p = options.parallel;
  std::vector<std::string> notes;
  const auto note = [&](const std::string& option, const char* instead) {
    notes.push_back(
        fmt::format("--{}: changes the run but not the predicted time, which is that of {}", option, instead));
  };
  if (p.compression.method != comm::CompressionMethod::None) {
    note(fmt::format("grad-compression {}", comm::name_of(p.compression.method)), "uncompressed gradients");
  }
  if (!p.collective_algorithm.empty()) {
    note(fmt::format("collective-algorithm {}", p.collective_algorithm), "the default algorithms");
  }
  if (p.fixed_reduction_order) note("fixed-reduction-order", "the default order");
  if (p.grad_sync == io::GradSync::ParameterServer) note("grad-sync parameter-server", "an all-reduce");
  return notes;
}

}  // namespace triax::plan
