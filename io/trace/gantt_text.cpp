#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "io/trace/gantt.h"

namespace triax::io {
namespace {

using parallel::OpKind;

const char* colour_of(char letter) {
  switch (letter) {
    case 'F':
      return "\033[34m";
    case 'B':
    case 'I':
      return "\033[32m";
    case 'W':
      return "\033[33m";
    case 'R':
      return "\033[36m";
    default:
      return "\033[90m";
  }
}

struct ColumnScale {
  int64_t end_ps;
  int width;
  // Columns whose middle lies in [start, stop): every column shows the op that holds its middle.
  int column(int64_t ps) const {
    const double at = static_cast<double>(ps) * width / static_cast<double>(end_ps);
    return std::clamp(static_cast<int>(at + 0.5), 0, width);
  }
};

// Letter, micro-batch, then dashes; only the letter where the number does not fit.
void draw(std::string& row, int begin, int end, const TimelineEvent& event) {
  if (begin >= end) return;
  const std::string label = fmt::format("{}{}", parallel::name_of(event.kind), event.micro_batch);
  const auto size = static_cast<size_t>(end - begin);
  std::string block = label.size() <= size ? label : label.substr(0, 1);
  block.resize(size, label.size() <= size ? '-' : label[0]);
  row.replace(static_cast<size_t>(begin), size, block);
}

std::string coloured(const std::string& row) {
  std::string out;
  const char* current = "";
  for (const char c : row) {
    const bool continues = c == '-' || (c >= '0' && c <= '9');
    const char* colour = continues ? current : colour_of(c);
    if (std::string_view(colour) != current) out += colour;
    current = colour;
    out += c;
  }
  return out + "\033[0m";
}

}  // namespace

std::string text_gantt(const Timeline& timeline, const TextGanttOptions& options) {
  const ColumnScale scale{std::max<int64_t>(end_ps(timeline), 1), std::max(options.width, 10)};
  std::map<int, std::string> rows;
  for (const TimelineRank& rank : timeline.ranks) rows[rank.rank].assign(static_cast<size_t>(scale.width), '.');
  for (const TimelineEvent& event : timeline.events) {
    if (!parallel::is_compute(event.kind)) continue;
    std::string& row = rows[event.rank];
    row.resize(static_cast<size_t>(scale.width), '.');
    draw(row, scale.column(event.start_ps), scale.column(event.stop_ps), event);
  }
  std::string text;
  const size_t digits = rows.empty() ? 1 : std::to_string(rows.rbegin()->first).size();
  for (const auto& [rank, row] : rows) {
    text += fmt::format("{:>{}} |{}|\n", rank, digits, options.colour == Colour::Yes ? coloured(row) : row);
  }
  return text;
}

}  // namespace triax::io
