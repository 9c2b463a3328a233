// `triax report`: one self-contained HTML page of a run, or of several side by side.
#include "plan/report/report.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "plan/report/events.h"

namespace triax::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportUsage =
    "usage: triax report RUN... [--out FILE.html] [--anonymous]\n\n"
    "  RUN          directory of a run, finished or not, or of a sweep (all its points)\n"
    "  --out FILE   default RUN/report.html; of several runs report.html here\n"
    "  --anonymous  no hosts, users, paths, job ids\n\n"
    "One run: curves, events, layout, pipeline, communication, options, environment. Several: what differs, metrics "
    "with\n"
    "confidence intervals, curves over each other, what cannot be compared. One file, nothing loaded from elsewhere.\n";

struct ReportRequest {
  std::vector<std::string> directories;
  std::string out;
  bool anonymous = false;
};

ReportRequest parse_report(const std::vector<std::string>& args) {
  ReportRequest request;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (word == "--out" && i + 1 < args.size()) word = fmt::format("--out={}", args[++i]);
    if (word.starts_with("--out=") && word.size() > 6) {
      request.out = word.substr(6);
    } else if (word == "--anonymous" || word == "--anonymous=true") {
      request.anonymous = true;
    } else if (word == "--no-anonymous" || word == "--anonymous=false") {
      request.anonymous = false;
    } else if (word.starts_with("-")) {
      throw ConfigError(fmt::format("report {}: must be --out FILE or --anonymous", word));
    } else {
      request.directories.push_back(word);
    }
  }
  if (request.directories.empty())
    throw ConfigError("report: needs the directory of a run; 'triax report --help' explains it");
  return request;
}

/// The points of a sweep that have begun, in order of name; any other directory as it is.
std::vector<std::string> runs_in(const std::string& directory) {
  if (!fs::is_directory(directory + "/points")) return {directory};
  std::vector<std::string> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory + "/points")) {
    const std::string name = entry.path().filename().string();
    const bool aside = name.find(".failed-") != std::string::npos || name.find(".interrupted-") != std::string::npos;
    if (!aside && fs::exists(entry.path() / "run.json")) runs.push_back(entry.path().string());
  }
  std::sort(runs.begin(), runs.end());
  if (runs.empty())
    throw ConfigError(
        fmt::format("report {}: no point of this sweep has a run.json (simulated points are not runs)", directory));
  return runs;
}

/// Names of several runs without what all of them begin with.
void shorten_names(std::vector<plan::RunData>& runs) {
  for (const plan::RunData& run : runs) {
    for (const plan::RunData& other : runs) {
      if (&run != &other && run.name == other.name) {
        for (plan::RunData& one : runs) one.name = one.directory;
        return;
      }
    }
  }
}

}  // namespace

int report_command(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    fmt::print(args.empty() ? stderr : stdout, "{}", kReportUsage);
    return args.empty() ? static_cast<int>(ExitCode::Usage) : 0;
  }
  ReportRequest request = parse_report(args);
  std::vector<plan::RunData> runs;
  for (const std::string& directory : request.directories) {
    for (const std::string& run : runs_in(directory)) runs.push_back(plan::read_run(run));
  }
  shorten_names(runs);
  if (request.out.empty()) request.out = runs.size() == 1 ? runs[0].directory + "/report.html" : "report.html";
  int number = 0;
  for (plan::RunData& run : runs) {
    run.events = plan::events_of(run);
    if (request.anonymous) plan::make_anonymous(run, ++number);
  }
  write_file(request.out, runs.size() == 1 ? plan::run_page(runs[0]) : plan::comparison_page(runs));
  fmt::print("{}\n", request.out);
  return 0;
}

}  // namespace triax::apps
