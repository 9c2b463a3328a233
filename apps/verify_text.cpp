#include "apps/verify_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/program_request.h"
#include "plan/verify.h"

namespace triax::apps {

int print_verification(const std::string& directory, const bench::Hardware& hardware, Format format,
                       const std::string& out) {
  const plan::Verification found = plan::verify_run(directory, hardware);
  std::string text;
  if (format == Format::Csv) text = "category,predicted,measured,error\n";
  if (format == Format::Table) {
    text = fmt::format("{}: {} on {}\n{:<10} {:>14} {:>14} {:>9}\n", directory, found.options.model.name, hardware.name,
                       "category", "predicted", "measured", "error %");
  }
  nlohmann::ordered_json json{{"schema", "triax-verify"}, {"version", 1}, {"run", directory}};
  for (const plan::Compared& row : found.rows) {
    json["categories"][row.name] = {{"predicted", row.predicted}, {"measured", row.measured}, {"error", row.error}};
    if (format == Format::Csv) text += fmt::format("{},{},{},{}\n", row.name, row.predicted, row.measured, row.error);
    if (format == Format::Table) {
      text +=
          fmt::format("{:<10} {:>14.6g} {:>14.6g} {:>+9.2f}\n", row.name, row.predicted, row.measured, 100 * row.error);
    }
  }
  json["notes"] = found.notes;
  if (format == Format::Json) text = json.dump(2) + "\n";
  for (const std::string& note : found.notes) {
    if (format == Format::Table) text += "note: " + note + "\n";
  }
  write_result(out, text);
  return 0;
}

}  // namespace triax::apps
