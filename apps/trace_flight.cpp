// `triax trace blame` and `triax trace flight`: who ended a run, and what each of its ranks did last.
#include "apps/trace_flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/options/values.h"
#include "io/trace/blame.h"

namespace triax::apps {
namespace {

constexpr int64_t kDefaultRows = 40;

struct FlightRequest {
  std::string directory;
  std::string format = "table";
  int64_t rank = -1;  ///< all
  int64_t rows = kDefaultRows;
};

int64_t number_of(const std::string& option, const std::string& text) {
  const std::optional<int64_t> value = io::parse_integer(text);
  if (!value || *value < 0) throw ConfigError(fmt::format("{} {}: must be a whole number from 0 on", option, text));
  return *value;
}

FlightRequest parse_flight(const std::vector<std::string>& args) {
  FlightRequest request;
  for (size_t i = 1; i < args.size(); ++i) {
    std::string name = args[i];
    if (!name.starts_with("--")) {
      if (!request.directory.empty()) throw ConfigError(fmt::format("trace {}: takes one run directory", args[0]));
      request.directory = name;
      continue;
    }
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < args.size()) {
      value = args[++i];
    }
    const bool flight = args[0] == "flight";
    if (name == "--format" && (value == "table" || value == "json")) {
      request.format = value;
    } else if (flight && name == "--rank") {
      request.rank = number_of(name, value);
    } else if (flight && name == "--last") {
      request.rows = number_of(name, value);
    } else {
      throw ConfigError(fmt::format("trace {}: {} {}: takes --format table|json{}", args[0], name, value,
                                    flight ? ", --rank R, --last N" : ""));
    }
  }
  if (request.directory.empty()) throw ConfigError(fmt::format("trace {}: needs a run directory", args[0]));
  return request;
}

const char* lane_name(FlightLane lane) {
  switch (lane) {
    case FlightLane::Caller:
      return "main";
    case FlightLane::CommThread:
      return "comm";
    default:
      return "save";
  }
}

nlohmann::ordered_json to_json(const io::FlightRow& row, double start_s) {
  return {{"time_s", row.time_s - start_s},
          {"thread", lane_name(row.lane)},
          {"event", row.event == FlightEvent::Begin ? "begin" : "end"},
          {"step", row.step},
          {"what", io::describe(row)}};
}

}  // namespace

int trace_blame(const std::vector<std::string>& args) {
  const FlightRequest request = parse_flight(args);
  const std::vector<io::FlightRank> ranks = io::read_flights(request.directory);
  const io::Blame blame = io::find_blame(ranks);
  fmt::print("{}",
             request.format == "json" ? io::blame_json(ranks, blame) : io::blame_text(ranks, blame, ranks.size()));
  return 0;
}

int trace_flight(const std::vector<std::string>& args) {
  const FlightRequest request = parse_flight(args);
  std::vector<io::FlightRank> ranks = io::read_flights(request.directory);
  if (request.rank >= 0) {
    std::erase_if(ranks, [&](const io::FlightRank& r) { return r.rank != request.rank; });
    if (ranks.empty())
      throw ConfigError(fmt::format("--rank {}: left no record in {}", request.rank, request.directory));
  }
  nlohmann::ordered_json json = {
      {"schema", "triax-flight"}, {"version", 1}, {"ranks", nlohmann::ordered_json::array()}};
  for (const io::FlightRank& r : ranks) {
    const size_t first = r.rows.size() - std::min(r.rows.size(), static_cast<size_t>(request.rows));
    if (request.format == "json") {
      nlohmann::ordered_json rows = nlohmann::ordered_json::array();
      for (size_t i = first; i < r.rows.size(); ++i) rows.push_back(to_json(r.rows[i], r.start_s));
      json["ranks"].push_back({{"rank", r.rank}, {"host", r.host}, {"place", r.place}, {"rows", rows}});
      continue;
    }
    fmt::print("rank {} ({}, {}), process {}, {} records\n{:>12} {:<5} {:>6} {:<6} {}\n", r.rank, r.host, r.place,
               r.pid, r.rows.size(), "time_s", "thread", "step", "event", "what");
    for (size_t i = first; i < r.rows.size(); ++i) {
      const io::FlightRow& row = r.rows[i];
      fmt::print("{:>12.6f} {:<5} {:>6} {:<6} {}\n", row.time_s - r.start_s, lane_name(row.lane), row.step,
                 row.event == FlightEvent::Begin ? "begin" : "end", io::describe(row));
    }
  }
  if (request.format == "json") fmt::print("{}\n", json.dump(2));
  return 0;
}

}  // namespace triax::apps
