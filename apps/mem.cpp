// `triax mem`: memory of every stage of a run before it runs, by formula and by the trainer's own code.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/entry_makers.h"
#include "apps/mem_request.h"
#include "apps/mem_text.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "io/options/validate.h"
#include "model/counts.h"
#include "plan/hardware_choice.h"
#include "train/program_builder.h"

namespace triax::apps {
namespace {

/// Layer passes that take about ten seconds: beyond, `auto` runs the first and the last stage only.
constexpr double kQuickPasses = 4e6;

std::string mem_help() {
  MemRequest unused;
  return kMemUsage + help_lines(mem_entries(unused));
}

/// The exact forecast where the trainer takes the run; else the reason.
void add_exact(const MemRequest& r, MemReport& report) {
  if (r.exact == "none") {
    report.exact_note = "not asked for (--exact none)";
    return;
  }
  io::RunOptions options;
  if (const std::string reason = trainer_options(r, options); !reason.empty()) {
    report.exact_note = "the trainer does not take this run: " + reason;
    return;
  }
  report.program = parallel::make_training_program(train::program_options(options));
  const int64_t m = plan::equivalent_micro_batches(options);
  const bool quick = plan::exact_work(options, m) <= kQuickPasses;
  const bool all = r.exact == "all" || (r.exact == "auto" && quick);
  const plan::ExactMemory exact = plan::exact_memory(options, m, all ? plan::ExactScope::All : plan::ExactScope::Ends);
  report.exact = exact.stages;
  report.exact_micro_batches = m;
  const int64_t asked = options.batch.num_micro_batches;
  report.exact_note = all ? "every stage" : "first and last stage; --exact all runs every one";
  if (m < asked) {
    report.exact_note += fmt::format("; a step of {} micro-batches, which keeps as much alive as one of {}", m, asked);
  }
}

MemReport compute(const MemRequest& r) {
  MemReport report{r, plan::state_widths(r.options, r.terms.gradients)};
  const comm::GridShape& grid = r.options.parallel.grid;
  if (r.num_parameters > 0) {
    const int64_t model_ranks = int64_t{grid.tensor} * grid.pipeline;
    model::StageMemory memory;
    memory.parameters = (r.num_parameters + model_ranks - 1) / model_ranks;
    memory.states = model::state_bytes(memory.parameters, report.widths, r.terms.zero);
    report.stages = {memory};
    report.parameters = r.num_parameters;
    report.exact_note = "needs the model's dimensions";
    return report;
  }
  report.parameters = model::parameter_count(r.options.model);
  report.layers = io::layer_map_of(r.options);
  report.stages = plan::memory_by_formula(r.options, r.terms);
  add_exact(r, report);
  return report;
}

}  // namespace

int mem_command(const std::vector<std::string>& args) {
  MemRequest request;
  read_mem_request(args, request);
  if (request.parsed.help) return fmt::print("{}", mem_help()), 0;
  if (request.describe) return fmt::print("{}", kMemDescription), 0;
  const std::string& machine = request.options.control.hardware;
  std::optional<bench::Hardware> hardware;
  if (!machine.empty()) hardware = plan::hardware_of(machine);  // before minutes of work
  MemReport report = compute(request);
  if (hardware) report.room = plan::room_on(*hardware, report.stages, report.exact);
  std::string text;
  if (request.format == Format::Json) text = json_text(report);
  if (request.format == Format::Csv) text = csv_text(report);
  if (request.format == Format::Table) text = table_text(report);
  write_result(request.out, text);
  return static_cast<int>(report.room && !report.room->fits() ? ExitCode::Infeasible : ExitCode::Done);
}

}  // namespace triax::apps
