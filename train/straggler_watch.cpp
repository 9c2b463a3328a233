#include "train/straggler_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace triax::train {
namespace {

constexpr size_t kMostNamed = 8;

/// The lower one of an even number: with two peers the slower is compared with the faster.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

StragglerWatch::StragglerWatch(const comm::GridShape& shape, std::vector<std::string> hosts, int64_t window,
                               double factor)
    : shape_(shape),
      hosts_(std::move(hosts)),
      window_(window),
      factor_(factor),
      own_s_(static_cast<size_t>(shape.world()), 0.0) {}

double StragglerWatch::peers_median(size_t rank, const std::vector<double>& mean_s) const {
  const int position = comm::coord_of(shape_, static_cast<int>(rank)).pipeline;
  std::vector<double> peers;
  for (size_t r = 0; r < mean_s.size(); ++r) {
    if (comm::coord_of(shape_, static_cast<int>(r)).pipeline == position) peers.push_back(mean_s[r]);
  }
  return lower_median(peers.size() > 1 ? peers : mean_s);
}

std::string StragglerWatch::add(int64_t iteration, std::span<const RankReport> reports) {
  for (size_t r = 0; r < own_s_.size(); ++r) own_s_[r] += reports[r].own_s;
  if (++steps_ < window_) return {};
  const int64_t steps = std::exchange(steps_, 0);
  std::vector<double> mean_s(own_s_.size(), 0.0);
  own_s_.swap(mean_s);
  for (double& s : mean_s) s /= static_cast<double>(steps);
  std::vector<std::pair<double, std::string>> slow;
  for (size_t r = 0; r < mean_s.size(); ++r) {
    const double usual = peers_median(r, mean_s);
    if (usual <= 0 || mean_s[r] <= factor_ * usual) continue;
    const comm::GridCoord c = comm::coord_of(shape_, static_cast<int>(r));
    slow.emplace_back(
        mean_s[r] / usual,
        fmt::format("rank {} ({}, tp {} pp {} dp {}) {:.1f} ms, median {:.1f} ms, {:.2f} times", r, hosts_[r], c.tensor,
                    c.pipeline, c.data, mean_s[r] * 1e3, usual * 1e3, mean_s[r] / usual));
  }
  if (slow.empty()) return {};
  std::sort(slow.begin(), slow.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(slow.size(), kMostNamed); ++i) words.push_back(slow[i].second);
  if (slow.size() > kMostNamed) words.push_back(fmt::format("{} more", slow.size() - kMostNamed));
  return fmt::format("slower than their peers in steps {} to {}, own time a step: {}", iteration - steps + 1, iteration,
                     fmt::join(words, "; "));
}

}  // namespace triax::train
