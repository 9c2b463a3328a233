// `triax bench coll`: collectives in the manner of the nccl-tests.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/bench.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "bench/collectives.h"

namespace triax::apps {
namespace {

namespace po = boost::program_options;
using comm::Operation;

constexpr const char* kUsage =
    "usage: mpiexec -n RANKS triax bench coll [options]\n\n"
    "Collectives over all ranks, algorithms side by side. time: one call on the slowest rank, median of the turns;\n"
    "algbw = size / time; busbw = algbw x 2(n-1)/n (all_reduce), (n-1)/n (reduce_scatter, all_gather); GB = 1e9 "
    "bytes.\n"
    "inside, across: bytes that one call of all ranks sends to ranks on the same node and on others, counted at each\n"
    "send; 'converted' where the algorithm does not count (shared memory, the MPI library).\n\n";

struct CollRequest {
  bench::CollectiveBench bench;
  Format format = Format::Table;
  bool help = false;
  std::string help_text;
};

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& rule) {
  throw ConfigError(fmt::format("bench coll: --{} {}: {}", option, value, rule));
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  std::string part;
  while (std::getline(stream, part, ',')) parts.push_back(part);
  return parts;
}

/// "64M", "1K", "1000": K, M, G are powers of 1024.
int64_t bytes_of(const std::string& option, const std::string& text) {
  size_t used = 0;
  int64_t number = 0;
  try {
    number = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
  if (used == 0 || number < 1 || number > (int64_t{1} << 30) || (shift == 0 && !unit.empty())) {
    refuse(option, text, "must be a number of bytes such as 1000, 1K or 64M");
  }
  return number << shift;
}

Operation op_of(const std::string& name) {
  for (const Operation op : {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather}) {
    if (name == comm::name_of(op)) return op;
  }
  refuse("ops", name, "must be all_reduce, reduce_scatter or all_gather");
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
    if (name == name_of(dtype)) return dtype;
  }
  refuse("dtype", name, "must be fp64, fp32, bf16 or fp16");
}

int count_of(const std::string& option, int value, int least, int most) {
  if (value < least || value > most) {
    refuse(option, std::to_string(value), fmt::format("must be from {} to {}", least, most));
  }
  return value;
}

void read_values(const po::variables_map& given, CollRequest& request) {
  bench::CollectiveBench& bench = request.bench;
  const auto text = [&](const char* name) { return given[name].as<std::string>(); };
  bench.ops.clear();
  for (const std::string& name : split(text("ops"))) bench.ops.push_back(op_of(name));
  bench.order = given["fixed-reduction-order"].as<bool>() ? comm::SumOrder::Ranks : comm::SumOrder::Algorithm;
  bench.algorithms.clear();
  for (const std::string& name : split(text("algorithm"))) {
    try {
      bench.algorithms.push_back(comm::parse_collective_algorithms("tp=" + name, bench.order).of("tp"));
    } catch (const ConfigError& error) {
      refuse("algorithm", name, error.what());
    }
  }
  if (bench.ops.empty()) refuse("ops", text("ops"), "names no operation");
  if (bench.algorithms.empty()) refuse("algorithm", text("algorithm"), "names no algorithm");
  bench.least_bytes = bytes_of("min-bytes", text("min-bytes"));
  bench.most_bytes = bytes_of("max-bytes", text("max-bytes"));
  if (bench.most_bytes < bench.least_bytes) refuse("max-bytes", text("max-bytes"), "must not be below --min-bytes");
  bench.factor = count_of("step-factor", given["step-factor"].as<int>(), 2, 1024);
  bench.calls = count_of("calls", given["calls"].as<int>(), 0, 1'000'000);
  bench.turns = count_of("turns", given["turns"].as<int>(), 1, 1000);
  bench.fake_nodes = count_of("fake-nodes", given["fake-nodes"].as<int>(), 0, 1 << 20);
  bench.dtype = dtype_of(text("dtype"));
  if (text("memory") != "window" && text("memory") != "heap") {
    refuse("memory", text("memory"), "must be window or heap");
  }
  bench.place = text("memory") == "heap" ? bench::BufferPlace::Heap : bench::BufferPlace::Window;
  const std::string format = text("format");
  if (format != "table" && format != "json" && format != "csv") refuse("format", format, "must be table, json or csv");
  request.format = format == "json" ? Format::Json : format == "csv" ? Format::Csv : Format::Table;
}

po::options_description options() {
  po::options_description description("options");
  const auto text = [](const char* standard) { return po::value<std::string>()->default_value(standard); };
  const auto number = [](int standard) { return po::value<int>()->default_value(standard); };
  description.add_options()("help", "this text")("ops", text("all_reduce"), "all_reduce,reduce_scatter,all_gather")(
      "algorithm", text("default,library"),
      "default, shared-memory, direct, library, ring, halving-doubling, tree, double-tree, hierarchical")(
      "fixed-reduction-order", po::value<bool>()->default_value(false)->implicit_value(true), "sums in rank order")(
      "min-bytes", text("1K"), "smallest size")("max-bytes", text("64M"), "largest size")(
      "step-factor", number(4), "from one size to the next")("turns", number(5), "of all algorithms at each size")(
      "calls", number(0), "of a turn; 0: of about 16 MiB together, from 2 to 200")("dtype", text("fp32"),
                                                                                   "fp64, fp32, bf16 or fp16")(
      "memory", text("window"), "window: shared by the ranks of a host; heap: ordinary memory")(
      "fake-nodes", number(0), "pretend that the host is that many nodes")("format", text("table"),
                                                                           "table, json or csv");
  return description;
}

/// Boost refuses a repeated option; here the last one wins.
void keep_last(po::parsed_options& parsed) {
  std::vector<po::option> kept;
  for (const po::option& option : parsed.options) {
    std::erase_if(kept, [&option](const po::option& earlier) { return earlier.string_key == option.string_key; });
    kept.push_back(option);
  }
  parsed.options = std::move(kept);
}

CollRequest parse(const std::vector<std::string>& args) {
  CollRequest request;
  const po::options_description description = options();
  po::variables_map given;
  try {
    po::command_line_parser parser(args);
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::parsed_options parsed = parser.options(description).positional({}).style(style).run();
    keep_last(parsed);
    po::store(parsed, given);
    po::notify(given);
  } catch (const po::error& error) {
    throw ConfigError(fmt::format("bench coll: {}; 'triax bench coll --help' lists the options", error.what()));
  }
  if (given.count("help") > 0) {
    std::ostringstream text;
    text << kUsage << description;
    request.help = true;
    request.help_text = text.str();
    return request;
  }
  read_values(given, request);
  return request;
}

std::string sent_text(const bench::CollectiveRow& row, double bytes) {
  return row.converted ? "converted" : fmt::format("{:.0f}", bytes);
}

void print_table(const std::vector<bench::CollectiveRow>& rows, const CollRequest& request, int ranks) {
  const bench::CollectiveBench& bench = request.bench;
  fmt::print("{} ranks, {}, {} memory, {} turns{}\n", ranks, name_of(bench.dtype),
             bench.place == bench::BufferPlace::Window ? "window" : "heap", bench.turns,
             bench.fake_nodes > 0 ? fmt::format(", {} faked nodes", bench.fake_nodes) : "");
  fmt::print("{:>10} {:>10} {:<14} {:<16} {:>11} {:>11} {:>8} {:>8} {:>6} {:>12} {:>12}\n", "size", "count", "op",
             "algorithm", "time_us", "best_us", "algbw", "busbw", "wrong", "inside", "across");
  for (const bench::CollectiveRow& row : rows) {
    fmt::print("{:>10} {:>10} {:<14} {:<16} {:>11.1f} {:>11.1f} {:>8.3f} {:>8.3f} {:>6} {:>12} {:>12}\n",
               row.size_bytes, row.elements, comm::name_of(row.op), comm::name_of(row.algorithm), row.time_us,
               row.best_us, row.algbw_gbps, row.busbw_gbps, row.wrong, sent_text(row, row.inside_bytes),
               sent_text(row, row.across_bytes));
  }
}

void print_csv(const std::vector<bench::CollectiveRow>& rows, const CollRequest& request, int ranks) {
  fmt::print(
      "ranks,dtype,size,count,op,algorithm,time_us,best_us,algbw_gbps,busbw_gbps,wrong,converted,inside,across\n");
  for (const bench::CollectiveRow& row : rows) {
    fmt::print("{},{},{},{},{},{},{:.3f},{:.3f},{:.6f},{:.6f},{},{},{:.0f},{:.0f}\n", ranks,
               name_of(request.bench.dtype), row.size_bytes, row.elements, comm::name_of(row.op),
               comm::name_of(row.algorithm), row.time_us, row.best_us, row.algbw_gbps, row.busbw_gbps, row.wrong,
               row.converted, row.inside_bytes, row.across_bytes);
  }
}

void print_json(const std::vector<bench::CollectiveRow>& rows, const CollRequest& request, int ranks) {
  nlohmann::ordered_json all{{"ranks", ranks}, {"dtype", name_of(request.bench.dtype)}};
  for (const bench::CollectiveRow& row : rows) {
    all["rows"].push_back({{"size", row.size_bytes},
                           {"count", row.elements},
                           {"op", comm::name_of(row.op)},
                           {"algorithm", comm::name_of(row.algorithm)},
                           {"time_us", row.time_us},
                           {"best_us", row.best_us},
                           {"algbw_gbps", row.algbw_gbps},
                           {"busbw_gbps", row.busbw_gbps},
                           {"wrong", row.wrong},
                           {"converted", row.converted},
                           {"inside_bytes", row.inside_bytes},
                           {"across_bytes", row.across_bytes}});
  }
  fmt::print("{}\n", all.dump(2));
}

}  // namespace

int bench_coll(const std::vector<std::string>& args, comm::MpiSession& session) {
  const CollRequest request = parse(args);
  if (request.help) {
    if (session.rank() == 0) fmt::print("{}", request.help_text);
    return 0;
  }
  if (session.size() == 1) throw ConfigError("bench coll: one rank has nobody to talk to; use mpiexec -n 2 or more");
  const std::vector<bench::CollectiveRow> rows = bench::measure_collectives(session, request.bench);
  if (session.rank() == 0) {
    if (request.format == Format::Json) {
      print_json(rows, request, session.size());
    } else if (request.format == Format::Csv) {
      print_csv(rows, request, session.size());
    } else {
      print_table(rows, request, session.size());
    }
  }
  int64_t wrong = 0;
  for (const bench::CollectiveRow& row : rows) wrong += row.wrong;
  return wrong == 0 ? 0 : static_cast<int>(ExitCode::ValidationFailed);
}

}  // namespace triax::apps
