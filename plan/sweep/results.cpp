#include "plan/sweep/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace triax::plan {
namespace {

std::string head_lines(const std::vector<std::string>& head) {
  std::string text;
  for (const std::string& line : head) text += fmt::format("# {}\n", line);
  return text;
}

std::string setting_of(const std::vector<Setting>& settings, const std::string& name) {
  for (const auto& [key, value] : settings) {
    if (key == name) return value;
  }
  return {};
}

template <class List>
std::set<std::string> measured_metrics(const List& list) {
  std::set<std::string> names;
  for (const auto& one : list) {
    for (const auto& [name, value] : one.metrics) names.insert(name);
  }
  return names;
}

std::string csv_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

/// What people look at first, with the factor from the metric's unit to the column's.
struct Column {
  const char* metric;
  const char* title;
  double factor;
  int digits;
};
constexpr Column kColumns[] = {{"step_ms", "step ms", 1, 1},
                               {"tokens_per_s", "tokens/s", 1, 0},
                               {"bubble_fraction", "bubble %", 100, 2},
                               {"formula_bubble_fraction", "formula %", 100, 2},
                               {"exposed_comm_ms", "exposed ms", 1, 1},
                               {"comm_bytes", "sent MB", 1e-6, 3},
                               {"peak_memory_bytes", "peak MiB", 1.0 / 1048576, 1},
                               {"span", "span", 1, 3}};

std::string cell(const SweepRow& row, const Column& column) {
  const auto found = row.metrics.find(column.metric);
  if (found == row.metrics.end()) return "-";
  std::string text = fmt::format("{:.{}f}", found->second.mean * column.factor, column.digits);
  if (found->second.half_width)
    text += fmt::format(" +-{:.{}f}", *found->second.half_width * column.factor, column.digits);
  return text;
}

std::string aligned(const std::vector<std::vector<std::string>>& table) {
  std::vector<size_t> widths;
  for (const auto& line : table) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : table) {
    for (size_t i = 0; i < line.size(); ++i) {
      text += i + 1 == line.size() ? line[i] : fmt::format("{:<{}}  ", line[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace

double SweepRow::mean(const std::string& metric) const {
  const auto found = metrics.find(metric);
  return found == metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->second.mean;
}

std::vector<SweepRow> rows_of(const std::vector<PointRecord>& records) {
  std::vector<SweepRow> rows;
  std::vector<std::map<std::string, std::vector<double>>> values;
  for (const PointRecord& record : records) {
    size_t i = 0;
    while (i < rows.size() && (rows[i].settings != record.settings || rows[i].mode != record.mode)) ++i;
    if (i == rows.size()) {
      rows.push_back({record.settings, record.mode, record.ranks});
      values.emplace_back();
    }
    SweepRow& row = rows[i];
    ++row.repeats;
    if (record.state == PointState::Done) {
      ++row.done;
      for (const auto& [name, value] : record.metrics) values[i][name].push_back(value);
    } else if (row.state == PointState::Done) {
      row.state = record.state;
      row.reason = record.reason;
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [name, list] : values[i]) rows[i].metrics[name] = estimate(list);
  }
  return rows;
}

std::vector<std::string> setting_names(const std::vector<SweepRow>& rows) {
  std::vector<std::string> names;
  for (const SweepRow& row : rows) {
    for (const auto& [name, value] : row.settings) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted(1, '"');
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
  quoted += '"';
  return quoted;
}

std::string rows_csv(const std::vector<SweepRow>& rows, const std::vector<std::string>& head) {
  const std::vector<std::string> settings = setting_names(rows);
  const std::set<std::string> metrics = measured_metrics(rows);
  std::string text = head_lines(head) + "mode";
  for (const std::string& name : settings) text += fmt::format(",{}", csv_cell(name));
  text += ",ranks,repeats,done,state,reason";
  for (const std::string& name : metrics) text += fmt::format(",{0},{0}_ci95", name);
  text += '\n';
  for (const SweepRow& row : rows) {
    text += row.mode;
    for (const std::string& name : settings) text += fmt::format(",{}", csv_cell(setting_of(row.settings, name)));
    text += fmt::format(",{},{},{},{},{}", row.ranks, row.repeats, row.done, name_of(row.state), csv_cell(row.reason));
    for (const std::string& name : metrics) {
      const auto found = row.metrics.find(name);
      const bool has = found != row.metrics.end();
      text += fmt::format(",{},", has ? csv_number(found->second.mean) : "");
      if (has && found->second.half_width) text += csv_number(*found->second.half_width);
    }
    text += '\n';
  }
  return text;
}

std::string runs_csv(const std::vector<PointRecord>& records, const std::vector<std::string>& head) {
  const std::vector<std::string> settings = setting_names(rows_of(records));
  const std::set<std::string> metrics = measured_metrics(records);
  std::string text = head_lines(head) + "mode";
  for (const std::string& name : settings) text += fmt::format(",{}", csv_cell(name));
  text += ",ranks,repeat,state,reason,exit_code,wall_s,started,host,version,commit";
  for (const std::string& name : metrics) text += fmt::format(",{}", name);
  text += '\n';
  for (const PointRecord& record : records) {
    text += record.mode;
    for (const std::string& name : settings) text += fmt::format(",{}", csv_cell(setting_of(record.settings, name)));
    text += fmt::format(",{},{},{},{},{},{:.3f},{},{},{},{}", record.ranks, record.repeat, name_of(record.state),
                        csv_cell(record.reason), record.exit_code, record.wall_s, record.started, csv_cell(record.host),
                        record.version, record.commit);
    for (const std::string& name : metrics) {
      const auto found = record.metrics.find(name);
      text += fmt::format(",{}", found == record.metrics.end() ? "" : csv_number(found->second));
    }
    text += '\n';
  }
  return text;
}

std::string rows_json(const std::vector<SweepRow>& rows) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const SweepRow& row : rows) {
    Json settings = Json::object(), metrics = Json::object();
    for (const auto& [name, value] : row.settings) settings[name] = value;
    for (const auto& [name, value] : row.metrics) {
      metrics[name] = {{"mean", value.mean}, {"n", value.count}, {"ci95", nullptr}};
      if (value.half_width) metrics[name]["ci95"] = *value.half_width;
    }
    list.push_back({{"mode", row.mode},
                    {"settings", settings},
                    {"ranks", row.ranks},
                    {"repeats", row.repeats},
                    {"done", row.done},
                    {"state", name_of(row.state)},
                    {"reason", row.reason},
                    {"metrics", metrics}});
  }
  return Json{{"schema", "triax.sweep/1"}, {"rows", list}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string rows_table(const std::vector<SweepRow>& rows) {
  const std::vector<std::string> settings = setting_names(rows);
  const std::set<std::string> metrics = measured_metrics(rows);
  std::vector<std::vector<std::string>> table(1, settings);
  std::vector<Column> columns;
  for (const Column& column : kColumns) {
    if (metrics.contains(column.metric)) columns.push_back(column);
  }
  table[0].insert(table[0].end(), {"ranks", "n"});
  for (const Column& column : columns) table[0].emplace_back(column.title);
  table[0].emplace_back("state");
  for (const SweepRow& row : rows) {
    std::vector<std::string> line;
    for (const std::string& name : settings) line.push_back(setting_of(row.settings, name));
    line.insert(line.end(), {std::to_string(row.ranks), std::to_string(row.done)});
    for (const Column& column : columns) line.push_back(cell(row, column));
    const std::string first_line = row.reason.substr(0, row.reason.find('\n'));
    line.push_back(first_line.empty() ? name_of(row.state) : fmt::format("{}: {}", name_of(row.state), first_line));
    table.push_back(std::move(line));
  }
  return aligned(table);
}

}  // namespace triax::plan
