#include "parallel/cost_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace triax::parallel {
namespace {

constexpr std::array<const char*, 16> kCostNames{"F",    "I",           "W",      "B",          "R",      "LOAD",
                                                 "OPT",  "REDUCE_GRAD", "GATHER", "GATHER_MSG", "SUM_TP", "SUM_TIED",
                                                 "NORM", "P2P",         "BYTES",  "BANDWIDTH"};
using Values = std::map<std::string, std::vector<double>>;

double parse_value(const std::string& word, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= 0) || !std::isfinite(value)) {
    throw ConfigError(fmt::format("--cost {}: \"{}\" must be a number of at least 0", text, word));
  }
  return value;
}

Values parse_words(const std::string& text) {
  Values values;
  std::string name;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find_first_of(",: ", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (const size_t equals = word.find('='); equals != std::string::npos) {
      name = word.substr(0, equals);
      word.erase(0, equals + 1);
      if (std::find(kCostNames.begin(), kCostNames.end(), name) == kCostNames.end()) {
        throw ConfigError(
            fmt::format("--cost {}: \"{}\" is no cost; known are {}", text, name, fmt::join(kCostNames, ", ")));
      }
      values[name].clear();
    } else if (name.empty()) {
      throw ConfigError(fmt::format("--cost {}: \"{}\" has no name; write F=1,I=1,W=1,P2P=0.5", text, word));
    }
    values[name].push_back(parse_value(word, text));
  }
  return values;
}

// A bound of the makespan, in units: everything one after the other.
double bound_of(const Values& values, int stages, int num_micro_batches) {
  double sum = 0;
  for (const auto& [name, list] : values) {
    if (name == "BYTES" || name == "BANDWIDTH") continue;
    for (const double value : list) sum += value * (list.size() == 1 ? stages : 1);
  }
  return (sum + 3.0 * stages) * 4.0 * (num_micro_batches + 4.0);
}

}  // namespace

TextCosts parse_costs(const std::string& text, int stages, int num_micro_batches) {
  Values values = parse_words(text);
  if (values.contains("B")) {
    if (values.contains("I") || values.contains("W")) {
      throw ConfigError(fmt::format("--cost {}: B is I and W together; give B, or I and W", text));
    }
    for (double& value : values["B"]) value /= 2;
    values["I"] = values["W"] = values["B"];
  }
  for (const char* name : {"F", "I", "W"}) values.try_emplace(name, 1, 1.0);

  TextCosts result;
  result.unit_ps = 1'000'000'000'000;
  const double bound = bound_of(values, stages, num_micro_batches);
  while (result.unit_ps > 1 && bound * static_cast<double>(result.unit_ps) > 4e18) result.unit_ps /= 10;
  if (bound * static_cast<double>(result.unit_ps) > 4e18) {
    throw ConfigError(
        fmt::format("--cost {}: the values are too large; their sum over a step must stay below 4e18", text));
  }
  const auto unit = static_cast<double>(result.unit_ps);
  const auto list = [&](const char* name) {
    std::vector<int64_t> ps;
    for (const double value : values[name]) ps.push_back(std::llround(value * unit));
    return ps;
  };
  const auto single = [&](const char* name) {
    const std::vector<double>& given = values[name];
    if (given.size() > 1) throw ConfigError(fmt::format("--cost {}: {} takes one value", text, name));
    return given.empty() ? 0.0 : given[0];
  };
  UniformCosts& c = result.costs;
  c.forward_ps = list("F");
  c.backward_input_ps = list("I");
  c.backward_weight_ps = list("W");
  c.recompute_ps = list("R");
  c.load_ps = list("LOAD");
  c.optimizer_ps = list("OPT");
  c.reduce_ps = list("REDUCE_GRAD");
  c.gather_ps = list("GATHER");
  c.message_gather_ps = list("GATHER_MSG");
  c.tensor_partial_ps = list("SUM_TP");
  c.latency_ps = list("P2P");
  c.tied_ps = std::llround(single("SUM_TIED") * unit);
  c.norm_ps = std::llround(single("NORM") * unit);
  c.message_bytes = std::llround(single("BYTES"));
  for (const double value : values["BANDWIDTH"]) c.bytes_per_s.push_back(value / unit * 1e12);
  return result;
}

Straggler parse_straggler(const std::string& word) {
  std::istringstream in(word);
  Straggler s;
  char a = 0, b = 0;
  if (!(in >> s.lane.replica >> a >> s.lane.position >> b >> s.factor) || a != ':' || b != ':' || !in.eof()) {
    throw ConfigError("--straggler " + word + ": must be REPLICA:POSITION:FACTOR, for example 0:3:1.5");
  }
  return s;
}

}  // namespace triax::parallel
