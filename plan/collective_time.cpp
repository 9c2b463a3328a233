#include "plan/collective_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triax::plan {

using comm::Operation;

GroupPlace place_of(int ranks, int stride, int per_node, int world) {
  const int inside = std::clamp(per_node / std::max(stride, 1), 1, std::max(ranks, 1));
  GroupPlace place;
  place.ranks = ranks;
  place.nodes = (ranks + inside - 1) / inside;
  place.sharers = std::max(1, std::min(per_node, world) / inside);
  if (inside > 1 && place.nodes > 1) place.apart = stride;
  return place;
}

MeasuredCurve::MeasuredCurve(std::vector<std::pair<double, double>> points, Monotone monotone) {
  std::sort(points.begin(), points.end());
  for (const auto& [bytes, seconds] : points) {
    if (!bytes_.empty() && bytes_.back() == bytes) continue;
    bytes_.push_back(bytes);
    seconds_.push_back(seconds);
  }
  // Time never falls with the size; bandwidth never falls either: a slower point is lifted to the bandwidth before it.
  for (size_t i = seconds_.size() - 1; i-- > 0;) seconds_[i] = std::min(seconds_[i], seconds_[i + 1]);
  for (size_t i = 1; i < seconds_.size() && monotone == Monotone::Bandwidth; ++i) {
    seconds_[i] = std::min(seconds_[i], bytes_[i] * seconds_[i - 1] / bytes_[i - 1]);
  }
}

double MeasuredCurve::time_s(double bytes) const {
  const size_t n = bytes_.size();
  if (n == 1 || bytes <= bytes_.front()) {
    return n == 1 ? seconds_[0] * std::max(1.0, bytes / bytes_[0]) : seconds_[0];
  }
  if (bytes >= bytes_.back()) {
    const double slope = (seconds_[n - 1] - seconds_[n - 2]) / (bytes_[n - 1] - bytes_[n - 2]);
    return seconds_[n - 1] + slope * (bytes - bytes_[n - 1]);
  }
  const auto upper = static_cast<size_t>(std::upper_bound(bytes_.begin(), bytes_.end(), bytes) - bytes_.begin());
  const double x = (bytes - bytes_[upper - 1]) / (bytes_[upper] - bytes_[upper - 1]);
  return seconds_[upper - 1] + x * (seconds_[upper] - seconds_[upper - 1]);
}

CollectiveTimes::CollectiveTimes(const bench::Hardware& h) : devices_per_node_(std::max(1, h.devices_per_node)) {
  if (h.links.empty()) {
    throw ConfigError(
        fmt::format("--hw {}: its description has no links, so no message can be priced; it needs at least one "
                    "element of \"links\"",
                    h.name));
  }
  for (const bench::Link& link : h.links) {
    if (!(link.bytes_per_s.value > 0)) {
      throw ConfigError(fmt::format("--hw {}: link {}: its bytes_per_s must be above 0", h.name, link.name));
    }
  }
  const auto level = [](const bench::Link& link) {
    return Level{link.latency_s.value, link.bytes_per_s.value, link.ports_per_domain.value, link.contention.value};
  };
  inner = level(h.links.front());
  outer = level(h.links.back());
  if (h.links.front().ranks > 0) devices_per_node_ = h.links.front().ranks;
  const auto constant = [&](const char* name) {
    const auto found = h.constants.find(name);
    return found == h.constants.end() ? 0.0 : found->second.value;
  };
  base_s = constant("collective_base_s");
  half_bytes = constant("collective_half_bytes");
  copy_s_per_byte = constant("collective_copy_s_per_byte");
  fill_bytes = constant("collective_fill_bytes");
  fill_s_per_byte = constant("collective_fill_s_per_byte");
  if (constant("port_share") > 0) port_share = constant("port_share");
  devices_per_switch = constant("devices_per_switch");
  sharp_bytes_per_s = constant("nvlink_sharp_all_reduce_bytes_per_s");
  std::map<Key, std::vector<std::pair<double, double>>> points;
  for (const bench::CollectivePoint& p : h.collectives) {
    points[{p.operation, p.ranks, p.nodes}].emplace_back(static_cast<double>(p.bytes), p.time_s);
  }
  // Through a host's caches short messages are the faster ones per byte.
  const Monotone monotone = h.device == "cpu" ? Monotone::Time : Monotone::Bandwidth;
  for (auto& [key, list] : points) measured_.emplace(key, MeasuredCurve(std::move(list), monotone));
}

double CollectiveTimes::bandwidth(const GroupPlace& place) const {
  const int inside = std::max(1, place.ranks / place.nodes);
  if (place.nodes <= 1) return inner.bytes_per_s;
  const double ports = outer.ports > 0 ? outer.ports : devices_per_node_;
  const bool crosses = devices_per_switch > 1 && place.apart >= devices_per_switch;
  const double across = port_share * (crosses ? crossing_share : 1) * ports * outer.bytes_per_s / place.sharers;
  return inside > 1 ? std::min(inner.bytes_per_s, across) : across;
}

double CollectiveTimes::by_formula(Operation op, const GroupPlace& place, double bytes) const {
  const double n = place.ranks;
  const double nodes = place.nodes;
  const double b = bandwidth(place);
  const double passes = op == Operation::AllReduce ? 2 : 1;
  const bool rooted = op == Operation::Broadcast || op == Operation::Reduce;
  const double factor = rooted ? 1 : passes * (n - 1) / n;
  const double across = nodes > 1 ? passes * (nodes - 1) : 0;
  const double steps = passes * (n - 1) - across;
  // A pipe of half_bytes fills before the wire runs full; every byte also passes the rank's own memory.
  const double filling = copy_s_per_byte * bytes + fill_s_per_byte * std::min(bytes, fill_bytes);
  const double ramp = half_bytes / b + passes / 2 * filling;
  const double ring = base_s + ramp + steps * inner.latency_s + across * outer.latency_s + factor * bytes / b;
  if (op != Operation::AllReduce) return ring;
  if (nodes <= 1 && sharp_bytes_per_s > 0 && n > 2) {
    return std::min(ring, base_s + ramp + 2 * inner.latency_s + factor * bytes / sharp_bytes_per_s);
  }
  if (nodes <= 1) return ring;
  const double tree = base_s + ramp + 2 * ((n / nodes - 1) * inner.latency_s + std::log2(nodes) * outer.latency_s) +
                      2 * bytes / (0.92 * b);
  return std::min(ring, tree);
}

double CollectiveTimes::time_s(Operation op, const GroupPlace& place, double bytes) const {
  if (place.ranks <= 1 || bytes <= 0) return 0;
  if (!measured_.empty()) {
    const auto found = measured_.find({op, place.ranks, place.nodes});
    if (found != measured_.end()) return found->second.time_s(bytes);
    // Halves of an all-reduce, where only that was measured.
    const auto whole = measured_.find({Operation::AllReduce, place.ranks, place.nodes});
    const bool half = op == Operation::AllGather || op == Operation::ReduceScatter;
    if (half && whole != measured_.end()) return whole->second.time_s(bytes) / 2;
  }
  return by_formula(op, place, bytes);
}

double CollectiveTimes::message_s(bool across, double bytes, int sharers) const {
  if (bytes <= 0) return 0;
  const auto found = measured_.find({Operation::Send, 2, across ? 2 : 1});
  if (found != measured_.end()) return found->second.time_s(bytes);
  if (!across) return base_s + inner.latency_s + bytes / inner.bytes_per_s;
  const double ports = outer.ports > 0 ? outer.ports : devices_per_node_;
  const double share = std::min(outer.bytes_per_s, ports * outer.bytes_per_s / std::max(1, sharers));
  return base_s + outer.latency_s + bytes / share;
}

double CollectiveTimes::contention(const GroupPlace& place) const {
  return place.nodes > 1 ? std::max(inner.contention * (place.ranks > place.nodes ? 1 : 0), outer.contention)
                         : inner.contention;
}

}  // namespace triax::plan
