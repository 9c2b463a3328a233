// `triax train`: trains, or with --skip-train evaluates saved weights, on the ranks that the launcher started.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "apps/commands.h"
#include "apps/session.h"
#include "base/error.h"
#include "base/log.h"
#include "model/presets.h"
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

/// The run's objects are alive here: unwinding them would wait for peers that wait for this rank.
[[noreturn]] void abort_job(comm::MpiSession& session, const std::string& who, const char* what) {
  // When all ranks fail alike, rank 0 says it and ends the job before the others repeat it.
  if (session.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  fmt::print(stderr, "{}: {}\n", who, what);
  std::fflush(stderr);
  session.abort(static_cast<int>(ExitCode::RunTime));
}

/// The rank that waited first may only wait for one that itself waits: the others are given time to say for whom, so
/// that the rank that stands still is named by its neighbour.
[[noreturn]] void abort_after_peer_lost(comm::MpiSession& session, const std::string& who, const char* what) {
  fmt::print(stderr, "{}: {}\n", who, what);
  std::fflush(stderr);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  session.abort(static_cast<int>(ExitCode::RunTime));
}

std::string full_name(const comm::MpiSession& session, const RankName& name) {
  const std::string place = name.place.empty() ? "" : ", " + name.place;
  return fmt::format("rank {} ({}{})", session.rank(), session.host(), place);
}

int run_on_ranks(comm::MpiSession& session, RankName& name, train::RunRequest& request,
                 const std::vector<io::OptionEntry>& extra, const std::vector<std::string>& args) {
  // What concerns the run as a whole is said by rank 0 alone.
  init_log(session.rank() == 0 ? "info" : "error", session.rank() == 0 ? "" : fmt::format("rank {}", session.rank()));
  request.parsed = io::parse_options(args, extra);
  train::DataFacts facts = train::prepare_options(request, session.size());
  // Alive until the job ends: unwinding its objects would wait for peers that wait for this rank.
  std::unique_ptr<train::TrainingRun> run;
  try {
    run = std::make_unique<train::TrainingRun>(session, request, std::move(facts));
    name.place = run->place();
    return static_cast<int>(run->run());
  } catch (const ConfigError&) {
    throw;
  } catch (const comm::PeerLost& error) {
    abort_after_peer_lost(session, full_name(session, name), error.what());
  } catch (const std::exception& error) {
    abort_job(session, full_name(session, name), error.what());
  }
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  train::RunRequest request;
  const std::vector<io::OptionEntry> extra{eval_split_option(request.split)};
  const auto asked = [&](const char* word) { return std::find(args.begin(), args.end(), word) != args.end(); };
  if (asked("--help") || asked("-h")) {
    fmt::print("{}", io::help_text("mpiexec -n RANKS triax train [options]", extra));
    return 0;
  }
  if (asked("--list-models")) {
    fmt::print("{}", model::list_presets());
    return 0;
  }
  request.command_line.push_back("triax");
  request.command_line.push_back("train");
  request.command_line.insert(request.command_line.end(), args.begin(), args.end());
  return run_with_session(
      [&](comm::MpiSession& session, RankName& name) { return run_on_ranks(session, name, request, extra, args); });
}

}  // namespace triax::apps
