// `triax bench gemm|attention|norm|adam|copy`: kernels of the device at the shapes of a model and layout, or at sizes
// of their own, on every rank at once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/bench.h"
#include "apps/bench_request.h"
#include "base/error.h"
#include "bench/kernel_calls.h"
#include "bench/kernel_tables.h"
#include "bench/verdict.h"
#include "comm/process_grid.h"
#include "train/run_device.h"

namespace triax::apps {
namespace {

using Json = nlohmann::ordered_json;

/// One line of the result: what was measured, how fast, and what that is worth.
struct KernelRow {
  std::string name;
  std::string shape;
  DType dtype = DType::Float32;
  double flops = 0, bytes = 0;  ///< of one call; flops 0: bytes are the measure
  bench::Statistics time;
  bench::Verdict verdict;
};

/// Device and operands of this rank.
struct Setup {
  Setup(comm::MpiSession& session, const io::RunOptions& options)
      : name(options.control.device),
        threads(options.control.threads > 0 ? options.control.threads : bench::threads_of_rank(session.local_size())),
        device(session, options.control.device, threads, train::gemm_search(options)),
        grid(session, shape_of(session.size())),
        arena(device.discrete() != nullptr ? device.get().memory() : grid.memory()),
        operands(device.get(), arena),
        machine(bench::this_machine()) {}
  static comm::GridOptions shape_of(int ranks) {
    comm::GridOptions options;
    options.shape.data = ranks;
    return options;
  }
  bench::TimingOptions timing(int64_t rounds) const {
    bench::TimingOptions timing{static_cast<int>(rounds), 5e-4, 200};
    if (!on_host()) timing.settle = [this] { device.get().synchronize(); };
    return timing;
  }
  bool on_host() const { return device.discrete() == nullptr; }
  bool emulated() const { return name == "cuda-emulated"; }
  /// The GPU's best, measured now: a large GEMM of each type, a large copy. Collective.
  void measure_peaks(const std::vector<DType>& dtypes) {
    constexpr int64_t kSide = 8192, kCopy = int64_t{64} << 20;
    const bench::TimingOptions few = timing(2);
    if (on_host()) {
      copy_peak = {2 * bench::copy_peak(operands, grid.world()).per_s, "memory copy"};
    } else if (!emulated()) {
      copy_peak = {2 * bench::copy_peak(operands, grid.world(), kCopy, few.settle).per_s, "this GPU's copy"};
      for (const DType dtype : dtypes) {
        const bench::GemmPoint p{dtype, bench::GemmLayout::TN, false, kSide, kSide, kSide, 0};
        const bench::Statistics time = bench::time_cases({bench::gemm_call(operands, p)}, few, &grid.world())[0];
        gemm_peaks[dtype] = {bench::flops_of(p) / time.min_s, "this GPU's GEMM of 8192"};
      }
    }
  }
  bench::Verdict verdict(const bench::GemmPoint& p, double cv) const {
    if (on_host()) return bench::verdict_of(p, machine, threads, cv);
    if (emulated()) return {0, "", {bench::kEmulated}};
    return bench::verdict_on_gpu(bench::flops_of(p) / p.time_s, p.time_s, gemm_peaks.at(p.dtype));
  }
  bench::Verdict verdict(const bench::KernelPoint& p, double cv) const {
    if (on_host()) return bench::verdict_of(p, machine, threads, copy_peak.per_s, cv);
    if (emulated()) return {0, "", {bench::kEmulated}};
    const double flops = bench::flops_of(p);
    return bench::verdict_on_gpu((flops > 0 ? flops : bench::bytes_of(p)) / p.time_s, p.time_s,
                                 flops > 0 ? gemm_peaks.at(p.dtype) : copy_peak);
  }
  bench::Peak copy_peak;
  std::map<DType, bench::Peak> gemm_peaks;
  std::string name;  ///< of --device
  int threads;
  train::RunDevice device;
  comm::ProcessGrid grid;
  Arena arena;
  bench::Operands operands;
  bench::Machine machine;
};

std::vector<KernelRow> measure(Setup& s, std::vector<bench::ModelGemm> gemms, const KernelRequest& request) {
  if (!s.on_host()) s.measure_peaks(request.dtypes);
  std::vector<std::function<void()>> calls;
  for (const bench::ModelGemm& one : gemms) calls.push_back(bench::gemm_call(s.operands, one.shape));
  const std::vector<bench::Statistics> times = bench::time_cases(calls, s.timing(request.rounds), &s.grid.world());
  std::vector<KernelRow> rows;
  for (size_t i = 0; i < gemms.size(); ++i) {
    bench::GemmPoint p = gemms[i].shape;
    p.time_s = times[i].median_s;
    rows.push_back(
        {gemms[i].layer,
         fmt::format("{} {} x {} x {}{}", bench::name_of(p.layout), p.m, p.n, p.k, p.accumulate ? " +=" : ""), p.dtype,
         bench::flops_of(p), bench::bytes_of(p), times[i], s.verdict(p, times[i].cv)});
  }
  return rows;
}

std::vector<KernelRow> measure(Setup& s, const std::vector<bench::KernelPoint>& points, const KernelRequest& request) {
  std::vector<std::function<void()>> calls;
  for (const bench::KernelPoint& p : points) {
    calls.push_back(bench::kernel_call(s.operands, p, bench::heads_of_call(p, s.device.get())));
  }
  const std::vector<bench::Statistics> times = bench::time_cases(calls, s.timing(request.rounds), &s.grid.world());
  s.measure_peaks(request.dtypes);
  std::vector<KernelRow> rows;
  for (size_t i = 0; i < points.size(); ++i) {
    bench::KernelPoint p = points[i];
    const auto heads = static_cast<double>(bench::heads_of_call(p, s.device.get()));
    bench::Statistics time = times[i];
    for (double* value : {&time.min_s, &time.median_s, &time.mean_s, &time.p95_s, &time.p99_s, &time.max_s}) {
      *value /= heads;
    }
    p.time_s = time.median_s;
    const bool attention = bench::flops_of(p) > 0;
    rows.push_back(
        {p.kernel,
         attention ? fmt::format("s {} d {}", bench::positions_of(p), p.cols) : fmt::format("{} x {}", p.rows, p.cols),
         p.dtype, bench::flops_of(p), bench::bytes_of(p), time, s.verdict(p, time.cv)});
  }
  return rows;
}

Json json_of(const KernelRow& row) {
  return {{"name", row.name},
          {"shape", row.shape},
          {"dtype", name_of(row.dtype)},
          {"time_us", 1e6 * row.time.median_s},
          {"min_us", 1e6 * row.time.min_s},
          {"cv", row.time.cv},
          {"gflops", row.flops / row.time.median_s / 1e9},
          {"gbps", row.bytes / row.time.median_s / 1e9},
          {"peak_share", row.verdict.share},
          {"verdict", row.verdict.text()}};
}

void print(const std::vector<KernelRow>& rows, const KernelRequest& request, const Setup& s) {
  if (request.format == Format::Json) {
    Json all{{"ranks", s.grid.shape().world()},
             {"threads", s.threads},
             {"device", s.device.describe()},
             {"rows", Json::array()}};
    for (const KernelRow& row : rows) all["rows"].push_back(json_of(row));
    return fmt::print("{}\n", all.dump(2));
  }
  if (request.format == Format::Csv) {
    fmt::print("name,shape,dtype,time_us,min_us,cv,gflops,gbps,peak_share,verdict\n");
    for (const KernelRow& row : rows) {
      fmt::print("{},{},{},{:.3f},{:.3f},{:.4f},{:.3f},{:.3f},{:.4f},\"{}\"\n", row.name, row.shape, name_of(row.dtype),
                 1e6 * row.time.median_s, 1e6 * row.time.min_s, row.time.cv, row.flops / row.time.median_s / 1e9,
                 row.bytes / row.time.median_s / 1e9, row.verdict.share, row.verdict.text());
    }
    return;
  }
  if (!s.on_host()) fmt::print("{} ranks at once, each on {}\n", s.grid.shape().world(), s.device.describe());
  if (s.emulated()) fmt::print("{}\n", bench::kEmulated);
  if (s.on_host()) {
    fmt::print("{} ranks at once, {} thread(s) each; {}, {:.2f} GHz, {}; peak {:.0f} GFLOP/s fp32 a core\n",
               s.grid.shape().world(), s.threads, s.machine.cpu, s.machine.clock_hz / 1e9, s.machine.vectors,
               bench::core_peak_flops(s.machine, 4) / 1e9);
  }
  fmt::print("{:<26} {:<28} {:<5} {:>11} {:>11} {:>5} {:>9} {:>8}  {}\n", "name", "shape", "dtype", "time_us", "min_us",
             "cv%", "GFLOP/s", "GB/s", "verdict");
  double best = 0;
  for (const KernelRow& row : rows) {
    fmt::print("{:<26} {:<28} {:<5} {:>11.2f} {:>11.2f} {:>5.0f} {:>9.2f} {:>8.2f}  {}\n", row.name, row.shape,
               name_of(row.dtype), 1e6 * row.time.median_s, 1e6 * row.time.min_s, 100 * row.time.cv,
               row.flops / row.time.median_s / 1e9, row.bytes / row.time.median_s / 1e9, row.verdict.text());
    best = std::max(best, row.flops / row.time.median_s / 1e9);
  }
  if (best > 0) fmt::print("best achieved: {:.2f} GFLOP/s a rank\n", best);
}

template <class Points>
int run(comm::MpiSession& session, const KernelRequest& request, const Points& points) {
  Setup setup(session, request.options);
  const std::vector<KernelRow> rows = measure(setup, points, request);
  if (session.rank() == 0) print(rows, request, setup);
  setup.grid.world().barrier();
  return 0;
}

std::vector<bench::KernelPoint> points_of(const std::vector<const char*>& names, const KernelRequest& request,
                                          const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  std::vector<bench::KernelPoint> points;
  for (const DType dtype : request.dtypes) {
    for (const char* name : names) {
      for (const auto& [rows, cols] : shapes) points.push_back({name, dtype, rows, cols, 0});
    }
  }
  return points;
}

using Shapes = std::vector<std::pair<int64_t, int64_t>>;

/// Runs `body` with the request, or prints help.
template <class Body>
int with_request(const char* what, const std::vector<std::string>& args, comm::MpiSession& session, Body body) {
  const KernelRequest request = parse_kernels(what, args, {}, BenchDevice::Any);
  if (request.help.empty()) return body(request);
  if (session.rank() == 0) fmt::print("{}", request.help);
  return 0;
}

}  // namespace

int bench_gemm(const std::vector<std::string>& args, comm::MpiSession& session) {
  return with_request("gemm", args, session, [&](const KernelRequest& request) {
    std::vector<bench::ModelGemm> gemms;
    for (const DType dtype : request.dtypes) {
      if (request.has_model()) {
        const bench::ShapeOptions shape{request.options.parallel.grid.tensor, request.micro_batch(), dtype};
        for (const bench::ModelGemm& one : bench::model_gemms(request.options.model, shape)) gemms.push_back(one);
        continue;
      }
      for (const int64_t n : {128, 256, 512, 1024, 2048}) {
        for (const bench::GemmLayout layout : {bench::GemmLayout::TN, bench::GemmLayout::NN, bench::GemmLayout::NT}) {
          gemms.push_back({"square", {dtype, layout, layout == bench::GemmLayout::NT, n, n, n, 0}});
        }
      }
    }
    return run(session, request, gemms);
  });
}

int bench_attention(const std::vector<std::string>& args, comm::MpiSession& session) {
  return with_request("attention", args, session, [&](const KernelRequest& request) {
    Shapes shapes;
    if (request.has_model()) {
      shapes = {
          {request.options.model.seq_length * request.options.model.seq_length, request.options.model.kv_channels}};
    } else {
      for (const int64_t s : {128, 512, 2048}) {
        for (const int64_t d : {32, 64, 128}) shapes.emplace_back(s * s, d);
      }
    }
    return run(session, request,
               points_of({"attention_forward", "attention_backward", "attention_dropout_forward",
                          "attention_dropout_backward"},
                         request, shapes));
  });
}

int bench_norm(const std::vector<std::string>& args, comm::MpiSession& session) {
  return with_request("norm", args, session, [&](const KernelRequest& request) {
    const model::ModelConfig& m = request.options.model;
    const int64_t tokens = request.has_model() ? m.seq_length * request.micro_batch() : 1024;
    const Shapes shapes =
        request.has_model() ? Shapes{{tokens, m.hidden_size}} : Shapes{{tokens, 256}, {tokens, 1024}, {tokens, 4096}};
    return run(session, request,
               points_of({"layer_norm_forward", "layer_norm_backward", "rms_norm_forward", "rms_norm_backward",
                          "residual", "residual_backward", "dropout", "dropout_backward"},
                         request, shapes));
  });
}

int bench_adam(const std::vector<std::string>& args, comm::MpiSession& session) {
  return with_request("adam", args, session, [&](const KernelRequest& request) {
    const Shapes shapes{{1, 1 << 16}, {1, 1 << 20}, {1, 1 << 24}};
    return run(session, request, points_of({"adamw", "sgd", "sum_of_squares"}, request, shapes));
  });
}

int bench_copy(const std::vector<std::string>& args, comm::MpiSession& session) {
  return with_request("copy", args, session, [&](const KernelRequest& request) {
    const Shapes shapes{{1, 1 << 14}, {1, 1 << 18}, {1, 1 << 22}, {1, 1 << 24}};
    return run(session, request, points_of({"copy", "add", "fill", "scale"}, request, shapes));
  });
}

}  // namespace triax::apps
