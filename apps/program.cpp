// `triax program`: shows, checks, exports, hashes and times the program of a step, without a model and without ranks.
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/entry_makers.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "base/version.h"
#include "parallel/checker.h"
#include "parallel/csv_schedule.h"
#include "parallel/memory_effects.h"
#include "parallel/program_json.h"
#include "parallel/program_print.h"

namespace triax::apps {
namespace {

using parallel::Program;

constexpr const char* kProgramUsage =
    "usage: triax program show|check|export|hash|time [options]\n\n"
    "  show    the ops of every pipeline position, in PyTorch's action syntax\n"
    "  check   deadlock, messages, lifetimes, collective order, missing ops; exit code 4 when something is wrong\n"
    "  export  the order as CSV, one row per rank, as torchtitan reads it\n"
    "  hash    the hash that every command prints for this program\n"
    "  time    makespan, bubble, idle time by cause, a drawing; unit costs unless --cost is given\n\n"
    "  triax program time --pipeline-model-parallel-size 4 --num-microbatches 8 --pipeline-schedule zb-h1\n\n"
    "Options of the layout are those of triax train ('triax options' lists them). Its own:\n";

std::string program_help() {
  ProgramRequest unused;
  return kProgramUsage + help_lines(program_entries(unused));
}

std::string program_headline(const Program& program) {
  size_t ops = 0;
  for (const auto& list : program.positions) ops += list.size();
  return fmt::format("{}, p {}, v {}, m {}: {} ops, program {}", program.schedule, program.pipeline, program.chunks,
                     program.num_micro_batches, ops, hash_text(program));
}

// Results go to --out where it is given.
int print(const ProgramRequest& r, const std::string& text) {
  write_result(r.out, text);
  return 0;
}

int show(const ProgramRequest& r) {
  using parallel::ShowOps;
  if (r.inside && r.program.units.empty()) {
    throw ConfigError(
        "program show --inside: nothing is gathered or reduced inside of ops; it needs all dimensions of a model (or "
        "--model) and --data-parallel-size of at least 2");
  }
  using parallel::Inside;
  if (r.format == Format::Json) {
    return print(r, parallel::json_of(r.program, r.inside ? Inside::Show : Inside::Hide));
  }
  if (r.format == Format::Csv) {
    throw ConfigError("program show --format csv: must be table or json; 'triax program export' writes CSV");
  }
  if (r.inside) return print(r, program_headline(r.program) + "\n" + inside_of(r.program));
  return print(r, program_headline(r.program) + "\n" + list_of(r.program, r.all_ops ? ShowOps::All : ShowOps::Compute));
}

int report_faults(const Program& program, const std::vector<std::string>& faults) {
  fmt::print("{}\n", program_headline(program));
  for (const std::string& fault : faults) fmt::print("FAULT: {}\n", fault);
  return static_cast<int>(ExitCode::ValidationFailed);
}

int check(const ProgramRequest& r) {
  const std::vector<std::string> faults = parallel::check(r.program);
  if (!faults.empty()) return report_faults(r.program, faults);
  return print(r, "ok: " + program_headline(r.program) + "\n");
}

int time(const ProgramRequest& r) {
  const std::vector<std::string> faults = parallel::check(r.program);
  return faults.empty() ? program_time(r) : report_faults(r.program, faults);
}

}  // namespace

int program_command(const std::vector<std::string>& args) {
  const std::string action = args.empty() ? "" : args[0];
  if (action == "--help" || action == "-h") return fmt::print("{}", program_help()), 0;
  const bool known =
      action == "show" || action == "check" || action == "export" || action == "hash" || action == "time";
  if (!known) {
    throw ConfigError(
        fmt::format("program {}: must be followed by show, check, export, hash or time; 'triax program "
                    "--help' explains them",
                    action));
  }
  ProgramRequest request;
  read_request({args.begin() + 1, args.end()}, request);
  if (request.parsed.help) return fmt::print("{}", program_help()), 0;
  if (request.inside && action != "show") {
    throw ConfigError(fmt::format("program {} --inside: only show lists what happens inside of ops", action));
  }
  if (request.describe && action != "time") {
    throw ConfigError(fmt::format("program {} --describe: only time has columns and keys", action));
  }
  if (action == "show") return show(request);
  if (action == "check") return check(request);
  if (action == "hash") return print(request, hash_text(request.program) + "\n");
  if (action == "export") {
    using parallel::CsvActions;
    return print(request, csv_of(request.program, request.all_ops ? CsvActions::All : CsvActions::Compute));
  }
  return request.describe ? program_time(request) : time(request);
}

}  // namespace triax::apps
