// `triax train`: trains, or with --skip-train evaluates saved weights, on the ranks that the launcher started.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "apps/commands.h"
#include "apps/rehearse.h"
#include "apps/session.h"
#include "apps/supervisor.h"
#include "base/error.h"
#include "base/flight_recorder.h"
#include "base/last_words.h"
#include "base/log.h"
#include "io/trace/blame.h"
#include "model/presets.h"
#include "plan/cost_model.h"
#include "plan/hardware_choice.h"
#include "plan/hardware_presets.h"
#include "train/training_run.h"

namespace triax::apps {
namespace {

io::OptionEntry eval_split_option(train::EvaluationSplit& split) {
  io::OptionEntry entry;
  entry.name = "eval-split";
  entry.kind = io::ValueKind::Value;
  entry.group = io::OptionGroup::Run;
  entry.value_name = "validation|test";
  entry.help = "what --skip-train evaluates; default validation";
  entry.set = [&split](io::RunOptions&, const std::vector<std::string>& values) -> std::string {
    if (values[0] != "validation" && values[0] != "test") return "must be validation or test";
    split = values[0] == "test" ? train::EvaluationSplit::Test : train::EvaluationSplit::Validation;
    return {};
  };
  entry.get = [&split](const io::RunOptions&) -> std::vector<std::string> {
    return {split == train::EvaluationSplit::Test ? "test" : "validation"};
  };
  return entry;
}

std::string full_name(const comm::MpiSession& session, const RankName& name) {
  const std::string place = name.place.empty() ? "" : ", " + name.place;
  return fmt::format("rank {} ({}{})", session.rank(), session.host(), place);
}

/// How long a failing rank waits for the others' records before it reports: ranks that fail alike do so within that.
constexpr std::chrono::milliseconds kStopSettle(300);
/// The rank that waited first may only wait for one that itself waits.
constexpr std::chrono::milliseconds kSettleLost(1000);

/// The run's objects are alive here: unwinding them would wait for peers that wait for this rank.
[[noreturn]] void abort_job(comm::MpiSession& session, const RankName& name, FlightRecorder& flight, FailureKind kind,
                            const std::exception& error) {
  end_by_force_after(io::report_patience_s(session.size()), static_cast<int>(ExitCode::RunTime));
  const std::string words = words_of(error);
  flight.set_failure(kind, words);
  const std::string directory = run_directory_of(flight.header());
  const bool lost = kind == FailureKind::PeerLost && !directory.empty();
  // When all ranks fail alike, rank 0 says it and ends the job before the others repeat it.
  if (session.rank() != 0 && !lost) std::this_thread::sleep_for(kStopSettle);
  say_last_words(fmt::format("{}: {}\n", full_name(session, name), words));
  if (session.rank() == 0 || lost) std::this_thread::sleep_for(lost ? kSettleLost : kStopSettle);
  if (!directory.empty()) say_last_words(io::claim_failure_report(directory));
  session.abort(static_cast<int>(ExitCode::RunTime));
}

/// --hw with the virtual clock: op times as `triax sim` predicts them.
void take_machine(train::RunRequest& request) {
  const io::RunControl& control = request.parsed.options.control;
  if (control.hardware.empty()) return;
  const bench::Hardware machine = plan::hardware_of(control.hardware);  // an unknown name is refused in any case
  if (control.clock != "virtual") {
    request.parsed.notes.push_back(fmt::format("--hw {}: only --clock virtual uses it", control.hardware));
    return;
  }
  if (request.parsed.given("cost")) {
    throw ConfigError(
        fmt::format("--hw {}: and --cost both give the times of ops; leave one of them out", control.hardware));
  }
  request.op_costs = [machine](const io::RunOptions& options) { return plan::costs_of(options, machine).table; };
}

void check_world_size(const RehearseWords& words, int ranks) {
  if (words.world == 0 || words.world == ranks) return;
  throw ConfigError(
      fmt::format("--world-size {0}: the launcher started {1} ranks; start {0} (srun -n {0}, mpiexec -n {0}), or leave "
                  "the option out",
                  words.world, ranks));
}

int run_on_ranks(comm::MpiSession& session, RankName& name, train::RunRequest& request, const RehearseWords& words,
                 const std::vector<io::OptionEntry>& extra, const std::vector<std::string>& args) {
  // What concerns the run as a whole is said by rank 0 alone.
  init_log(session.rank() == 0 ? "info" : "error", session.rank() == 0 ? "" : fmt::format("rank {}", session.rank()));
  request.parsed = io::parse_options(args, extra);
  take_machine(request);
  check_world_size(words, session.size());
  train::DataFacts facts = train::prepare_options(request, session.size());
  FlightRecorder& flight = *request.flight;
  // Alive until the job ends: unwinding its objects would wait for peers that wait for this rank.
  std::unique_ptr<train::TrainingRun> run;
  try {
    run = std::make_unique<train::TrainingRun>(session, request, std::move(facts));
    name.place = run->place();
    return static_cast<int>(run->run());
  } catch (const ConfigError&) {
    throw;
  } catch (const comm::PeerLost& error) {
    abort_job(session, name, flight, FailureKind::PeerLost, error);
  } catch (const ToldError& error) {
    abort_job(session, name, flight, FailureKind::Told, error);
  } catch (const std::exception& error) {
    abort_job(session, name, flight, FailureKind::Own, error);
  }
}

/// Deadline and supervision, as far as they are known before MPI says which rank reports a wrong option.
io::RunControl early_options(const std::vector<std::string>& args, const std::vector<io::OptionEntry>& extra) {
  try {
    return io::parse_options(args, extra).options.control;
  } catch (const ConfigError&) {
    return {};
  }
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  train::RunRequest request;
  RehearseWords words;
  std::vector<io::OptionEntry> extra = rehearse_entries(words);
  extra.push_back(eval_split_option(request.split));
  const auto asked = [&](const char* word) { return std::find(args.begin(), args.end(), word) != args.end(); };
  if (asked("--help") || asked("-h")) {
    fmt::print("{}", io::help_text("mpiexec -n RANKS triax train [options]", extra));
    return 0;
  }
  if (asked("--list-hw")) {
    fmt::print("{}", plan::list_hardware());
    return 0;
  }
  if (asked("--list-models")) {
    fmt::print("{}", model::list_presets());
    return 0;
  }
  request.command_line.push_back("triax");
  request.command_line.push_back("train");
  request.command_line.insert(request.command_line.end(), args.begin(), args.end());
  const io::RunControl control = early_options(args, extra);
  if (words.rehearse || asks_for_rehearsal(args)) {
    request.parsed = io::parse_options(args, extra);
    if (words.rehearse) return rehearse_command(words, request);
  }
  FlightRecorder flight;
  request.flight = &flight;
  // From here to the end: a job that is preempted while it starts, or while it leaves, is no failure.
  const train::StopSignal stop;
  request.stop = &stop;
  flight.header().timeout_s = control.distributed_timeout_min * 60;
  const bool supervised = control.supervisor && !is_traced();
  if (supervised) {
    if (const std::optional<int> code = supervise(flight)) return *code;
  }
  const auto leave = [&](int code) {
    flight.header().leaving.store(code);
    if (supervised) wake_supervisor();
    return code;
  };
  try {
    return leave(
        run_with_session([&](comm::MpiSession& session,
                             RankName& name) { return run_on_ranks(session, name, request, words, extra, args); },
                         &flight));
  } catch (const ConfigError&) {  // of the launch: MPI was not to be used
    leave(static_cast<int>(ExitCode::Usage));
    throw;
  }
}

}  // namespace triax::apps
