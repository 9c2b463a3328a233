#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "bench/kernel_calls.h"

namespace triax::bench {
namespace {

/// Speeds of the points of one table, by what makes two points the same.
using Table = std::map<std::string, double>;
using Tables = std::map<std::string, Table>;

Tables tables_of(const Hardware& hw) {
  Tables tables;
  for (const GemmPoint& p : hw.gemms) {
    const std::string name =
        fmt::format("gemm {} {}{}", name_of(p.dtype), name_of(p.layout), p.accumulate ? " +=" : "");
    tables[name][fmt::format("{} {} {}", p.m, p.n, p.k)] = flops_of(p) / p.time_s;
  }
  for (const KernelPoint& p : hw.kernel_points) {
    const double work = static_cast<double>(p.rows) * static_cast<double>(p.cols);
    tables[fmt::format("{} {}", p.kernel, name_of(p.dtype))][fmt::format("{} {}", p.rows, p.cols)] = work / p.time_s;
  }
  for (const CollectivePoint& p : hw.collectives) {
    const std::string name = fmt::format("{} {} of {} ranks on {} node(s)",
                                         p.operation == comm::Operation::Send ? "message" : comm::name_of(p.operation),
                                         name_of(p.dtype), p.ranks, p.nodes);
    tables[name][std::to_string(p.bytes)] = static_cast<double>(p.bytes) / p.time_s;
  }
  return tables;
}

Table constants_of(const Hardware& hw) {
  Table all{{"memory bytes", hw.memory_bytes.value}, {"memory bytes/s", hw.memory_bytes_per_s.value}};
  for (const auto& [dtype, c] : hw.peak_flops) all[fmt::format("peak {}", name_of(dtype))] = c.value;
  for (const auto& [name, c] : hw.constants) all["constant " + name] = c.value;
  for (const auto& [name, t] : hw.kernels) {
    all[name + " per s"] = t.per_s.value;
    all[name + " floor s"] = t.floor_s.value;
  }
  for (const Link& link : hw.links) {
    all[link.name + " latency s"] = link.latency_s.value;
    all[link.name + " bytes/s"] = link.bytes_per_s.value;
  }
  return all;
}

double geometric_mean(const Table& table) {
  double logs = 0;
  for (const auto& [key, value] : table) logs += std::log(value);
  return table.empty() ? 0 : std::exp(logs / static_cast<double>(table.size()));
}

Difference compare_tables(const std::string& name, const Table& a, const Table& b) {
  Difference d;
  d.what = name;
  d.a = geometric_mean(a);
  d.b = geometric_mean(b);
  std::vector<double> ratios;
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (other != b.end()) ratios.push_back(other->second / value);
  }
  if (ratios.empty()) return d;
  std::sort(ratios.begin(), ratios.end());
  d.points = static_cast<int>(ratios.size());
  d.least = ratios.front();
  d.most = ratios.back();
  d.ratio = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
  return d;
}

/// Every key of both, in order.
template <class Value>
std::set<std::string> keys_of(const std::map<std::string, Value>& a, const std::map<std::string, Value>& b) {
  std::set<std::string> keys;
  for (const auto* map : {&a, &b}) {
    for (const auto& entry : *map) keys.insert(entry.first);
  }
  return keys;
}

template <class Value>
Value at_or_empty(const std::map<std::string, Value>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? Value() : found->second;
}

}  // namespace

std::vector<Difference> compare(const Hardware& a, const Hardware& b) {
  std::vector<Difference> all;
  const Tables in_a = tables_of(a), in_b = tables_of(b);
  for (const std::string& name : keys_of(in_a, in_b)) {
    all.push_back(compare_tables(name, at_or_empty(in_a, name), at_or_empty(in_b, name)));
  }
  const Table one = constants_of(a), two = constants_of(b);
  for (const std::string& name : keys_of(one, two)) {
    Difference d;
    d.what = name;
    d.a = at_or_empty(one, name);
    d.b = at_or_empty(two, name);
    if (d.a != 0) d.ratio = d.b / d.a;
    all.push_back(d);
  }
  return all;
}

}  // namespace triax::bench
