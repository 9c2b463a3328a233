#include "train/communication_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

namespace triax::train {
namespace {

constexpr int kOperations = static_cast<int>(comm::Operation::Barrier) + 1;

/// Rows in the order of the axes, then of the operations; parts of a group behind it.
int rank_of(const std::string& group) {
  static const std::vector<std::string> order{"tp",         "kv_replicas",    "pp",    "embedding", "dp", "dp_shard",
                                              "dp_replica", "model_parallel", "world", "control"};
  return static_cast<int>(std::find(order.begin(), order.end(), group) - order.begin());
}

std::string lines_of(const std::map<comm::Ledger::Key, comm::LedgerEntry>& entries, bool labelled) {
  std::string text;
  for (const auto& [key, e] : entries) {
    const std::string name = labelled ? "tp " + key.first : key.first + " -";
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {} {} {} {} {} {} {}\n", name, static_cast<int>(key.second),
                   e.calls, e.payload_bytes, e.sent_bytes, e.busy_s, e.exposed_s, e.converted_calls, e.counted.across,
                   e.waited_s, e.met_calls);
  }
  return text;
}

/// The texts of all ranks, one after the other.
std::string gather_text(std::string mine, comm::Communicator& world) {
  int64_t longest = static_cast<int64_t>(mine.size());
  world.all_reduce(Tensor(&longest, DType::Int64, {1}), comm::ReduceOp::Max).wait();
  mine.resize(static_cast<size_t>(longest), ' ');
  std::string all(mine.size() * static_cast<size_t>(world.size()), ' ');
  world
      .all_gather(Tensor(mine.data(), DType::UInt8, {longest}),
                  Tensor(all.data(), DType::UInt8, {longest * world.size()}))
      .wait();
  return all;
}

std::string all_lines(const StepCommunication& steps) {
  return lines_of(steps.by_group(), false) + lines_of(steps.by_label(), true);
}

void add_difference(const StepCommunication::Entries& end, const StepCommunication::Entries& start,
                    StepCommunication::Entries& sum) {
  for (const auto& [key, e] : end) {
    const auto found = start.find(key);
    const comm::LedgerEntry before = found == start.end() ? comm::LedgerEntry() : found->second;
    if (e.calls == before.calls && e.exposed_s == before.exposed_s) continue;
    comm::LedgerEntry& total = sum[key];
    total.calls += e.calls - before.calls;
    total.payload_bytes += e.payload_bytes - before.payload_bytes;
    total.sent_bytes += e.sent_bytes - before.sent_bytes;
    total.converted_calls += e.converted_calls - before.converted_calls;
    total.counted.inside += e.counted.inside - before.counted.inside;
    total.counted.across += e.counted.across - before.counted.across;
    total.busy_s += e.busy_s - before.busy_s;
    total.exposed_s += e.exposed_s - before.exposed_s;
  }
}

/// Of all calls, as of those of which it is known.
double waited_s(const CommunicationRow& r) { return r.met_calls > 0 ? r.waited_s / r.met_calls * r.calls : 0; }

std::vector<CommunicationRow> rows_of(const std::string& text, double ranks) {
  std::istringstream in(text);
  std::map<std::tuple<int, std::string, std::string, int>, CommunicationRow> rows;
  CommunicationRow one;
  int op = 0;
  double converted = 0;
  while (in >> one.group >> one.kind >> op >> one.calls >> one.payload_bytes >> one.sent_bytes >> one.busy_s >>
         one.exposed_s >> converted >> one.across_bytes >> one.waited_s >> one.met_calls) {
    if (op < 0 || op >= kOperations) break;
    if (one.kind == "-") one.kind.clear();
    CommunicationRow& row = rows[{rank_of(one.group), one.group, one.kind, op}];
    row.group = one.group;
    row.kind = one.kind;
    row.op = static_cast<comm::Operation>(op);
    row.calls += one.calls / ranks;
    row.payload_bytes += one.payload_bytes / ranks;
    row.sent_bytes += one.sent_bytes / ranks;
    row.busy_s += one.busy_s / ranks;
    row.exposed_s += one.exposed_s / ranks;
    row.waited_s += one.waited_s / ranks;
    row.met_calls += one.met_calls / ranks;
    row.across_bytes += one.across_bytes / ranks;
    row.converted = row.converted || converted > 0;
  }
  std::vector<CommunicationRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

}  // namespace

void StepCommunication::enter(const comm::Ledger& ledger) {
  if (inside_) return;
  inside_ = true;
  group_start_ = ledger.snapshot();
  label_start_ = ledger.labelled();
}

void StepCommunication::leave(const comm::Ledger& ledger) {
  if (!inside_) return;
  inside_ = false;
  group_end_ = ledger.snapshot();
  label_end_ = ledger.labelled();
  add_difference(group_end_, group_start_, by_group_);
  add_difference(label_end_, label_start_, by_label_);
}

void StepCommunication::add_waited(const comm::Ledger& ledger) {
  const auto add = [](const Entries& now, const Entries& before, Entries& sum) {
    for (auto& [key, total] : sum) {
      const auto entry = now.find(key), start = before.find(key);
      if (entry == now.end()) continue;
      const comm::LedgerEntry none;
      const comm::LedgerEntry& from = start == before.end() ? none : start->second;
      total.waited_s += entry->second.waited_s - from.waited_s;
      total.met_calls += entry->second.met_calls - from.met_calls;
    }
  };
  add(ledger.snapshot(), group_end_, by_group_);
  add(ledger.labelled(), label_end_, by_label_);
}

std::vector<CommunicationRow> gather_communication(const StepCommunication& steps, comm::Communicator& world) {
  return rows_of(gather_text(all_lines(steps), world), world.size());
}

std::vector<CommunicationRow> own_communication(const StepCommunication& steps) { return rows_of(all_lines(steps), 1); }

std::string communication_text(const std::vector<CommunicationRow>& rows, int64_t steps, double step_s,
                               CommunicationScope scope) {
  std::string text = fmt::format(
      "communication per {}\n  {:<16}{:<15}{:>9}{:>12}{:>11}{:>10}{:>10}{:>12}{:>11}{:>11}\n",
      scope == CommunicationScope::AllRanks ? "step, mean of all ranks"
                                            : "completed step, this rank alone, with what the failed step waited",
      "group", "operation", "calls", "sent MB", "busy ms", "wait ms", "GB/s", "exposed ms", "hidden ms", "of step %");
  const double n = static_cast<double>(std::max<int64_t>(steps, 1));
  for (const CommunicationRow& r : rows) {
    if (r.sent_bytes == 0 && r.exposed_s == 0) continue;
    const std::string name = r.kind.empty() ? r.group : fmt::format("  {}", r.kind);
    const double hidden = std::max(0.0, r.busy_s - r.exposed_s);
    const double moving = r.busy_s - waited_s(r);
    const std::string wait = r.met_calls > 0 ? fmt::format("{:.3f}", waited_s(r) / n * 1e3) : "-";
    fmt::format_to(std::back_inserter(text),
                   "  {:<16}{:<15}{:>9.1f}{:>12.4f}{:>11.3f}{:>10}{:>10.3f}{:>12.3f}{:>11.3f}{:>11.1f}{}\n", name,
                   comm::name_of(r.op), r.calls / n, r.sent_bytes / n * 1e-6, r.busy_s / n * 1e3, wait,
                   moving > 0 ? r.sent_bytes / moving * 1e-9 : 0.0, r.exposed_s / n * 1e3, hidden / n * 1e3,
                   step_s > 0 ? 100 * r.exposed_s / step_s : 0.0, r.converted ? "  converted" : "");
  }
  return text;
}

std::string communication_json(const std::vector<CommunicationRow>& rows, int64_t steps) {
  const double n = static_cast<double>(std::max<int64_t>(steps, 1));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CommunicationRow& r : rows) {
    if (r.sent_bytes == 0 && r.exposed_s == 0) continue;
    list.push_back({{"group", r.group},
                    {"kind", r.kind},
                    {"operation", comm::name_of(r.op)},
                    {"calls", r.calls / n},
                    {"payload_bytes", r.payload_bytes / n},
                    {"sent_bytes", r.sent_bytes / n},
                    {"across_bytes", r.across_bytes / n},
                    {"busy_ms", r.busy_s / n * 1e3},
                    {"waited_ms", r.met_calls > 0 ? nlohmann::ordered_json(waited_s(r) / n * 1e3) : nullptr},
                    {"exposed_ms", r.exposed_s / n * 1e3},
                    {"converted", r.converted}});
  }
  return list.dump();
}

}  // namespace triax::train
