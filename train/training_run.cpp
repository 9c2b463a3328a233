#include "train/training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "io/options/validate.h"
#include "train/collective_task.h"
#include "train/peak.h"
#include "train/program_builder.h"
#include "train/replica_check.h"
#include "train/run_header.h"
#include "train/timing_output.h"
#include "train/training_held.h"

namespace triax::train {
namespace {

constexpr double kStopDuration = 1000;  // stop codes below are signal numbers
constexpr double kSaveSeconds = 1800;   // between saves without --save-interval

std::vector<std::string> gather_hosts(const std::string& mine, comm::Communicator& world) {
  constexpr int64_t kLength = 64;
  std::array<char, kLength> name{};
  std::strncpy(name.data(), mine.c_str(), kLength - 1);
  std::vector<char> all(static_cast<size_t>(kLength * world.size()));
  world
      .all_gather(Tensor(name.data(), DType::UInt8, {kLength}),
                  Tensor(all.data(), DType::UInt8, {kLength * world.size()}))
      .wait();
  std::vector<std::string> hosts;
  for (int64_t r = 0; r < world.size(); ++r) hosts.emplace_back(all.data() + r * kLength);
  return hosts;
}

}  // namespace

std::unique_ptr<TrainingRun::Held> TrainingRun::build() {
  const PhaseRecord phase(request_.flight, FlightPhase::Build);
  fault_.at(FaultPhase::Start, 0);
  return std::make_unique<Held>(*session_, options(), request_.flight);
}

TrainingRun::TrainingRun(comm::MpiSession& session, RunRequest request, DataFacts facts)
    : session_(&session),
      request_(std::move(request)),
      facts_(std::move(facts)),
      fault_(options().control.inject, session.rank(), session.size()),
      held_(build()) {
  check_same_program(held_->trainer.program(), held_->grid);
  if (request_.op_costs) held_->trainer.set_virtual_costs(request_.op_costs(options()));
  open_directory();
  prepare_checkpoints();
  {
    const PhaseRecord phase(request_.flight, FlightPhase::Data);
    fault_.at(FaultPhase::Data, 0);
    datasets_ = open_data(options(), directory_.path, held_->trainer.holds_tokens(), held_->grid);
    splits_ = splits_of(datasets_, held_->grid);
  }
  const bool counts = held_->trainer.holds_head() && held_->grid.coord().tensor == 0;
  if (counts && facts_.tokenizer) token_bytes_ = token_bytes(*facts_.tokenizer, facts_.eod);
  const PhaseRecord phase(request_.flight, FlightPhase::Tune);
  // An emulation has no speed that would say anything.
  const bool measure = options().control.log_throughput && options().control.peak_tflops == 0 &&
                       options().control.device != "cuda-emulated";
  start_reporter(measure ? measure_peak_tflops(held_->device.get(), io::compute_dtype(options().control.precision),
                                               held_->grid.world())
                         : options().control.peak_tflops);
}

TrainingRun::~TrainingRun() = default;

std::string TrainingRun::place() const {
  const comm::GridCoord& c = held_->grid.coord();
  return fmt::format("tp {} pp {} dp {}", c.tensor, c.pipeline, c.data);
}

void TrainingRun::open_directory() {
  io::RunFacts facts;
  facts.command_line = request_.command_line;
  if (const char* job = std::getenv("SLURM_JOB_ID"); job != nullptr) facts.slurm_job_id = job;
  const TakePart part = session_->rank() == 0 ? TakePart::Yes : TakePart::No;
  run_collectively(held_->grid.world(), part, deadline_s(options()), [&] {
    directory_ = io::open_run_directory(options(), facts);
    io::set_records_aside(directory_);
  });
  std::array<char, 4096> path{directory_.continued ? 'c' : 'n'};
  std::strncpy(path.data() + 1, directory_.path.c_str(), path.size() - 2);
  held_->grid.world().broadcast(Tensor(path.data(), DType::UInt8, {static_cast<int64_t>(path.size())}), 0).wait();
  directory_ = {path.data() + 1, path[0] == 'c'};
  if (directory_.continued) fault_.disarm();  // it has struck before
  if (fault_) held_->trainer.set_fault(&fault_);
  start_recording();
}

void TrainingRun::start_recording() {
  if (request_.flight == nullptr) return;
  request_.flight->set_place(place());
  try {
    request_.flight->attach(directory_.path);
  } catch (const RunTimeError& error) {
    spdlog::error("{}: after a sudden end this rank's last ops will not be known", error.what());
  }
}

void TrainingRun::prepare_checkpoints() {
  io::WeightsHeader tokenizer;
  tokenizer.tokenizer_hash = facts_.tokenizer_hash;
  tokenizer.tokenizer = facts_.tokenizer_options;
  // The file may be read from another directory.
  io::TokenizerOptions& files = tokenizer.tokenizer;
  for (std::string* path : {&files.model, &files.vocab_file, &files.merge_file}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
  checkpoints_ = std::make_unique<Checkpointing>(options(), std::move(tokenizer), held_->trainer, held_->grid,
                                                 held_->device.get(), held_->arena, &fault_);
  const PhaseRecord phase(request_.flight, FlightPhase::Load);
  say(checkpoints_->prepare());
  say(checkpoints_->load_or_initialize());
  state_ = checkpoints_->loaded();
  evaluated_at_ = state_.evaluated_at;
}

void TrainingRun::say(const std::string& text) const {
  if (!text.empty() && session_->rank() == 0) spdlog::info("{}", text);
}

void TrainingRun::start_reporter(double peak_tflops) {
  const std::vector<std::string> hosts = gather_hosts(session_->host(), held_->grid.world());
  maker_ = std::make_unique<RecordMaker>(options(), peak_tflops);
  if (options().control.check_spiky_loss) loss_guard_.emplace(options().control.spiky_loss_factor);
  if (session_->rank() != 0) return;
  const io::RunControl& control = options().control;
  if (control.log_straggler && session_->size() > 1) {
    stragglers_.emplace(options().parallel.grid, hosts, control.log_interval, control.straggler_factor);
  }
  io::RunFacts facts = run_facts(held_->trainer);
  facts.command_line = request_.command_line;
  facts.hosts = hosts;
  facts.world_size = session_->size();
  facts.device = held_->device.describe();
  facts.data_hash = facts_.data_hash;
  facts.tokenizer_hash = facts_.tokenizer_hash;
  facts.parameters = model::parameter_count(options().model);
  facts.peak_tflops = peak_tflops;
  reporter_ = std::make_unique<RunReporter>(directory_, request_.parsed, facts, checkpoints_->loaded_iteration());
  spdlog::info("device {}", facts.device);
  say_header(request_.parsed, held_->trainer, held_->grid, directory_.path);
  if (peak_tflops == 0) return;
  spdlog::info("peak for MFU {:.4f} TFLOP/s per rank ({})", peak_tflops,
               options().control.peak_tflops > 0 ? "given" : "measured");
}

std::unique_ptr<BatchSource> TrainingRun::source_of(const io::TokenDataset* dataset, int64_t consumed) const {
  const io::RunOptions& o = options();
  io::LoaderConfig config;
  config.shape = {o.batch.micro_batch_size, o.parallel.grid.data, o.batch.num_micro_batches};
  config.dp_rank = held_->grid.coord().data;
  config.seq_length = o.model.seq_length;
  config.deadline_s = deadline_s(o);
  config.eod_mask = {o.data.eod_mask_loss, facts_.eod.value_or(0)};
  return std::make_unique<BatchSource>(dataset, config, consumed);
}

ExitCode TrainingRun::run() {
  try {
    return options().control.skip_train ? evaluate_only() : train();
  } catch (...) {
    try {
      if (reporter_) reporter_->finish(io::EndReason::Failed, own_communication(held_->trainer.communication()));
    } catch (const std::exception& error) {  // a full disk fails twice, and what came first is the cause
      spdlog::error("{}", error.what());
    }
    throw;
  }
}

ExitCode TrainingRun::train() {
  training_ = source_of(datasets_.train.get(), held_->trainer.progress().consumed_samples);
  if (splits_.valid) validation_ = source_of(datasets_.valid.get(), state_.consumed_valid_samples);
  if (!splits_.valid && options().control.eval_iters > 0 && session_->rank() == 0) {
    spdlog::info("no validation data, no evaluation");
  }
  profile_ = std::make_unique<StepProfile>(options(), directory_.path, held_->trainer, held_->device.get(),
                                           session_->rank(), session_->local_rank());
  step_watch_.restart();
  // A signal may have cut this evaluation off.
  if (held_->trainer.progress().iteration > 0 && evaluated_at_ != held_->trainer.progress().iteration) {
    evaluate_if_due();
  }
  while (held_->trainer.progress().iteration < options().batch.train_iters) {
    step();
    evaluate_if_due();
    const int64_t iteration = held_->trainer.progress().iteration;
    const int64_t interval = options().control.save_interval;
    if (wished_.save != 0 || (interval > 0 && iteration % interval == 0)) save("interval");
    if (const std::optional<ExitCode> code = stop_reason(wished_.stop)) return *code;
  }
  evaluate_at_end();
  save("end");
  // The evaluation is missing: the same command again makes it.
  if (evaluation_cut_) return stopped(wished_.stop);
  return finish(io::EndReason::Finished, ExitCode::Done);
}

void TrainingRun::step() {
  Trainer& trainer = held_->trainer;
  const auto batches = training_->next_step();
  profile_->before_step();
  const StepResult result = trainer.train_step({batches, training_->wait_s(), [this] { return wishes(); }});
  const double step_s = step_watch_.elapsed_s();
  if (const std::string profiled = profile_->after_step(); !profiled.empty()) say(profiled);
  step_watch_.restart();
  wished_ = result.totals.wishes;
  state_.learning_rate = result.learning_rate;
  checkpoints_->check();
  watch(result);
  if (options().control.check_replicas) {
    trainer.gather_weights();
    // A parameter server alone keeps optimizer states up to date.
    const Optimizer* states = trainer.staleness() == nullptr ? trainer.optimizer() : nullptr;
    check_replicas(trainer.store(), states, trainer.gradient_sync().plan(), held_->grid, held_->device.get());
  }
  if (reporter_) reporter_->iteration(maker_->make(result, trainer.progress(), step_s));
}

void TrainingRun::watch(const StepResult& result) {
  const int64_t iteration = held_->trainer.progress().iteration;
  const std::string slow = stragglers_ ? stragglers_->add(iteration, result.reports) : "";
  if (!slow.empty()) spdlog::warn("{}", slow);
  if (!loss_guard_ || result.skipped) return;
  const std::string spike = loss_guard_->add(iteration, result.totals.loss);
  if (spike.empty()) return;
  if (session_->rank() != 0) throw ToldError(spike);  // all see the same loss
  throw RunTimeError(spike);
}

Wishes TrainingRun::wishes() const {
  const io::RunControl& control = options().control;
  Wishes mine;
  mine.stop = request_.stop != nullptr ? request_.stop->received() : 0;
  if (control.exit_duration_min > 0 && since_start_.elapsed_s() >= control.exit_duration_min * 60) {
    mine.stop = kStopDuration;
  }
  const bool by_time = !control.save.empty() && control.save_interval == 0;
  mine.save = by_time && since_save_.elapsed_s() >= kSaveSeconds ? 1 : 0;
  return mine;
}

std::optional<ExitCode> TrainingRun::stop_reason(double stop) {
  const io::RunControl& control = options().control;
  const int64_t iteration = held_->trainer.progress().iteration;
  if (stop == 0 || iteration >= options().batch.train_iters) {
    if (control.exit_interval == 0 || iteration % control.exit_interval != 0) return std::nullopt;
    if (iteration >= options().batch.train_iters) return std::nullopt;
    save("--exit-interval");
    if (reporter_) reporter_->line(fmt::format("exiting program at iteration {}", iteration));
    return finish(io::EndReason::ExitInterval, ExitCode::Done);
  }
  save("stop");
  return stopped(stop);
}

ExitCode TrainingRun::stopped(double stop) {
  const io::RunControl& control = options().control;
  if (stop >= kStopDuration) {
    if (reporter_) reporter_->line(fmt::format("exiting program after {} minutes", control.exit_duration_min));
    return finish(io::EndReason::ExitDuration, ExitCode::Interrupted);
  }
  if (reporter_) {
    reporter_->line(fmt::format("exiting program after receiving {}.", stop == SIGTERM ? "SIGTERM" : "SIGUSR1"));
    if (control.save.empty()) spdlog::error("stopped by a signal without --save: nothing was kept");
  }
  return finish(io::EndReason::Signal, control.save.empty() ? ExitCode::RunTime : ExitCode::Interrupted);
}

void TrainingRun::save(const char* why) {
  const PhaseRecord phase(request_.flight, FlightPhase::Save);
  held_->trainer.finish_communication();  // what follows is no step's
  held_->trainer.settle();
  const std::string text = checkpoints_->save(state_, why);
  if (text.empty()) return;
  say(text);
  since_save_.restart();
  step_watch_.restart();
}

ExitCode TrainingRun::finish(io::EndReason reason, ExitCode code) {
  const PhaseRecord phase(request_.flight, FlightPhase::Finish);
  fault_.at(FaultPhase::Finish, 0);
  const StepCommunication& steps = held_->trainer.finish_communication();
  say(checkpoints_->finish());
  held_->grid.world().barrier();
  const std::string staleness = held_->trainer.staleness_text();
  if (reporter_ && !staleness.empty()) reporter_->line(staleness);
  if (held_->trainer.progress().iteration > checkpoints_->loaded_iteration()) {
    const std::string timing =
        output_timing(held_->trainer, directory_.path, reporter_ ? WritesTiming::Yes : WritesTiming::No);
    if (reporter_) reporter_->line(timing);
  }
  if (reporter_ && held_->trainer.recorder() != nullptr) {
    reporter_->line(kernels::describe(held_->trainer.recorder()->counts()));
  }
  if (const GradientCompression* compression = held_->trainer.compression(); compression != nullptr) {
    const std::string savings = describe_savings(*compression, held_->grid.world());
    if (reporter_) reporter_->line(savings);
  }
  const std::vector<CommunicationRow> communication = gather_communication(steps, held_->grid.world());
  if (reporter_) reporter_->finish(reason, communication);
  complete(reason, code);
  return code;
}

void TrainingRun::complete(io::EndReason reason, ExitCode code) {
  if (code != ExitCode::Done) return;
  ensure_stdout_written();
  if (session_->rank() == 0) io::mark_ended(directory_, reason, held_->trainer.progress().iteration);
  if (request_.flight != nullptr) request_.flight->header().completed.store(1);
}

}  // namespace triax::train
