#include "train/training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numbers>

#include "base/log.h"
#include "base/version.h"
#include "io/options/validate.h"
#include "train/collective_task.h"
#include "train/peak.h"
#include "train/program_builder.h"
#include "train/replica_check.h"
#include "train/save_directory.h"
#include "train/timing_output.h"

namespace triax::train {
namespace {

constexpr double kStopDuration = 1000;  // stop codes below are signal numbers
constexpr double kSaveSeconds = 1800;   // between saves without --save-interval

/// --threads, else OMP_NUM_THREADS, else the cores that this process may use shared by the ranks of the host.
int threads_of(const io::RunOptions& options, int local_ranks) {
  if (options.control.threads > 0 || std::getenv("OMP_NUM_THREADS") != nullptr) return options.control.threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return std::max(1, CPU_COUNT(&allowed) / std::max(1, local_ranks));
}

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

DataFacts prepare_options(RunRequest& request, int world_size) {
  io::RunOptions& options = request.parsed.options;
  if (options.control.skip_train && !options.control.load.empty() && options.model.num_layers == 0) {
    const int64_t seq_length = options.model.seq_length;
    const std::string path = weights_to_load(options.control);
    if (path.empty()) {
      throw ConfigError(
          fmt::format("--load {}: there is no {}", options.control.load, io::weights_path(options.control.load)));
    }
    options.model = io::WeightsReader(path).header().model;
    if (request.parsed.given("seq-length")) options.model.seq_length = seq_length;
  }
  // Faults of the data are told together with the others only when the rest could be read at all.
  DataFacts facts;
  if (io::faults(options, world_size).empty()) {
    facts = inspect_data(options);
    options.model.vocab_size = facts.vocab_size;
  }
  io::resolve(options, world_size);
  weights_to_load(options.control);
  return facts;
}

struct TrainingRun::Held {
  Held(comm::MpiSession& session, const io::RunOptions& options)
      : grid(session, grid_options(options)),
        device(kernels::make_cpu_device({threads_of(options, session.local_size())})),
        arena(grid.memory()),
        trainer(grid, *device, arena, options, options.control.skip_train ? Use::Evaluate : Use::Train) {}
  comm::ProcessGrid grid;
  std::unique_ptr<kernels::Device> device;
  Arena arena;
  Trainer trainer;
};

TrainingRun::TrainingRun(comm::MpiSession& session, RunRequest request, DataFacts facts)
    : session_(&session),
      request_(std::move(request)),
      facts_(std::move(facts)),
      held_(std::make_unique<Held>(session, options())) {
  check_same_program(held_->trainer.program(), held_->grid);
  open_directory();
  load_or_initialize();
  datasets_ = open_data(options(), directory_.path, held_->trainer.holds_tokens(), held_->grid);
  splits_ = splits_of(datasets_, held_->grid);
  const bool counts = held_->trainer.holds_head() && held_->grid.coord().tensor == 0;
  if (counts && facts_.tokenizer) token_bytes_ = token_bytes(*facts_.tokenizer, facts_.eod);
  const bool measure = options().control.log_throughput && options().control.peak_tflops == 0;
  start_reporter(measure ? measure_peak_tflops(*held_->device, io::compute_dtype(options().control.precision),
                                               held_->arena, held_->grid.world())
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
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job != nullptr) facts.slurm_job_id = job;
  const TakePart part = session_->rank() == 0 ? TakePart::Yes : TakePart::No;
  run_collectively(held_->grid.world(), part, [&] { directory_ = io::open_run_directory(options(), facts); });
  std::array<char, 4096> path{};
  std::strncpy(path.data(), directory_.path.c_str(), path.size() - 1);
  held_->grid.world().broadcast(Tensor(path.data(), DType::UInt8, {static_cast<int64_t>(path.size())}), 0).wait();
  directory_.path = path.data();
  if (options().control.save.empty() || options().control.skip_train) return;
  run_collectively(held_->grid.world(), part, [&] { check_writable(options().control.save); });
}

void TrainingRun::load_or_initialize() {
  const std::string path = weights_to_load(options().control);
  if (path.empty()) {
    held_->trainer.initialize();
    return;
  }
  const Tensor values = held_->trainer.weight_source();
  run_collectively(held_->grid.world(), TakePart::Yes, [&] {
    const io::WeightsReader reader(path);
    const std::string& hash = reader.header().tokenizer_hash;
    if (!hash.empty() && !facts_.tokenizer_hash.empty() && hash != facts_.tokenizer_hash) {
      throw ConfigError(
          fmt::format("--load {}: trained with tokenizer {}, the data were made with {}: use data made with "
                      "the same tokenizer",
                      path, hash, facts_.tokenizer_hash));
    }
    const auto differences = io::architecture_differences(reader.header().model, options().model);
    if (!differences.empty()) {
      throw ConfigError(fmt::format("--load {}: holds another model: {}; give the file's dimensions", path,
                                    fmt::join(differences, "; ")));
    }
    io::load_weights(reader, held_->trainer.store(), values);
    loaded_iteration_ = reader.header().iteration;
  });
  held_->trainer.weights_changed();
  if (session_->rank() == 0) spdlog::info("weights of iteration {} loaded from {}", loaded_iteration_, path);
}

void TrainingRun::start_reporter(double peak_tflops) {
  const std::vector<std::string> hosts = gather_hosts(session_->host(), held_->grid.world());
  maker_ = std::make_unique<RecordMaker>(options(), peak_tflops);
  if (session_->rank() != 0) return;
  const BuildInfo build = build_info();
  io::RunFacts facts;
  facts.version = build.version;
  facts.commit = build.commit;
  facts.compiler = build.compiler;
  for (const auto& [name, value] : build_info_rows()) facts.libraries[name] = value;
  facts.command_line = request_.command_line;
  if (const char* job = std::getenv("SLURM_JOB_ID"); job != nullptr) facts.slurm_job_id = job;
  facts.world_size = session_->size();
  facts.hosts = hosts;
  facts.device = held_->device->name();
  facts.program_hash = fmt::format("{:016x}", parallel::hash_of(held_->trainer.program()));
  facts.data_hash = facts_.data_hash;
  facts.tokenizer_hash = facts_.tokenizer_hash;
  facts.parameters = model::parameter_count(options().model);
  facts.peak_tflops = peak_tflops;
  reporter_ = std::make_unique<RunReporter>(directory_, request_.parsed, facts);
  say_header();
  spdlog::info("peak for MFU {:.4f} TFLOP/s per rank ({})", peak_tflops,
               options().control.peak_tflops > 0 ? "given" : "measured");
}

void TrainingRun::say_header() const {
  const io::RunOptions& o = options();
  const parallel::Program& program = held_->trainer.program();
  spdlog::info("model {}: {} parameters; {} ranks, {}{}", o.model.name, model::parameter_count(o.model),
               session_->size(), io::layout_name(o), o.parallel.sequence_parallel ? ", sequence parallel" : "");
  spdlog::info("program {:016x}: {}, {} micro-batches of {} sequences of {} tokens, global batch {}",
               parallel::hash_of(program), program.schedule, program.num_micro_batches, o.batch.micro_batch_size,
               o.model.seq_length, o.batch.global_batch_size);
  spdlog::info(
      "{} parameters, gradients and optimizer state in {}; gradient buckets of {} parameters, overlap {}; "
      "receives posted ahead {}",
      name_of(io::compute_dtype(o.control.precision)), name_of(io::state_dtype(o.control.precision)),
      o.parallel.ddp_bucket_size, o.parallel.overlap_grad_reduce ? "on" : "off", o.parallel.overlap_p2p ? "on" : "off");
  for (const std::string& note : request_.parsed.notes) spdlog::info("{}", note);
  if (!o.inert.empty()) spdlog::info("accepted, without effect: {}", fmt::join(o.inert, " "));
  spdlog::info("run directory {}", directory_.path);
}

std::unique_ptr<BatchSource> TrainingRun::source_of(const io::TokenDataset* dataset) const {
  const io::RunOptions& o = options();
  io::LoaderConfig config;
  config.shape = {o.batch.micro_batch_size, o.parallel.grid.data, o.batch.num_micro_batches};
  config.dp_rank = held_->grid.coord().data;
  config.seq_length = o.model.seq_length;
  config.eod_mask = {o.data.eod_mask_loss, facts_.eod.value_or(0)};
  return std::make_unique<BatchSource>(dataset, config, 0);
}

ExitCode TrainingRun::run() {
  try {
    return options().control.skip_train ? evaluate_only() : train();
  } catch (...) {
    if (reporter_) reporter_->finish(io::EndReason::Failed, held_->grid.ledger());
    throw;
  }
}

ExitCode TrainingRun::train() {
  training_ = source_of(datasets_.train.get());
  if (splits_.valid) validation_ = source_of(datasets_.valid.get());
  if (!splits_.valid && options().control.eval_iters > 0 && session_->rank() == 0) {
    spdlog::info("no validation data, no evaluation");
  }
  step_watch_.restart();
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
  return finish(io::EndReason::Finished, ExitCode::Done);
}

void TrainingRun::step() {
  Trainer& trainer = held_->trainer;
  const auto batches = training_->next_step();
  const StepResult result = trainer.train_step({batches, training_->wait_s(), [this] { return wishes(); }});
  const double step_s = step_watch_.elapsed_s();
  step_watch_.restart();
  wished_ = result.totals.wishes;
  if (options().control.check_replicas) check_replicas(trainer.store(), trainer.optimizer(), held_->grid);
  if (reporter_) reporter_->iteration(maker_->make(result, trainer.progress(), step_s));
}

Wishes TrainingRun::wishes() const {
  const io::RunControl& control = options().control;
  Wishes mine;
  mine.stop = signal_.received();
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

void TrainingRun::evaluate_if_due() {
  const int64_t iteration = held_->trainer.progress().iteration;
  const io::RunControl& control = options().control;
  if (!validation_ || control.eval_iters == 0 || iteration % control.eval_interval != 0) return;
  evaluate("validation", *validation_);
}

void TrainingRun::evaluate_at_end() {
  if (options().control.eval_iters == 0) return;
  if (validation_ && evaluated_at_ != held_->trainer.progress().iteration) evaluate("validation", *validation_);
  if (splits_.test) evaluate("test", *source_of(datasets_.test.get()));
}

ExitCode TrainingRun::evaluate_only() {
  const bool test = request_.split == EvaluationSplit::Test;
  if (test ? !splits_.test : !splits_.valid) {
    throw ConfigError(fmt::format("--skip-train: the {} split has no samples: give --split or --{}-data-path",
                                  test ? "test" : "validation", test ? "test" : "valid"));
  }
  const std::unique_ptr<BatchSource> source = source_of((test ? datasets_.test : datasets_.valid).get());
  held_->trainer.progress().iteration = loaded_iteration_;
  evaluate(test ? "test" : "validation", *source);
  return ExitCode::Done;
}

void TrainingRun::evaluate(const char* split, BatchSource& source) {
  Trainer& trainer = held_->trainer;
  double bytes = 0;
  for (int64_t i = 0; i < options().control.eval_iters; ++i) {
    const auto batches = source.next_step();
    trainer.evaluate_step(batches);
    // A signal must not wait for the end of a long evaluation; all ranks leave it together.
    double stop = wishes().stop;
    held_->grid.world().all_reduce(Tensor(&stop, DType::Float64, {1}), comm::ReduceOp::Max).wait();
    if (stop != 0) {
      wished_.stop = stop;
      trainer.finish_evaluation();
      return;
    }
    if (token_bytes_.empty()) continue;
    for (const io::MicroBatch& batch : batches) {
      for (size_t row = 0; row < batch.targets.size(); ++row) {
        if (!batch.loss_mask.empty() && batch.loss_mask[row] == 0) continue;  // not in the loss either
        const auto token = static_cast<size_t>(batch.targets[row]);
        if (token < token_bytes_.size()) bytes += token_bytes_[token];
      }
    }
  }
  const Trainer::Evaluation evaluation = trainer.finish_evaluation();
  held_->grid.world().all_reduce(Tensor(&bytes, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  io::EvaluationRecord record;
  record.iteration = trainer.progress().iteration;
  record.split = split;
  record.lm_loss = evaluation.loss;
  record.tokens = static_cast<int64_t>(evaluation.tokens);
  if (bytes > 0) record.bits_per_byte = evaluation.loss * evaluation.tokens / (std::numbers::ln2 * bytes);
  if (reporter_) reporter_->evaluation(record);
  evaluated_at_ = record.iteration;
  step_watch_.restart();
}

void TrainingRun::save(const char* why) {
  const io::RunControl& control = options().control;
  Trainer& trainer = held_->trainer;
  if (control.save.empty() || saved_at_ == trainer.progress().iteration) return;
  io::WeightsHeader header;
  header.model = options().model;
  header.dtype = io::compute_dtype(control.precision);
  header.iteration = trainer.progress().iteration;
  header.consumed_samples = trainer.progress().consumed_samples;
  header.tokenizer_hash = facts_.tokenizer_hash;
  header.tokenizer = facts_.tokenizer_options;
  // The file may be read from another directory.
  for (std::string* path : {&header.tokenizer.model, &header.tokenizer.vocab_file, &header.tokenizer.merge_file}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
  io::save_weights(io::weights_path(control.save), header, trainer.store(), held_->grid);
  saved_at_ = header.iteration;
  since_save_.restart();
  if (session_->rank() == 0) {
    spdlog::info("saved weights of iteration {} to {} ({})", header.iteration, io::weights_path(control.save), why);
  }
  step_watch_.restart();
}

ExitCode TrainingRun::finish(io::EndReason reason, ExitCode code) {
  held_->grid.world().barrier();
  if (held_->trainer.progress().iteration > loaded_iteration_) {
    const std::string timing =
        output_timing(held_->trainer, directory_.path, reporter_ ? WritesTiming::Yes : WritesTiming::No);
    if (reporter_) reporter_->line(timing);
  }
  if (reporter_) reporter_->finish(reason, held_->grid.ledger());
  return code;
}

}  // namespace triax::train
