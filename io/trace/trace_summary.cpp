#include "io/trace/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace triax::io {
namespace {

constexpr size_t kMostListed = 10;

using Key = std::tuple<int, std::string, int>;  // rank, name, occurrence

std::map<Key, const TimelineEvent*> by_key(const Timeline& timeline) {
  std::map<Key, const TimelineEvent*> events;
  std::map<std::pair<int, std::string>, int> seen;
  for (const TimelineEvent& e : timeline.events) events.emplace(Key{e.rank, e.name, seen[{e.rank, e.name}]++}, &e);
  return events;
}

void list(const Key& key, std::vector<std::string>& names, int64_t& count) {
  if (names.size() < kMostListed) names.push_back(fmt::format("rank {}: {}", std::get<0>(key), std::get<1>(key)));
  ++count;
}

}  // namespace

TraceSummary summarize(const Timeline& timeline) {
  struct Borders {
    int64_t first = -1, last = 0;
  };
  std::map<int, RankSummary> ranks;
  std::map<int, Borders> borders;
  TraceSummary summary;
  for (const TimelineRank& rank : timeline.ranks) ranks[rank.rank].rank = rank.rank;
  for (const TimelineEvent& e : timeline.events) {
    RankSummary& rank = ranks[e.rank];
    rank.rank = e.rank;
    rank.kind_ps[e.kind] += e.stop_ps - e.start_ps;
    summary.end_ps = std::max(summary.end_ps, e.stop_ps);
    if (parallel::is_receive(e.kind)) rank.receive_ps += e.stop_ps - e.start_ps;
    if (!parallel::is_compute(e.kind)) continue;
    Borders& b = borders[e.rank];
    if (b.first < 0 || e.start_ps < b.first) b.first = e.start_ps;
    b.last = std::max(b.last, e.stop_ps);
    rank.busy_ps += e.stop_ps - e.start_ps;
  }
  double busy = 0;
  for (auto& [number, rank] : ranks) {
    if (borders.contains(number)) rank.span_ps = borders[number].last - borders[number].first;
    summary.span_ps = std::max(summary.span_ps, rank.span_ps);
    busy += static_cast<double>(rank.busy_ps);
    summary.ranks.push_back(rank);
  }
  if (busy > 0) {
    const double all = static_cast<double>(summary.span_ps) * static_cast<double>(ranks.size());
    summary.bubble_of_total = 1 - busy / all;
    summary.bubble_of_ideal = all / busy - 1;
  }
  return summary;
}

TraceDifference compare(const Timeline& a, const Timeline& b, size_t worst_pairs) {
  const auto events_a = by_key(a);
  const auto events_b = by_key(b);
  TraceDifference result;
  result.same_program = a.program_hash == b.program_hash;
  std::map<parallel::OpKind, KindDifference> kinds;
  for (const auto& [key, left] : events_a) {
    const auto found = events_b.find(key);
    if (found == events_b.end()) {
      list(key, result.only_a, result.unmatched_a);
      continue;
    }
    const TimelineEvent* right = found->second;
    KindDifference& kind = kinds[left->kind];
    kind.kind = left->kind;
    ++kind.ops;
    kind.mean_a_ps += static_cast<double>(left->stop_ps - left->start_ps);
    kind.mean_b_ps += static_cast<double>(right->stop_ps - right->start_ps);
    kind.worst_start_ps =
        std::max(kind.worst_start_ps, std::abs(static_cast<double>(right->start_ps - left->start_ps)));
    result.worst.push_back({left->rank, left->name, left->stop_ps - left->start_ps, right->stop_ps - right->start_ps});
  }
  for (const auto& [key, right] : events_b) {
    if (!events_a.contains(key)) list(key, result.only_b, result.unmatched_b);
  }
  for (auto& [name, kind] : kinds) {
    kind.mean_a_ps /= static_cast<double>(kind.ops);
    kind.mean_b_ps /= static_cast<double>(kind.ops);
    result.kinds.push_back(kind);
  }
  std::stable_sort(result.worst.begin(), result.worst.end(), [](const auto& x, const auto& y) {
    return std::abs(x.duration_b_ps - x.duration_a_ps) > std::abs(y.duration_b_ps - y.duration_a_ps);
  });
  result.worst.resize(std::min(result.worst.size(), worst_pairs));
  return result;
}

}  // namespace triax::io
