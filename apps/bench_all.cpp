// `triax bench all`: measures this machine and writes hw.json.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/bench.h"
#include "apps/bench_request.h"
#include "base/error.h"
#include "bench/measure_machine.h"
#include "bench/verdict.h"
#include "comm/process_grid.h"
#include "io/options/options.h"
#include "train/run_device.h"

namespace triax::apps {
namespace {

struct AllRequest {
  bench::MachineBench bench;
  std::string out = "hw.json";
  int64_t nodes = 0;
};

/// "60s", "90", "2m".
std::string take_budget(const std::string& text, double& seconds) {
  std::string number = text;
  double unit = 1;
  if (!number.empty() && (number.back() == 's' || number.back() == 'm')) {
    unit = number.back() == 'm' ? 60 : 1;
    number.pop_back();
  }
  const std::optional<double> value = io::parse_real(number);
  if (!value || !(*value * unit >= 5) || *value * unit > 86400) {
    return "must be a time from 5s to 1440m such as 60s or 2m";
  }
  seconds = *value * unit;
  return {};
}

std::vector<io::OptionEntry> entries(AllRequest& request) {
  return {
      text_entry("budget", "TIME", "time to take, such as 60s (default) or 5m",
                 [&](const std::string& text) { return take_budget(text, request.bench.budget_s); }),
      path_entry("out", "file to write (default hw.json)", request.out),
      text_entry("name", "NAME", "name of the machine in the file",
                 [&](const std::string& text) -> std::string {
                   request.bench.name = text;
                   return text.empty() ? "must not be empty" : "";
                 }),
      text_entry("dtypes", "LIST", "element types to measure (default fp32,bf16)",
                 [&](const std::string& text) { return take_dtypes(text, request.bench.dtypes); }),
      switch_entry("links", "measure collectives and messages (default); --no-links for one GPU", request.bench.links),
      text_entry("dir", "DIR", "where to write checkpoints, and remove them again (default: that of --out)",
                 [&](const std::string& text) -> std::string {
                   request.bench.directory = text;
                   return text.empty() ? "must not be empty" : "";
                 }),
      nodes_entry(request.nodes)};
}

void check(comm::MpiSession& session, const io::RunControl& control, const AllRequest& request) {
  const bool on_gpu = control.device != "cpu";
  if (!request.bench.links && !on_gpu) {
    throw ConfigError("bench all: --no-links: the links of a CPU's ranks are measured; leave it out, or --device cuda");
  }
  if (session.size() == 1 && request.bench.links) {
    throw ConfigError(fmt::format("bench all: one rank measures no link; use mpiexec -n 2 or more{}",
                                  on_gpu ? ", or, with one GPU, --no-links" : ""));
  }
  refuse_gpu_options("all", control);
  for (const DType dtype : request.bench.dtypes) {
    if (on_gpu && dtype == DType::Float64) {
      throw ConfigError(
          "bench all: --dtypes fp64: GPUs compute in fp32, bf16, fp16 here; --dtypes fp32,bf16, or --device cpu");
    }
  }
  check_nodes(session, "all", request.nodes);
}

/// Before the budget is spent: rank 0 will be able to write there. Leaves no file.
void check_out(comm::MpiSession& session, const std::string& path) {
  comm::GridOptions options;
  options.shape.data = session.size();
  comm::ProcessGrid grid(session, options);
  int64_t fault = 0;
  std::error_code unknown;
  const std::filesystem::file_status before = std::filesystem::status(path, unknown);
  const bool special = std::filesystem::is_fifo(before) || std::filesystem::is_character_file(before);
  if (session.rank() == 0 && !special) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fault = errno;
    if (file >= 0) close(file);
    if (file >= 0 && !std::filesystem::exists(before)) unlink(path.c_str());
  }
  grid.world().broadcast(Tensor(&fault, DType::Int64, {1}), 0).wait();
  if (fault == 0) return;
  throw ConfigError(fmt::format("bench all: --out {}: cannot be written ({}); name a file in a directory that can be",
                                path, std::strerror(static_cast<int>(fault))));
}

/// Shapes of the model that the options name, if any: its micro-batch and twice that, on one tp rank and on those
/// given.
void add_own_shapes(const io::RunOptions& options, bench::MachineBench& bench) {
  if (options.model.num_layers == 0) return;
  const int64_t micro_batch = std::max<int64_t>(options.batch.micro_batch_size, 1);
  std::vector<int64_t> tensor_sizes{1};
  if (options.parallel.grid.tensor > 1) tensor_sizes.push_back(options.parallel.grid.tensor);
  for (const DType dtype : bench.dtypes) {
    for (const int64_t t : tensor_sizes) {
      for (const int64_t b : {micro_batch, 2 * micro_batch}) {
        const bench::ShapeOptions shape{t, b, dtype};
        for (const bench::ModelGemm& gemm : bench::model_gemms(options.model, shape))
          bench.shapes.push_back(gemm.shape);
        const std::vector<bench::KernelPoint> kernels = bench::model_kernels(options.model, shape);
        bench.kernels.insert(bench.kernels.end(), kernels.begin(), kernels.end());
      }
    }
  }
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw RunTimeError(fmt::format("bench all: cannot write {}; give another path with --out", path));
}

}  // namespace

int bench_all(const std::vector<std::string>& args, comm::MpiSession& session) {
  AllRequest request;
  const std::vector<io::OptionEntry> extra = entries(request);
  const io::ParsedOptions parsed = io::parse_options(args, extra);
  if (parsed.help) {
    if (session.rank() == 0) {
      fmt::print(
          "{}", io::help_text("mpiexec -n RANKS triax bench all [--budget 60s] [--out hw.json] [--model NAME]", extra));
    }
    return 0;
  }
  check(session, parsed.options.control, request);
  check_out(session, request.out);
  request.bench.device = parsed.options.control.device;
  request.bench.search = train::gemm_search(parsed.options);
  request.bench.registered = parsed.options.control.use_nccl_ub;
  if (request.bench.directory.empty()) {
    const std::string parent = std::filesystem::path(request.out).parent_path();
    request.bench.directory = parent.empty() ? "." : parent;
  }
  add_own_shapes(parsed.options, request.bench);
  if (session.rank() == 0) {
    request.bench.say = [](const std::string& text) { fmt::print(stderr, "bench all: {}\n", text); };
  }
  const bench::Hardware hw = bench::measure_machine(session, request.bench);
  if (session.rank() == 0) {
    write(request.out, bench::to_json(hw));
    fmt::print("{}: {} GEMMs, {} kernel sizes, {} collectives; {} points left out for the budget\n", request.out,
               hw.gemms.size(), hw.kernel_points.size(), hw.collectives.size(), hw.environment.at("left_out"));
    if (hw.device == "cuda-emulated") fmt::print("{}\n", bench::kEmulated);
  }
  return 0;
}

}  // namespace triax::apps
