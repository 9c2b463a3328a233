// `triax bench coll`: collectives in the manner of the nccl-tests.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "apps/bench.h"
#include "apps/bench_coll_request.h"
#include "apps/bench_request.h"
#include "base/error.h"
#include "bench/gpu_links.h"
#include "bench/machine.h"
#include "bench/verdict.h"
#include "train/run_device.h"

namespace triax::apps {
namespace {

using bench::CollectiveRow;
using bench::PlaceTimes;
using Json = nlohmann::ordered_json;

struct Session {
  int ranks = 1;
  std::string device;  ///< what it is
};

/// A line about the GPUs, and one that nobody overlooks where there are none.
void print_device(const CollRequest& request, const Session& s) {
  if (request.device == "cpu") return;
  fmt::print("# each on {}\n", s.device);
  if (request.device == "cuda-emulated") fmt::print("# {}\n", bench::kEmulated);
}

/// What the numbers are held against.
struct Judge {
  bench::Peak copy, adapter;
  bench::Circumstances around;
  std::string device = "cpu";
  std::map<std::pair<comm::Operation, std::string>, double> least_s;

  std::string operator()(const CollectiveRow& row) {
    double& least = least_s.try_emplace({row.op, row.algorithm}, row.training().time.median_s).first->second;
    bench::Circumstances now = around;
    now.least_time_s = least;
    if (device == "cuda-emulated") return bench::kEmulated;
    if (device == "cuda") return bench::verdict_on_gpu(row, row.nodes > 1 ? adapter : copy, least).text();
    return bench::verdict_of(row, row.nodes > 1 ? adapter : copy, now).text();
  }
};

const char* nccl_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return "double";
    case DType::Float16:
      return "half";
    case DType::BFloat16:
      return "bfloat16";
    case DType::Float32:
      return "float";
    default:
      return name_of(dtype).data();
  }
}

const char* redop_text(const CollectiveRow& row) {
  using comm::Operation;
  if (row.op != Operation::AllReduce && row.op != Operation::Reduce && row.op != Operation::ReduceScatter)
    return "none";
  return row.reduce == comm::ReduceOp::Sum ? "sum" : row.reduce == comm::ReduceOp::Max ? "max" : "min";
}

int root_of(const CollectiveRow& row) {
  return row.op == comm::Operation::Broadcast || row.op == comm::Operation::Reduce ? 0 : -1;
}

std::string sent_text(const CollectiveRow& row, double bytes) {
  return row.converted ? "converted" : fmt::format("{:.0f}", bytes);
}

std::string place_text(const CollectiveRow& row, const PlaceTimes& place) {
  if (!place.measured()) return fmt::format("{:>9} {:>7} {:>7} {:>7}", "N/A", "N/A", "N/A", "N/A");
  const std::string wrong = place.wrong < 0 ? "N/A" : std::to_string(place.wrong);
  return fmt::format("{:>9.2f} {:>7.2f} {:>7.2f} {:>7}", 1e6 * place.time.median_s, row.algbw_gbps(place),
                     row.busbw_gbps(place), wrong);
}

const char* memory_text(const CollRequest& request) {
  if (request.device != "cpu") return request.registered ? "registered GPU" : "GPU";
  return request.bench.place == bench::BufferPlace::Window ? "window" : "heap";
}

/// nccl-tests' lines, with ours to the right of them.
void print_table(const std::vector<CollectiveRow>& rows, const CollRequest& request, const Session& s, Judge& judge) {
  const bench::CollectiveBench& b = request.bench;
  const int ranks = s.ranks;
  fmt::print("# {} ranks on {} node(s){}, {} memory, {} turns{}\n", ranks, rows.empty() ? 1 : rows[0].nodes,
             b.fake_nodes > 0 ? " (faked)" : "", memory_text(request), b.turns,
             rows.empty() || rows[0].ranks == ranks ? "" : fmt::format(", groups of up to {}", rows[0].ranks));
  print_device(request, s);
  double busbw = 0;
  int64_t wrong = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const CollectiveRow& row = rows[i];
    if (i == 0 || rows[i - 1].op != row.op) {
      fmt::print("#\n# Collective test starting: {}\n", bench::bench_name(row.op));
      fmt::print("# {:>10} {:>12} {:>9} {:>6} {:>5} {:>23} {:>33}\n", "", "", "", "", "", "out-of-place", "in-place");
      fmt::print(
          "# {:>10} {:>12} {:>9} {:>6} {:>5} {:>9} {:>7} {:>7} {:>7} {:>9} {:>7} {:>7} {:>7}  {:<16} {:>9} {:>9} "
          "{:>9} {:>5} {:>12} {:>12}  {}\n",
          "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
          "#wrong", "algorithm", "min", "p95", "p99", "cv", "inside", "across", "verdict");
      fmt::print(
          "# {:>10} {:>12} {:>9} {:>6} {:>5} {:>9} {:>7} {:>7} {:>7} {:>9} {:>7} {:>7} {:>7}  {:<16} {:>9} {:>9} "
          "{:>9} {:>5}\n",
          "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", "", "(us)",
          "(us)", "(us)", "(%)");
    }
    const bench::Statistics& t = row.training().time;
    fmt::print("{:>12} {:>12} {:>9} {:>6} {:>5} {} {}  {:<16} {:>9.2f} {:>9.2f} {:>9.2f} {:>5.0f} {:>12} {:>12}  {}\n",
               row.size_bytes, row.count, nccl_type(b.dtype), redop_text(row), root_of(row),
               place_text(row, row.out_of_place), place_text(row, row.in_place), row.algorithm, 1e6 * t.min_s,
               1e6 * t.p95_s, 1e6 * t.p99_s, 100 * t.cv, sent_text(row, row.inside_bytes),
               sent_text(row, row.across_bytes), judge(row));
    busbw += row.busbw_gbps(row.training()) / static_cast<double>(rows.size());
    wrong += std::max<int64_t>(row.out_of_place.wrong, 0) + std::max<int64_t>(row.in_place.wrong, 0);
  }
  fmt::print("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.6g}\n", busbw);
}

void print_csv(const std::vector<CollectiveRow>& rows, const CollRequest& request, Judge& judge) {
  fmt::print(
      "ranks,nodes,dtype,size,count,redop,root,op,algorithm,place,time_us,min_us,p95_us,p99_us,cv,algbw_gbps,busbw_"
      "gbps,"
      "wrong,converted,inside,across,verdict\n");
  for (const CollectiveRow& row : rows) {
    for (const PlaceTimes* place : {&row.out_of_place, &row.in_place}) {
      if (!place->measured()) continue;
      const bench::Statistics& t = place->time;
      fmt::print(
          "{},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.6f},{:.6f},{},{},{:.0f},{:.0f},\"{}\"\n",
          row.ranks, row.nodes, name_of(request.bench.dtype), row.size_bytes, row.count, redop_text(row), root_of(row),
          bench::bench_name(row.op), row.algorithm, place == &row.in_place ? "in" : "out", 1e6 * t.median_s,
          1e6 * t.min_s, 1e6 * t.p95_s, 1e6 * t.p99_s, t.cv, row.algbw_gbps(*place), row.busbw_gbps(*place),
          place->wrong, row.converted, row.inside_bytes, row.across_bytes, judge(row));
    }
  }
}

Json json_of(const CollectiveRow& row, const PlaceTimes& place) {
  if (!place.measured()) return nullptr;
  const bench::Statistics& t = place.time;
  return {{"time", 1e6 * t.median_s},
          {"alg_bw", row.algbw_gbps(place)},
          {"bus_bw", row.busbw_gbps(place)},
          {"nwrong", place.wrong < 0 ? Json(nullptr) : Json(place.wrong)},
          {"min_us", 1e6 * t.min_s},
          {"p50_us", 1e6 * t.median_s},
          {"p95_us", 1e6 * t.p95_s},
          {"p99_us", 1e6 * t.p99_s},
          {"cv", t.cv}};
}

/// nccl-tests' keys, and ours beside them.
void print_json(const std::vector<CollectiveRow>& rows, const CollRequest& request, const Session& s, Judge& judge) {
  Json all{{"ranks", s.ranks}, {"dtype", name_of(request.bench.dtype)}, {"device", s.device}};
  if (request.device == "cuda-emulated") all["emulation"] = bench::kEmulated;
  all["results"] = Json::array();
  for (const CollectiveRow& row : rows) {
    all["results"].push_back({{"size", row.size_bytes},
                              {"count", row.count},
                              {"type", nccl_type(request.bench.dtype)},
                              {"redop", redop_text(row)},
                              {"root", std::to_string(root_of(row))},
                              {"out_of_place", json_of(row, row.out_of_place)},
                              {"in_place", json_of(row, row.in_place)},
                              {"experiment_name", bench::bench_name(row.op)},
                              {"algorithm", row.algorithm},
                              {"ranks", row.ranks},
                              {"nodes", row.nodes},
                              {"converted", row.converted},
                              {"inside_bytes", row.inside_bytes},
                              {"across_bytes", row.across_bytes},
                              {"verdict", judge(row)}});
  }
  fmt::print("{}\n", all.dump(2));
}

void print_groups(const std::vector<bench::GroupRow>& rows, const CollRequest& request, const Session& s) {
  const Format format = request.format;
  const char* const emulated = request.device == "cuda-emulated" ? bench::kEmulated : "";
  if (format == Format::Json) {
    Json all = Json::array();
    for (const bench::GroupRow& row : rows) {
      all.push_back({{"device", s.device},
                     {"emulation", emulated},
                     {"group", row.group},
                     {"op", bench::bench_name(row.op)},
                     {"ranks", row.ranks},
                     {"size", row.size_bytes},
                     {"alone_us", 1e6 * row.alone.median_s},
                     {"together_us", 1e6 * row.together.median_s},
                     {"alone_busbw_gbps", row.busbw_gbps(row.alone)},
                     {"together_busbw_gbps", row.busbw_gbps(row.together)}});
    }
    fmt::print("{}\n", all.dump(2));
    return;
  }
  const bool csv = format == Format::Csv;
  if (!csv) print_device(request, s);
  fmt::print("{}",
             csv ? "group,op,ranks,size,alone_us,together_us,alone_busbw_gbps,together_busbw_gbps,slowdown,verdict\n"
                 : fmt::format("{:<6} {:<14} {:>6} {:>12} {:>11} {:>11} {:>12} {:>12} {:>9}\n", "group", "op", "ranks",
                               "size", "alone_us", "together_us", "alone_busbw", "together_bw", "slowdown"));
  for (const bench::GroupRow& row : rows) {
    fmt::print(fmt::runtime(csv ? "{},{},{},{},{:.3f},{:.3f},{:.6f},{:.6f},{:.3f},\"{}\"\n"
                                : "{:<6} {:<14} {:>6} {:>12} {:>11.2f} {:>11.2f} {:>12.3f} {:>12.3f} {:>9.2f}  {}\n"),
               row.group, bench::bench_name(row.op), row.ranks, row.size_bytes, 1e6 * row.alone.median_s,
               1e6 * row.together.median_s, row.busbw_gbps(row.alone), row.busbw_gbps(row.together),
               row.together.median_s / row.alone.median_s, emulated);
  }
}

int groups(comm::MpiSession& session, const CollRequest& request, const train::RunDevice& device) {
  comm::GridOptions options;
  options.shape = request.layout;
  const int model = request.layout.tensor * request.layout.pipeline;
  if (session.size() % model != 0) {
    throw ConfigError(fmt::format("bench coll: tensor {} x pipeline {} does not divide {} ranks", request.layout.tensor,
                                  request.layout.pipeline, session.size()));
  }
  options.shape.data = session.size() / model;
  options.fake_nodes = request.bench.fake_nodes;
  comm::ProcessGrid grid(session, options, request.bench.on.groups);
  const std::vector<bench::GroupRow> rows = bench::measure_groups(grid, request.groups, request.bench);
  if (session.rank() == 0) print_groups(rows, request, {session.size(), device.describe()});
  grid.world().barrier();
  return 0;
}

/// Collective: the peaks are measured by all ranks at once.
Judge make_judge(comm::MpiSession& session, const CollRequest& request) {
  Judge judge;
  judge.device = request.device;
  judge.adapter = bench::adapter_peak();
  if (request.device != "cpu") {
    if (request.device == "cuda" && session.rank() == 0) judge.copy = bench::gpu_link_peak(*request.bench.on.device);
    return judge;
  }
  comm::GridOptions options;
  options.shape.data = session.size();
  comm::ProcessGrid grid(session, options);
  const auto device = kernels::make_cpu_device({1});
  Arena arena(grid.memory());
  bench::Operands operands(*device, arena);
  judge.copy = bench::copy_peak(operands, grid.world());
  judge.around.ranks_on_host = session.local_size();
  judge.around.cores = bench::this_machine().processing_units;
  judge.around.place = request.bench.place;
  return judge;
}

}  // namespace

int bench_coll(const std::vector<std::string>& args, comm::MpiSession& session) {
  CollRequest request = parse_coll(args);
  if (request.help) {
    if (session.rank() == 0) fmt::print("{}", request.help_text);
    return 0;
  }
  if (session.size() == 1) throw ConfigError("bench coll: one rank has nobody to talk to; use mpiexec -n 2 or more");
  check_nodes(session, "coll", request.nodes);
  const train::RunDevice device(session, request.device, 1);
  request.bench.on = {device.discrete(), device.groups(), request.registered};
  if (!request.groups.empty()) return groups(session, request, device);
  const std::vector<CollectiveRow> rows = bench::measure_collectives(session, request.bench);
  Judge judge = make_judge(session, request);
  if (session.rank() == 0) {
    const Session around{session.size(), device.describe()};
    if (request.format == Format::Json) {
      print_json(rows, request, around, judge);
    } else if (request.format == Format::Csv) {
      print_csv(rows, request, judge);
    } else {
      print_table(rows, request, around, judge);
    }
  }
  int64_t wrong = 0;
  for (const CollectiveRow& row : rows) {
    wrong += std::max<int64_t>(row.out_of_place.wrong, 0) + std::max<int64_t>(row.in_place.wrong, 0);
  }
  return wrong == 0 ? 0 : static_cast<int>(ExitCode::ValidationFailed);
}

}  // namespace triax::apps
