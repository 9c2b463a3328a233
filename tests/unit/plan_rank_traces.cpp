// Traces for other tools: what HTA needs of a file, what Chakra's reader gets back, and that the ranks of a step meet.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "plan/hardware_presets.h"
#include "plan/rank_traces.h"

namespace triax::plan {
namespace {

using io::ChakraNode;
using io::ChakraType;

io::RunOptions options_of(std::vector<std::string> args, int ranks) {
  args.insert(args.begin(), {"--micro-batch-size", "1", "--model", "t1", "--pipeline-model-parallel-size", "2",
                             "--tensor-model-parallel-size", "2", "--global-batch-size", "8"});
  io::RunOptions options = io::parse_options(args).options;
  io::resolve(options, ranks, io::Purpose::Plan);
  return options;
}

const bench::Hardware& machine() { return *find_hardware("a100"); }

TEST(Hta, file_holds_what_the_tools_look_for) {
  const io::RunOptions options = options_of({"--zero-stage", "1"}, 8);
  const Prediction p = predict(options, machine());
  io::RankTrace trace{3, 8, 3, p.step_ps, kernels_of(*p.simulated, 1, DType::BFloat16)};
  const std::string text = io::hta_json(trace);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex(R"("rank":\s+(\d+))")));
  EXPECT_EQ(match[1], "3");
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["distributedInfo"]["world_size"], 8);
  std::map<int, std::string> launches, kernels;
  std::map<int, double> last_stop;
  double compute_us = 0;
  bool step = false, nccl = false;
  for (const auto& event : json["traceEvents"]) {
    for (const char* key : {"ts", "dur", "name", "cat", "pid", "tid"}) ASSERT_TRUE(event.contains(key)) << event;
    const std::string category = event["cat"], name = event["name"];
    if (category == "user_annotation") step = step || name == "ProfilerStep#1";
    if (category == "cuda_runtime") launches[event["args"]["correlation"]] = name;
    if (category != "kernel" && category != "gpu_memcpy") continue;
    kernels[event["args"]["correlation"]] = name;
    EXPECT_EQ(event["args"]["device"], 3);
    const int stream = event["args"]["stream"];
    EXPECT_GE(event["ts"].get<double>() + 1e-6, last_stop[stream]) << name;
    last_stop[stream] = event["ts"].get<double>() + event["dur"].get<double>();
    nccl = nccl || name.rfind("nccl", 0) == 0;
    if (name.rfind("gemm", 0) == 0 || name.rfind("attention", 0) == 0 || name.rfind("elementwise", 0) == 0) {
      compute_us += event["dur"].get<double>();
    }
  }
  EXPECT_TRUE(step);
  EXPECT_TRUE(nccl);
  ASSERT_EQ(launches.size(), kernels.size());
  for (const auto& [correlation, name] : kernels) {
    EXPECT_EQ(launches.at(correlation), name.rfind("Memcpy", 0) == 0 ? "cudaMemcpyAsync" : "cudaLaunchKernel");
  }
  const TimeSplit& t = p.stages[1].time;
  const double expected =
      1e-6 * static_cast<double>(t[TimePart::Gemm] + t[TimePart::Attention] + t[TimePart::Elementwise]);
  EXPECT_NEAR(compute_us, expected, 1e-3);
}

TEST(Chakra, nodes_read_back) {
  std::vector<ChakraNode> nodes(4);
  nodes[0] = {1, "F", ChakraType::Compute, {}, 17, 1'000'000'000'000, 4096, 0, 0, io::ChakraCollective::AllReduce, ""};
  nodes[1] = {
      2, "tp", ChakraType::Collective, {1}, 0, 0, int64_t{5} << 33, 0, 0, io::ChakraCollective::ReduceScatter, "tp_0"};
  nodes[2] = {3, "send", ChakraType::Send, {1, 2}, 0, 0, 77, 300, 9, io::ChakraCollective::AllReduce, ""};
  nodes[3] = {4, "recv", ChakraType::Receive, {300}, 0, 0, 78, 2, 1 << 30, io::ChakraCollective::AllReduce, ""};
  const std::string file = io::chakra_trace(5, nodes);
  EXPECT_EQ(io::parse_chakra_trace(file, "x.et"), nodes);
  EXPECT_THROW(io::parse_chakra_trace(file.substr(0, file.size() - 3), "x.et"), RunTimeError);
  EXPECT_THROW(io::parse_chakra_trace("{\"traceEvents\":[]}", "x.et"), RunTimeError);
  // By hand: length 7; field 1, "0.0.4".
  EXPECT_EQ(file.substr(0, 8), std::string("\x07\x0a\x05") + "0.0.4");
}

// Over all ranks: every send has its receive, groups see the same collectives in the same order, dependencies come
// before, and the ranks of one stage do the same computing.
TEST(Chakra, ranks_meet) {
  for (const char* zero : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(zero);
    const io::RunOptions options = options_of({"--zero-stage", zero}, 8);
    const Prediction p = predict(options, machine());
    std::multiset<std::array<int64_t, 4>> sends, receives;
    std::map<std::string, std::vector<std::string>> collectives;
    std::map<std::string, int> members;
    for (int rank = 0; rank < 8; ++rank) {
      std::map<std::string, std::vector<std::string>> mine;
      uint64_t id = 0;
      for (const ChakraNode& node : chakra_nodes(*p.simulated, options, rank)) {
        EXPECT_EQ(node.id, ++id);
        for (const uint64_t before : node.depends) EXPECT_LT(before, node.id);
        if (node.type == ChakraType::Send) sends.insert({rank, node.peer, node.tag, node.bytes});
        if (node.type == ChakraType::Receive) receives.insert({node.peer, rank, node.tag, node.bytes});
        if (node.type == ChakraType::Collective) {
          mine[node.group].push_back(std::to_string(static_cast<int>(node.collective)) + ":" +
                                     std::to_string(node.bytes));
        }
      }
      for (const auto& [group, list] : mine) {
        const auto [found, first] = collectives.try_emplace(group, list);
        EXPECT_EQ(found->second, list) << group << " on rank " << rank;
        ++members[group];
      }
    }
    EXPECT_EQ(sends, receives);
    EXPECT_FALSE(sends.empty());
    for (const auto& [group, count] : members) EXPECT_EQ(count, 2) << group;
    EXPECT_TRUE(collectives.contains("9"));
    EXPECT_TRUE(collectives.contains("1"));
  }
}

}  // namespace
}  // namespace triax::plan
