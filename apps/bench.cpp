// `triax bench`: measurements of this machine.
#include "apps/bench.h"

#include <fmt/format.h>

#include <functional>

#include "apps/commands.h"
#include "apps/session.h"
#include "base/error.h"

namespace triax::apps {
namespace {

struct Measurement {
  const char* name;
  const char* help;
  int (*with_ranks)(const std::vector<std::string>&, comm::MpiSession&);  ///< null: needs no MPI
  int (*alone)(const std::vector<std::string>&);
};

const std::vector<Measurement>& measurements() {
  static const std::vector<Measurement> kAll{
      {"coll", "collectives over all ranks, by size and algorithm", bench_coll, nullptr},
      {"gemm", "matrix products at the shapes of a model and layout, or squares", bench_gemm, nullptr},
      {"attention", "attention, forward and backward, with and without dropout", bench_attention, nullptr},
      {"norm", "norms, residual sums and dropout", bench_norm, nullptr},
      {"adam", "AdamW, SGD and the sum of squares of the gradient norm", bench_adam, nullptr},
      {"copy", "memory: copy, add, fill, scale", bench_copy, nullptr},
      {"links", "copies between host and device, messages between each two ranks", bench_peers, nullptr},
      {"overlap", "how much a GEMM and an all_reduce slow each other", bench_overlap, nullptr},
      {"io", "checkpoints: write and read", bench_io, nullptr},
      {"topo", "cores, caches, ranks and devices: who is near whom", bench_topo, nullptr},
      {"all", "everything that the cost model reads, into hw.json", bench_all, nullptr},
      {"import", "results of the nccl-tests into hw.json", nullptr, bench_import},
      {"compare", "two hw.json files or presets, number by number", nullptr, bench_compare},
      {"show", "the figures of a hw.json, each with its share of the machine's best", nullptr, bench_show},
  };
  return kAll;
}

std::string bench_usage() {
  std::string text = "usage: mpiexec -n RANKS triax bench WHAT [options]; 'triax bench WHAT --help' lists them\n\n";
  for (const Measurement& one : measurements()) text += fmt::format("  {:<10} {}\n", one.name, one.help);
  return text;
}

}  // namespace

int bench_command(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    fmt::print("{}", bench_usage());
    return args.empty() ? static_cast<int>(ExitCode::Usage) : 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  std::string known;
  for (const Measurement& one : measurements()) {
    if (args[0] == one.name) {
      if (one.with_ranks == nullptr) return one.alone(rest);
      return run_with_session([&](comm::MpiSession& session, RankName&) { return one.with_ranks(rest, session); });
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  }
  throw ConfigError(fmt::format("bench {}: unknown measurement; there are {}", args[0], known));
}

}  // namespace triax::apps
