// Reads traces that chrome_trace() wrote; other producers' events lack our fields and are told so.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "io/trace/chrome_trace.h"

namespace triax::io {
namespace {

using nlohmann::json;
using parallel::OpKind;

std::optional<OpKind> kind_of(const std::string& name) {
  for (int k = 0; k < parallel::kNumOpKinds; ++k) {
    if (name == parallel::name_of(static_cast<OpKind>(k))) return static_cast<OpKind>(k);
  }
  return std::nullopt;
}

int64_t picoseconds(const json& value) { return std::llround(value.get<double>() * 1e6); }

TimelineEvent event_of(const json& e) {
  TimelineEvent event;
  const std::optional<OpKind> kind = kind_of(e.at("cat").get<std::string>());
  if (!kind) throw RunTimeError(fmt::format("op kind \"{}\" is not known", e.at("cat").get<std::string>()));
  event.kind = *kind;
  event.name = e.at("name").get<std::string>();
  event.rank = e.at("pid").get<int>();
  event.stream = static_cast<parallel::Stream>(e.at("tid").get<int>());
  const json& args = e.at("args");
  event.stage = args.at("stage").get<int>();
  event.micro_batch = args.at("micro_batch").get<int>();
  event.op = args.at("op").get<int>();
  event.match = args.at("match").get<int64_t>();
  event.start_ps = picoseconds(e.at("ts"));
  event.stop_ps = event.start_ps + picoseconds(e.at("dur"));
  return event;
}

}  // namespace

Timeline parse_chrome_trace(std::string_view text, const std::string& name) {
  Timeline timeline;
  size_t index = 0;
  try {
    const json root = json::parse(text);
    const json& other = root.at("otherData");
    if (other.at("schema").get<std::string>() != "triax-trace" || other.at("version").get<int>() != 1) {
      throw RunTimeError("schema must be triax-trace, version 1");
    }
    timeline.source = other.at("source").get<std::string>();
    timeline.schedule = other.at("schedule").get<std::string>();
    timeline.program_hash = other.at("program_hash").get<std::string>();
    timeline.chunks = other.at("chunks").get<int>();
    for (const json& e : root.at("traceEvents")) {
      ++index;
      const std::string phase = e.at("ph").get<std::string>();
      if (phase == "M" && e.at("name") == "process_name") {
        timeline.ranks.push_back({e.at("pid").get<int>(), e.at("args").at("name").get<std::string>()});
      }
      if (phase == "X") timeline.events.push_back(event_of(e));
    }
  } catch (const std::exception& error) {
    throw RunTimeError(
        fmt::format("{}: not a trace of triax ({} events read): {}; make one with 'triax program time "
                    "--chrome FILE'",
                    name, index, error.what()));
  }
  return timeline;
}

}  // namespace triax::io
