// `triax sim`: time and memory of a run on a machine before it runs.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/entry_makers.h"
#include "apps/program_request.h"
#include "apps/sim_text.h"
#include "apps/verify_text.h"
#include "base/error.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/gantt.h"
#include "model/presets.h"
#include "plan/hardware_presets.h"
#include "plan/rank_traces.h"

namespace triax::apps {
namespace {

std::string sim_help() {
  SimRequest unused;
  std::string text = kSimUsage;
  text += "  --hw NAME|hw.json\n        machine: a name of --list-hw, or what 'triax bench all' has written\n";
  return text + help_lines(sim_entries(unused));
}

void write_pictures(const SimReport& report) {
  const SimRequest& r = report.request;
  if (r.chrome.empty() && r.svg.empty()) return;
  const plan::SimulatedStep& step = *report.prediction.simulated;
  const io::Timeline timeline =
      io::make_timeline(step.program, step.simulation.times, "simulated", static_cast<int>(r.replica));
  if (!r.chrome.empty()) write_file(r.chrome, chrome_trace(timeline));
  if (r.svg.empty()) return;
  io::SvgGanttOptions options;
  options.title = headline(report);
  options.unit_ps = report.prediction.step_s() >= 1 ? 1e12 : 1e9;
  options.unit_name = report.prediction.step_s() >= 1 ? "s" : "ms";
  write_file(r.svg, svg_gantt(timeline, options));
}

/// Says on stderr what was written: stdout is the result's.
void write_traces(const SimReport& report) {
  const SimRequest& r = report.request;
  if (!r.hta.empty()) {
    const int files =
        plan::write_hta(report.prediction, r.options, r.hardware.devices_per_node, static_cast<int>(r.replica), r.hta);
    fmt::print(stderr, "{}/rank-*.json.gz: {} of {} ranks\n", r.hta, files, report.prediction.ranks);
  }
  if (!r.chakra.empty()) {
    const int files = plan::write_chakra(report.prediction, r.options, r.chakra);
    fmt::print(stderr, "{}/triax.*.et, comm_group.json: {} ranks\n", r.chakra, files);
  }
}

}  // namespace

int sim_command(const std::vector<std::string>& args) {
  SimRequest request;
  read_sim_request(args, request);
  if (request.parsed.help) return fmt::print("{}", sim_help()), 0;
  if (request.parsed.list_models) return fmt::print("{}", model::list_presets()), 0;
  if (request.parsed.list_hardware) return fmt::print("{}", plan::list_hardware()), 0;
  if (request.describe) return fmt::print("{}", kSimDescription), 0;
  if (!request.verify.empty()) return print_verification(request.verify, request.hardware, request.format, request.out);
  const SimReport report{request, plan::predict(request.options, request.hardware, request.prediction),
                         plan::assumed_that_matter(request.options, request.hardware)};
  write_pictures(report);
  write_traces(report);
  const std::string text = request.format == Format::Json  ? json_text(report)
                           : request.format == Format::Csv ? csv_text(report)
                                                           : table_text(report);
  write_result(request.out, text);
  return static_cast<int>(report.prediction.fits() ? ExitCode::Done : ExitCode::Infeasible);
}

}  // namespace triax::apps
