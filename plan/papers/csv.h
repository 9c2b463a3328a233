// A CSV file with a header line, read by column name.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace triax::plan {

class CsvRow {
 public:
  CsvRow(const std::map<std::string, size_t>& columns, std::vector<std::string> cells)
      : columns_(&columns), cells_(std::move(cells)) {}
  /// Empty where the column is missing.
  const std::string& text(const std::string& column) const;
  /// `otherwise` where the cell is empty or the column missing.
  double number(const std::string& column, double otherwise = 0) const;
  int64_t integer(const std::string& column, int64_t otherwise = 0) const;

 private:
  const std::map<std::string, size_t>* columns_;
  std::vector<std::string> cells_;
};

struct CsvFile {
  std::map<std::string, size_t> columns;
  std::vector<CsvRow> rows;
};

/// RFC 4180. Throws RunTimeError naming file and line for a row with more cells than the header, an open quote.
void read_csv(const std::string& path, CsvFile& file);

}  // namespace triax::plan
