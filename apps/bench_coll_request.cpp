#include "apps/bench_coll_request.h"

#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/split.h"

namespace triax::apps {
namespace {

namespace po = boost::program_options;
using comm::Operation;

constexpr const char* kCollUsage =
    "usage: mpiexec -n RANKS triax bench coll [options]\n\n"
    "Collectives over all ranks, algorithms side by side. Options and columns are nccl-tests'. time: median of the "
    "calls,\neach on the slowest rank; algbw = size / time; busbw = algbw x 2(n-1)/n (all_reduce), (n-1)/n "
    "(all_gather,\n"
    "reduce_scatter, all_to_all), 1 (broadcast, reduce, sendrecv); GB = 1e9 bytes; min, p95, p99, cv of the place "
    "that\n"
    "training uses (in place where there is one). all_reduce, reduce and broadcast work in place by nature: out of "
    "place\n"
    "is a copy and then that. inside, across: bytes that one call of all ranks sends to ranks on the same node and on\n"
    "others, counted at each send; 'converted' where the algorithm does not count (shared memory, the MPI "
    "library,\nNCCL). On GPUs a call's time is taken by events on the device, from where the call before it was done "
    "to "
    "where it is,\ncalls given one behind the other.\n\n";

[[noreturn]] void refuse_coll(const std::string& option, const std::string& value, const std::string& rule) {
  throw ConfigError(fmt::format("bench coll: --{} {}: {}", option, value, rule));
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
    refuse_coll(option, text, "must be a number of bytes such as 1000, 1K or 64M");
  }
  return number << shift;
}

/// The value of a word, or a refusal that names all words.
template <class T>
T word_of(const std::string& option, const std::string& word, const std::vector<std::pair<const char*, T>>& words) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
  }
  refuse_coll(option, word, "must be one of " + known);
}

Operation op_of(const std::string& name) {
  return word_of<Operation>("ops", name,
                            {{"all_reduce", Operation::AllReduce},
                             {"all_gather", Operation::AllGather},
                             {"reduce_scatter", Operation::ReduceScatter},
                             {"broadcast", Operation::Broadcast},
                             {"reduce", Operation::Reduce},
                             {"all_to_all", Operation::AllToAll},
                             {"sendrecv", Operation::Send}});
}

DType dtype_of(const std::string& name) {
  return word_of<DType>("datatype", name,
                        {{"float", DType::Float32},
                         {"double", DType::Float64},
                         {"half", DType::Float16},
                         {"bfloat16", DType::BFloat16},
                         {"fp32", DType::Float32},
                         {"fp64", DType::Float64},
                         {"fp16", DType::Float16},
                         {"bf16", DType::BFloat16},
                         {"int8", DType::Int8},
                         {"uint8", DType::UInt8},
                         {"int32", DType::Int32},
                         {"int64", DType::Int64}});
}

int count_of(const po::variables_map& given, const char* option, int least, int most) {
  const int value = given[option].as<int>();
  if (value < least || value > most) {
    refuse_coll(option, std::to_string(value), fmt::format("must be from {} to {}", least, most));
  }
  return value;
}

void read_sizes(const po::variables_map& given, bench::Sizes& sizes) {
  const auto text = [&](const char* name) { return given[name].as<std::string>(); };
  sizes.least_bytes = bytes_of("minbytes", text("minbytes"));
  sizes.most_bytes = bytes_of("maxbytes", text("maxbytes"));
  if (sizes.most_bytes < sizes.least_bytes) refuse_coll("maxbytes", text("maxbytes"), "must not be below --minbytes");
  if (given.count("stepbytes") > 0) {
    if (!given["stepfactor"].defaulted()) refuse_coll("stepbytes", text("stepbytes"), "cannot go with --stepfactor");
    sizes.step_bytes = bytes_of("stepbytes", text("stepbytes"));
  }
  sizes.factor = count_of(given, "stepfactor", 2, 1024);
}

void read_layout(const po::variables_map& given, CollRequest& request) {
  request.layout.tensor = count_of(given, "tensor-model-parallel-size", 1, 1 << 20);
  request.layout.pipeline = count_of(given, "pipeline-model-parallel-size", 1, 1 << 20);
  request.nodes = count_of(given, "nodes", 0, 1 << 20);
  if (given.count("groups") == 0) return;
  const std::string text = given["groups"].as<std::string>();
  request.groups = split(text, ',');
  for (const std::string& name : request.groups) {
    if (name != "tp" && name != "dp" && name != "pp") refuse_coll("groups", text, "must be a list of tp, dp, pp");
  }
  if (request.groups.empty()) refuse_coll("groups", text, "must be a list of tp, dp, pp");
  if (given.count("split") > 0) refuse_coll("split", given["split"].as<std::string>(), "cannot go with --groups");
}

/// What --device changes: NCCL carries everything, from and to the GPUs' memory.
void read_device(const po::variables_map& given, CollRequest& request) {
  const auto text = [&](const char* name) { return given[name].as<std::string>(); };
  request.device = word_of<std::string>("device", text("device"),
                                        {{"cpu", "cpu"}, {"cuda", "cuda"}, {"cuda-emulated", "cuda-emulated"}});
  request.registered = given["use-nccl-ub"].as<bool>();
  if (request.device == "cpu") {
    if (request.registered) {
      refuse_coll("use-nccl-ub", "true",
                  "registers memory of GPUs, and --device is cpu; --device cuda, or leave it out");
    }
    if (!is_floating(request.bench.dtype)) {
      refuse_coll("datatype", text("datatype"), "is for --device cuda; float, double, half or bfloat16 on the CPU");
    }
    return;
  }
  for (const char* option : {"algorithm", "fixed-reduction-order", "memory", "fake-nodes"}) {
    if (given[option].defaulted()) continue;
    const boost::any& value = given[option].value();
    const std::string shown = value.type() == typeid(std::string) ? text(option)
                              : value.type() == typeid(int)       ? std::to_string(given[option].as<int>())
                                                                  : "true";
    refuse_coll(
        option, shown,
        fmt::format("is the CPU's: with --device {} NCCL carries everything (NCCL_ALGO, NCCL_PROTO); leave it out",
                    request.device));
  }
}

void read_values(const po::variables_map& given, CollRequest& request) {
  bench::CollectiveBench& bench = request.bench;
  const auto text = [&](const char* name) { return given[name].as<std::string>(); };
  bench.ops.clear();
  for (const std::string& name : split(text("ops"), ',')) bench.ops.push_back(op_of(name));
  bench.order = given["fixed-reduction-order"].as<bool>() ? comm::SumOrder::Ranks : comm::SumOrder::Algorithm;
  bench.algorithms.clear();
  for (const std::string& name : split(text("algorithm"), ',')) {
    try {
      bench.algorithms.push_back(comm::parse_collective_algorithms("tp=" + name, bench.order).of("tp"));
    } catch (const ConfigError& error) {
      refuse_coll("algorithm", name, error.what());
    }
  }
  if (bench.ops.empty()) refuse_coll("ops", text("ops"), "names no operation");
  if (bench.algorithms.empty()) refuse_coll("algorithm", text("algorithm"), "names no algorithm");
  read_sizes(given, bench.sizes);
  bench.calls = count_of(given, "iters", 0, 1'000'000);
  bench.warmup = count_of(given, "warmup_iters", 0, 1'000'000);
  bench.turns = count_of(given, "turns", 1, 1000);
  bench.check = count_of(given, "check", 0, 1) == 1;
  bench.fake_nodes = count_of(given, "fake-nodes", 0, 1 << 20);
  bench.dtype = dtype_of(text("datatype"));
  bench.reduce = word_of<comm::ReduceOp>(
      "op", text("op"), {{"sum", comm::ReduceOp::Sum}, {"max", comm::ReduceOp::Max}, {"min", comm::ReduceOp::Min}});
  bench.place = word_of<bench::BufferPlace>(
      "memory", text("memory"), {{"window", bench::BufferPlace::Window}, {"heap", bench::BufferPlace::Heap}});
  request.format = word_of<Format>("format", text("format"),
                                   {{"table", Format::Table}, {"json", Format::Json}, {"csv", Format::Csv}});
  if (given.count("split") > 0) bench.split = bench::Split::parse(text("split"));
  read_device(given, request);
  read_layout(given, request);
}

po::options_description options() {
  po::options_description description("options");
  const auto text = [](const char* standard) { return po::value<std::string>()->default_value(standard); };
  const auto number = [](int standard) { return po::value<int>()->default_value(standard); };
  const auto add = [&](const char* name, const po::value_semantic* value, const char* help) {
    description.add_options()(name, value, help);
  };
  description.add_options()("help,h", "this text");
  add("ops", text("all_reduce"), "all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,sendrecv");
  add("device", text("cpu"), "cpu; cuda: memory of the GPUs, by NCCL, one rank for each; cuda-emulated");
  add("use-nccl-ub", po::value<bool>()->default_value(false)->implicit_value(true),
      "GPU memory from ncclMemAlloc, registered with NCCL");
  add("algorithm", text("default,library"),
      "default, shared-memory, direct, library, ring, halving-doubling, tree, double-tree, hierarchical");
  add("fixed-reduction-order", po::value<bool>()->default_value(false)->implicit_value(true), "sums in rank order");
  add("minbytes,b", text("1K"), "smallest size");
  add("maxbytes,e", text("64M"), "largest size");
  add("stepfactor,f", number(4), "from one size to the next");
  add("stepbytes,i", po::value<std::string>(), "added from one size to the next, instead of a factor");
  add("iters,n", number(0), "calls of a turn; 0: of about 16 MiB together, from 2 to 200");
  add("warmup_iters,w", number(1), "calls before each turn that do not count");
  add("turns", number(5), "of all algorithms and places at each size, in random order");
  add("check,c", number(1), "1: look at the results, 0: do not");
  add("op,o", text("sum"), "sum, max or min");
  add("datatype,d", text("float"),
      "float, double, half, bfloat16, or fp32, fp64, fp16, bf16; on GPUs int8, uint8, int32, int64 too");
  add("split", po::value<std::string>(),
      "mod:N, div:N, and:MASK: ranks of equal r mod N, r / N, r & MASK form a group");
  add("groups", po::value<std::string>(), "tp,dp,pp: these groups of a layout, alone and all at once");
  add("tensor-model-parallel-size", number(1), "of the layout of --groups");
  add("pipeline-model-parallel-size", number(1), "of the layout of --groups");
  add("nodes", number(0), "refuse to measure unless the ranks stand on that many nodes; 0: any");
  add("memory", text("window"), "window: shared by the ranks of a host; heap: ordinary memory");
  add("fake-nodes", number(0), "pretend that the host is that many nodes");
  add("format", text("table"), "table, json or csv");
  return description;
}

/// Names in the manner of the other commands.
std::vector<std::string> with_long_names(std::vector<std::string> args) {
  static const std::map<std::string, std::string> kNames{
      {"--min-bytes", "--minbytes"},   {"--max-bytes", "--maxbytes"}, {"--step-factor", "--stepfactor"},
      {"--step-bytes", "--stepbytes"}, {"--calls", "--iters"},        {"--dtype", "--datatype"}};
  for (std::string& arg : args) {
    const size_t equals = arg.find('=');
    const auto found = kNames.find(arg.substr(0, equals));
    if (found == kNames.end()) continue;
    arg = found->second + (equals == std::string::npos ? "" : arg.substr(equals));
  }
  return args;
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

}  // namespace

CollRequest parse_coll(const std::vector<std::string>& args) {
  CollRequest request;
  const po::options_description description = options();
  po::variables_map given;
  try {
    po::command_line_parser parser(with_long_names(args));
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
    text << kCollUsage << description;
    request.help = true;
    request.help_text = text.str();
    return request;
  }
  read_values(given, request);
  return request;
}

}  // namespace triax::apps
