#include "io/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace triax::io {
namespace {

using parallel::OpKind;
using parallel::Stream;

class Writer {
 public:
  explicit Writer(const Timeline& timeline) : timeline_(timeline) {}

  std::string run() {
    text_ = "{\"traceEvents\":[\n";
    names();
    for (const TimelineEvent& event : timeline_.events) complete(event);
    flows();
    counters();
    text_ += fmt::format(
        "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"schema\":\"triax-trace\",\"version\":1,\"source\":\"{}\","
        "\"schedule\":\"{}\",\"program_hash\":\"{}\",\"chunks\":{}}}}}\n",
        timeline_.source, timeline_.schedule, timeline_.program_hash, timeline_.chunks);
    return std::move(text_);
  }

 private:
  void add(const std::string& event) {
    text_ += first_ ? "" : ",\n";
    text_ += event;
    first_ = false;
  }

  void names() {
    std::set<std::pair<int, Stream>> threads;
    for (const TimelineEvent& event : timeline_.events) threads.emplace(event.rank, event.stream);
    for (const TimelineRank& rank : timeline_.ranks) {
      add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"{}"}}}})", rank.rank, rank.name));
      add(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", rank.rank));
    }
    for (const auto& [rank, stream] : threads) {
      add(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
                      static_cast<int>(stream), name_of(stream)));
    }
  }

  void complete(const TimelineEvent& e) {
    add(fmt::format(R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},)"
                    R"("args":{{"stage":{},"micro_batch":{},"op":{},"match":{}}}}})",
                    e.name, parallel::name_of(e.kind), e.rank, static_cast<int>(e.stream), microseconds(e.start_ps),
                    microseconds(e.stop_ps - e.start_ps), e.stage, e.micro_batch, e.op, e.match));
  }

  void flows() {
    std::unordered_map<int64_t, const TimelineEvent*> sends;
    for (const TimelineEvent& e : timeline_.events) {
      if (parallel::is_send(e.kind)) sends.emplace(e.match, &e);
    }
    for (const TimelineEvent& e : timeline_.events) {
      if (!parallel::is_receive(e.kind)) continue;
      const auto send = sends.find(e.match);
      if (send == sends.end()) continue;
      const TimelineEvent& from = *send->second;
      const char* name = e.kind == OpKind::RecvActivation ? "activation" : "gradient";
      add(fmt::format(R"({{"ph":"s","name":"{}","cat":"message","id":{},"pid":{},"tid":{},"ts":{}}})", name, e.match,
                      from.rank, static_cast<int>(from.stream), microseconds(from.start_ps)));
      add(fmt::format(R"({{"ph":"f","bp":"e","name":"{}","cat":"message","id":{},"pid":{},"tid":{},"ts":{}}})", name,
                      e.match, e.rank, static_cast<int>(e.stream), microseconds(e.stop_ps)));
    }
  }

  void counters() {
    std::map<int, int> live;
    for (const TimelineEvent& e : timeline_.events) {
      const int change = parallel::is_forward(e.kind) ? 1 : parallel::is_backward_weight(e.kind) ? -1 : 0;
      if (change == 0) continue;
      add(fmt::format(R"({{"ph":"C","name":"in_flight","pid":{},"ts":{},"args":{{"chunks":{}}}}})", e.rank,
                      microseconds(e.stop_ps), live[e.rank] += change));
    }
  }

  const Timeline& timeline_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string chrome_trace(const Timeline& timeline) { return Writer(timeline).run(); }

std::vector<std::string> nesting_faults(const Timeline& timeline) {
  std::map<std::pair<int, Stream>, std::vector<const TimelineEvent*>> threads;
  for (const TimelineEvent& event : timeline.events) threads[{event.rank, event.stream}].push_back(&event);
  std::vector<std::string> faults;
  for (auto& [thread, events] : threads) {
    std::stable_sort(events.begin(), events.end(), [](const TimelineEvent* a, const TimelineEvent* b) {
      return a->start_ps != b->start_ps ? a->start_ps < b->start_ps : a->stop_ps > b->stop_ps;
    });
    std::vector<const TimelineEvent*> open;
    for (const TimelineEvent* event : events) {
      while (!open.empty() && open.back()->stop_ps <= event->start_ps) open.pop_back();
      if (!open.empty() && event->stop_ps > open.back()->stop_ps) {
        faults.push_back(fmt::format("rank {}, {}: {} overlaps {}", thread.first, name_of(thread.second),
                                     open.back()->name, event->name));
      }
      open.push_back(event);
    }
  }
  return faults;
}

}  // namespace triax::io
