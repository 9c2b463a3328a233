#include "apps/bench_request.h"

#include <set>
#include <sstream>

#include "base/error.h"
#include "comm/process_grid.h"
#include "io/options/validate.h"

namespace triax::apps {

std::string take_dtypes(const std::string& text, std::vector<DType>& dtypes) {
  dtypes.clear();
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    bool known = false;
    for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
      if (word != name_of(dtype)) continue;
      known = true;
      dtypes.push_back(dtype);
    }
    if (!known) return "must be a list of fp64, fp32, bf16, fp16, such as fp32,bf16";
  }
  return dtypes.empty() ? "must name at least one of fp64, fp32, bf16, fp16" : "";
}

std::string take_bytes(const std::string& text, int64_t& bytes) {
  constexpr const char* kRule = "must be a number of bytes such as 1000, 256K or 64M";
  std::string number = text;
  int shift = 0;
  if (!number.empty()) {
    const char unit = number.back();
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    if (shift > 0) number.pop_back();
  }
  const std::optional<int64_t> value = io::parse_integer(number);
  if (!value || *value < 1 || *value > (int64_t{1} << 30)) return kRule;
  bytes = *value << shift;
  return {};
}

std::string take_byte_list(const std::string& text, std::vector<int64_t>& sizes) {
  sizes.clear();
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    int64_t bytes = 0;
    if (!take_bytes(word, bytes).empty() || bytes % 4 != 0) return "must be a list of multiples of 4 such as 4K,1M,64M";
    sizes.push_back(bytes);
  }
  return sizes.empty() ? "must be a list of multiples of 4 such as 4K,1M,64M" : "";
}

io::OptionEntry nodes_entry(int64_t& nodes) {
  return count_entry("nodes", "refuse to measure unless the ranks stand on that many nodes", 1, nodes);
}

void check_nodes(comm::MpiSession& session, const std::string& what, int64_t nodes) {
  if (nodes == 0) return;
  comm::GridOptions options;
  options.shape.data = session.size();
  const comm::ProcessGrid grid(session, options);
  const std::set<int> all(grid.nodes().begin(), grid.nodes().end());
  const auto found = static_cast<int64_t>(all.size());
  if (found == nodes) return;
  throw ConfigError(fmt::format("bench {}: --nodes {}: {}; start the ranks on {} nodes (srun -N {}, mpiexec -hosts)",
                                what, nodes,
                                found == 1 ? "all ranks are on one host, which would measure its memory"
                                           : fmt::format("the ranks are on {} nodes", found),
                                nodes, nodes));
}

void refuse_gpu_options(const std::string& what, const io::RunControl& control) {
  if (control.enable_cuda_graph) {
    throw ConfigError(
        fmt::format("bench {}: --enable-cuda-graph: operations are timed one by one; leave it out", what));
  }
  if (const std::vector<std::string> faults = io::gpu_option_faults(control); !faults.empty()) {
    throw ConfigError(fmt::format("bench {}: {}", what, faults.front()));
  }
}

KernelRequest parse_kernels(const std::string& what, const std::vector<std::string>& args,
                            const std::vector<io::OptionEntry>& extra, BenchDevice on) {
  KernelRequest request;
  std::vector<io::OptionEntry> entries{
      text_entry("dtypes", "LIST", "element types (default: the run's precision)",
                 [&](const std::string& text) { return take_dtypes(text, request.dtypes); }),
      count_entry("rounds", "of all cases, in random order, that count (default 5)", 1, request.rounds),
      format_entry(request.format)};
  entries.insert(entries.end(), extra.begin(), extra.end());
  const io::ParsedOptions parsed = io::parse_options(args, entries);
  if (parsed.help) {
    request.help = io::help_text(fmt::format("mpiexec -n RANKS triax bench {} [--model NAME] [--dtypes fp32,bf16] "
                                             "[--tensor-model-parallel-size T] [--format table|json|csv]",
                                             what),
                                 entries);
  }
  request.options = parsed.options;
  if (!parsed.help) refuse_gpu_options(what, request.options.control);
  if (const std::string& device = request.options.control.device;
      !parsed.help && device != "cpu" && on == BenchDevice::Cpu) {
    throw ConfigError(
        fmt::format("--device {}: bench {} measures the CPU's side only; --device cpu, or bench coll, links, overlap, "
                    "gemm, attention, norm, adam, copy, all",
                    device, what));
  }
  if (request.dtypes.empty()) request.dtypes = {io::compute_dtype(request.options.control.precision)};
  for (const DType dtype : request.dtypes) {
    if (request.options.control.device == "cpu" || dtype != DType::Float64) continue;
    throw ConfigError(fmt::format("--device {}: does not compute in fp64; --dtypes fp32,bf16,fp16, or --device cpu",
                                  request.options.control.device));
  }
  return request;
}

}  // namespace triax::apps
