#include "plan/papers/csv.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace triax::plan {
namespace {

std::vector<std::string> cells_of(const std::string& line, const std::string& where) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  if (quoted) throw RunTimeError(where + ": a quote is not closed");
  return cells;
}

}  // namespace

const std::string& CsvRow::text(const std::string& column) const {
  static const std::string kEmpty;
  const auto found = columns_->find(column);
  return found == columns_->end() || found->second >= cells_.size() ? kEmpty : cells_[found->second];
}

double CsvRow::number(const std::string& column, double otherwise) const {
  const std::string& cell = text(column);
  if (cell.empty()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() ? otherwise : value;
}

int64_t CsvRow::integer(const std::string& column, int64_t otherwise) const {
  return static_cast<int64_t>(number(column, static_cast<double>(otherwise)));
}

void read_csv(const std::string& path, CsvFile& file) {
  std::ifstream stream(path);
  if (!stream) throw RunTimeError(path + ": cannot be read");
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    if (line.empty() || line == "\r") continue;
    std::vector<std::string> cells = cells_of(line, where);
    if (file.columns.empty()) {
      for (size_t i = 0; i < cells.size(); ++i) file.columns.emplace(cells[i], i);
      continue;
    }
    if (cells.size() > file.columns.size()) {
      throw RunTimeError(fmt::format("{}: {} cells, the header has {}", where, cells.size(), file.columns.size()));
    }
    file.rows.emplace_back(file.columns, std::move(cells));
  }
}

}  // namespace triax::plan
