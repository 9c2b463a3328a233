#include "bench/nccl_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "bench/verdict.h"

namespace triax::bench {
namespace {

using comm::Operation;
using SortedJson = nlohmann::json;

std::optional<DType> dtype_named(const std::string& name) {
  static const std::map<std::string, DType> kNames{{"float", DType::Float32},     {"double", DType::Float64},
                                                   {"half", DType::Float16},      {"bfloat16", DType::BFloat16},
                                                   {"int8", DType::Int8},         {"uint8", DType::UInt8},
                                                   {"int32", DType::Int32},       {"int64", DType::Int64},
                                                   {"f8e4m3", DType::Float8E4M3}, {"f8e5m2", DType::Float8E5M2}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<double> number_of(const std::string& word) {
  size_t used = 0;
  try {
    const double value = std::stod(word, &used);
    if (used == word.size()) return value;
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

/// One place of a line: microseconds and wrong elements.
struct Timed {
  std::optional<double> time_us, wrong;
};

class Import {
 public:
  Import(std::string where, const ImportHints& hints)
      : where_(std::move(where)), hints_(hints), operation_(hints.operation) {}

  void text(const std::string& all) {
    std::istringstream lines(all);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const std::string place = fmt::format("line {}", number);
      const std::vector<std::string> words = words_of(line);
      if (words.empty()) continue;
      if (words[0] == "#") {
        comment(words);
      } else if (number_of(words[0]) && words.size() >= 13) {
        row(words, place);
      }
    }
  }

  void json(const std::string& all) {
    SortedJson file;
    try {
      file = SortedJson::parse(all);
    } catch (const SortedJson::exception& error) {
      fail("JSON", error.what());
    }
    if (!file.contains("results") || !file["results"].is_array())
      fail("'results'", "is missing: not a file of nccl-tests -J");
    const SortedJson config = file.value("config", SortedJson::object());
    for (const SortedJson& device : config.value("devices", SortedJson::array())) {
      add_rank(device.value("group", 0), device.value("hostname", ""));
    }
    ranks_ = std::max(ranks_, file.value("ranks", 0));
    for (size_t i = 0; i < file["results"].size(); ++i) {
      const std::string place = fmt::format("'results[{}]'", i);
      try {
        row(file["results"][i], place);
      } catch (const SortedJson::exception& error) {
        fail(place, error.what());
      }
    }
  }

  std::vector<CollectivePoint> points() const {
    if (best_.empty()) fail("file", "holds no result line of nccl-tests");
    std::vector<CollectivePoint> all;
    for (const auto& [key, point] : best_) all.push_back(point);
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    throw ConfigError(fmt::format("{}: {} {}", where_, place, what));
  }

  void add_rank(int group, const std::string& host) {
    ++ranks_of_group_[group];
    hosts_of_group_[group].insert(host);
  }

  /// "# Collective test starting: X", "#  Rank  0 Group  0 Pid 1 on HOST device ...".
  void comment(const std::vector<std::string>& words) {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "starting:" && !hints_.operation) operation_ = operation_named(words[i + 1]);
    }
    if (words.size() > 2 && words[2] == "ranks" && number_of(words[1])) ranks_ = std::stoi(words[1]);
    if (words.size() < 4 || words[1] != "Rank") return;
    const auto on = std::find(words.begin(), words.end(), "on");
    const auto group = std::find(words.begin(), words.end(), "Group");
    const bool grouped = group != words.end() && group + 1 != words.end() && number_of(group[1]);
    add_rank(grouped ? std::stoi(group[1]) : 0, on != words.end() && on + 1 != words.end() ? on[1] : "");
  }

  static Timed timed(const std::string& time, const std::string& wrong) { return {number_of(time), number_of(wrong)}; }

  void row(const std::vector<std::string>& words, const std::string& place) {
    add(*number_of(words[0]), words[2], timed(words[5], words[8]), timed(words[9], words[12]), operation_, place);
  }

  static Timed timed(const SortedJson& row, const char* key) {
    if (!row.contains(key) || !row[key].is_object()) return {};
    const SortedJson& half = row[key];
    Timed t;
    t.time_us = half.contains("time") ? half["time"].get<double>() : half.at("cpu_time").get<double>();
    if (half.contains("nwrong") && half["nwrong"].is_number()) t.wrong = half["nwrong"].get<double>();
    return t;
  }

  void row(const SortedJson& row, const std::string& place) {
    std::optional<Operation> operation = hints_.operation;
    if (!operation) operation = operation_named(row.value("experiment_name", ""));
    if (row.contains("ranks")) ranks_ = row["ranks"].get<int>();
    if (row.contains("nodes")) nodes_ = row["nodes"].get<int>();
    add(row.at("size").get<double>(), row.at("type").get<std::string>(), timed(row, "out_of_place"),
        timed(row, "in_place"), operation, place);
  }

  void add(double size, const std::string& type, const Timed& out, const Timed& in, std::optional<Operation> operation,
           const std::string& place) {
    const Timed& t = out.time_us ? out : in;
    if (size <= 0 || !t.time_us || *t.time_us <= 0) return;  // nccl-tests prints lines of size 0
    if (out.wrong.value_or(0) > 0 || in.wrong.value_or(0) > 0)
      fail(place, "has wrong elements: its time means nothing");
    if (!operation) fail(place, "does not say which operation was measured: give --op all_reduce, all_gather, ...");
    const std::optional<DType> dtype = dtype_named(type);
    if (!dtype) fail(place, fmt::format("has the type '{}', which has no counterpart here", type));
    CollectivePoint p;
    p.operation = *operation;
    p.ranks = ranks();
    if (p.ranks < 2) fail(place, "does not say how many ranks took part: give --ranks");
    p.nodes = nodes();
    p.bytes = static_cast<int64_t>(size);
    p.time_s = *t.time_us / 1e6;
    p.dtype = *dtype;
    const auto [at, fresh] = best_.try_emplace({p.operation, p.ranks, p.nodes, p.dtype, p.bytes}, p);
    if (!fresh) at->second.time_s = std::min(at->second.time_s, p.time_s);
  }

  int ranks() const {
    if (hints_.ranks > 0) return hints_.ranks;
    if (ranks_ > 0) return ranks_;
    return ranks_of_group_.empty() ? 0 : ranks_of_group_.begin()->second;
  }
  int nodes() const {
    if (hints_.nodes > 0) return hints_.nodes;
    if (nodes_ > 0) return nodes_;
    return hosts_of_group_.empty() ? 1 : static_cast<int>(hosts_of_group_.begin()->second.size());
  }

  std::string where_;
  ImportHints hints_;
  std::optional<Operation> operation_;
  std::map<int, int> ranks_of_group_;
  std::map<int, std::set<std::string>> hosts_of_group_;
  int ranks_ = 0, nodes_ = 0;
  std::map<std::tuple<Operation, int, int, DType, int64_t>, CollectivePoint> best_;
};

int steps_of_ring(int ranks) { return 2 * (ranks - 1); }

}  // namespace

std::optional<Operation> operation_named(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) plain += static_cast<char>(std::tolower(c));
  }
  if (plain.size() > 4 && plain.substr(plain.size() - 4) == "perf") plain.resize(plain.size() - 4);
  static const std::map<std::string, Operation> kNames{{"allreduce", Operation::AllReduce},
                                                       {"allgather", Operation::AllGather},
                                                       {"reducescatter", Operation::ReduceScatter},
                                                       {"broadcast", Operation::Broadcast},
                                                       {"reduce", Operation::Reduce},
                                                       {"alltoall", Operation::AllToAll},
                                                       {"sendrecv", Operation::Send}};
  const auto found = kNames.find(plain);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

std::vector<CollectivePoint> import_nccl(const std::string& text, const std::string& where, const ImportHints& hints) {
  if (text.find(kEmulated) != std::string::npos) {
    throw ConfigError(where + ": holds times of an emulated GPU, which are no speed of a GPU; import a GPU's");
  }
  Import import(where, hints);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    import.json(text);
  } else {
    import.text(text);
  }
  return import.points();
}

void merge(Hardware& hw, const std::vector<CollectivePoint>& points, const std::string& source) {
  std::set<std::tuple<Operation, int, int, DType>> replaced;
  for (const CollectivePoint& p : points) replaced.insert({p.operation, p.ranks, p.nodes, p.dtype});
  std::erase_if(hw.collectives, [&](const CollectivePoint& p) {
    return replaced.count({p.operation, p.ranks, p.nodes, p.dtype}) > 0;
  });
  hw.collectives.insert(hw.collectives.end(), points.begin(), points.end());
  for (const bool across : {false, true}) {
    double latency_s = 0, bytes_per_s = 0;
    int ranks = 0, per_node = 0;
    for (const CollectivePoint& p : points) {
      if (p.operation != Operation::AllReduce || (p.nodes > 1) != across) continue;
      const double hop_s = p.time_s / steps_of_ring(p.ranks);
      if (latency_s == 0 || hop_s < latency_s) latency_s = hop_s;
      bytes_per_s = std::max(bytes_per_s, comm::sent_bytes(p.operation, p.bytes, p.ranks) / p.time_s);
      ranks = std::max(ranks, p.ranks);
      per_node = std::max(per_node, p.ranks / p.nodes);
    }
    if (ranks == 0) continue;
    const Constant latency{latency_s, Origin::Measured, source + ": shortest all_reduce / steps of a ring"};
    const Constant bandwidth{bytes_per_s, Origin::Measured, source + ": largest all_reduce busbw"};
    const auto level = std::find_if(hw.links.begin(), hw.links.end(),
                                    [across](const Link& link) { return (link.ranks == 0) == across; });
    if (level == hw.links.end()) {
      const Constant none{0, Origin::Assumed, "not in the file"};
      // Of a network the busbw is what one device gets with all of its node talking: one port each.
      hw.links.insert(across ? hw.links.end() : hw.links.begin(),
                      {across ? "network" : "node", across ? 0 : ranks, latency, bandwidth, none, none});
    } else {
      if (level->latency_s.origin != Origin::Measured) level->latency_s = latency;
      if (level->bytes_per_s.origin != Origin::Measured) level->bytes_per_s = bandwidth;
    }
    hw.devices_per_node = std::max(hw.devices_per_node, per_node);
  }
}

}  // namespace triax::bench
