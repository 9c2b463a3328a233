#include "train/checkpointing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <exception>

#include "base/clock.h"
#include "base/version.h"
#include "io/checkpoint/verify.h"
#include "io/report/run_directory.h"
#include "train/collective_task.h"
#include "train/compression_checkpoint.h"
#include "train/fp8_checkpoint.h"
#include "train/host_values.h"
#include "train/save_directory.h"
#include "train/save_fault.h"

namespace triax::train {
namespace {

constexpr int64_t kStagingAlignment = 64;
constexpr int64_t kIndexBytesOfPiece = 1024;

int64_t aligned(int64_t bytes) { return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment; }

double sum_over(comm::Communicator& group, double value) {
  group.all_reduce(Tensor(&value, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return value;
}

std::string gigabytes(double bytes) { return fmt::format("{:.3f} GB", bytes * 1e-9); }

/// Text of rank 0 on all ranks.
std::string broadcast_text(comm::Communicator& world, const std::string& mine) {
  std::array<char, 4096> text{};
  std::strncpy(text.data(), mine.c_str(), text.size() - 1);
  world.broadcast(Tensor(text.data(), DType::UInt8, {static_cast<int64_t>(text.size())}), 0).wait();
  return text.data();
}

io::Retention retention_of(const io::RunControl& control) {
  io::Retention retention{control.keep_latest, control.save_retain_interval};
  if (retention.retain_interval > 0 && retention.keep_latest == 0) retention.keep_latest = 1;
  return retention;
}

}  // namespace

io::CheckpointHeader checkpoint_header(const io::RunOptions& options, const io::WeightsHeader& weights,
                                       const Progress& progress, const RunState& run) {
  io::CheckpointHeader header;
  header.weights = weights;
  header.weights.model = options.model;
  header.weights.dtype = io::compute_dtype(options.control.precision);
  header.weights.iteration = progress.iteration;
  header.weights.consumed_samples = progress.consumed_samples;
  io::TrainingState& state = header.training;
  state.updates = progress.updates;
  state.schedule_samples = progress.schedule_samples;
  state.consumed_valid_samples = run.consumed_valid_samples;
  state.evaluated_at = run.evaluated_at;
  state.learning_rate = run.learning_rate;
  state.loss_scale = progress.loss_scale.scale;
  state.good_steps = progress.loss_scale.good_steps;
  state.hysteresis_left = progress.loss_scale.hysteresis_left;
  state.consecutive_skips = progress.loss_scale.consecutive_skips;
  header.layout = io::layout_name(options);
  header.zero_stage = options.parallel.zero_stage;
  header.options = io::resolved_cfg(options);
  const BuildInfo build = build_info();
  header.program = fmt::format("triax {} ({})", build.version, build.commit);
  return header;
}

int64_t staging_bytes(const std::vector<io::Piece>& pieces) {
  int64_t bytes = 0;
  for (const io::Piece& piece : pieces) bytes += aligned(piece.bytes());
  return bytes;
}

Checkpointing::Checkpointing(const io::RunOptions& options, io::WeightsHeader tokenizer, Trainer& trainer,
                             comm::ProcessGrid& grid, kernels::Device& device, Arena& arena, RunFault* fault)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      trainer_(&trainer),
      grid_(&grid),
      device_(&device),
      fault_(make_save_fault(options.control.inject, grid.world_rank())),
      run_fault_(fault),
      staging_arena_(device.staging_memory()) {
  if (!in_background()) return;
  const int64_t bytes = staging_bytes(pieces_to_save(trainer, grid, with_optimizer()));
  staging_ = (device.on_host() ? arena : staging_arena_).allocate(static_cast<size_t>(bytes), MemoryCategory::Staging);
  // Memory that was never touched would make the first copy several times slower. (Pinned memory is touched.)
  if (device.on_host()) device.fill(staging_.view(DType::Float32, {bytes / 4}), 0);
}

Checkpointing::~Checkpointing() {
  // With an error under way the peers of the save may be gone: the job is about to be aborted.
  if (running_.valid() && std::uncaught_exceptions() == 0) running_.wait();
}

bool Checkpointing::in_background() {
  return options_.control.async_save && !options_.control.save.empty() && trainer_->optimizer() != nullptr;
}

std::string Checkpointing::prepare() {
  const std::string& directory = options_.control.save;
  if (directory.empty() || trainer_->optimizer() == nullptr) return {};
  int64_t mine = 0;
  const std::vector<io::Piece> pieces = pieces_to_save(*trainer_, *grid_, with_optimizer());
  for (const io::Piece& piece : pieces) mine += piece.bytes();
  const int64_t in_index = static_cast<int64_t>(pieces.size()) * kIndexBytesOfPiece;
  const double bytes = sum_over(grid_->world(), static_cast<double>(mine));
  const double on_disk = sum_over(grid_->world(), static_cast<double>(io::shard_file_bytes(mine) + in_index));
  const TakePart leader = grid_->world_rank() == 0 ? TakePart::Yes : TakePart::No;
  run_collectively(grid_->world(), leader, deadline_s(options_), [&] {
    check_writable(directory);
    lock_.emplace(directory);
    io::remove_unfinished(directory);
    check_space(static_cast<int64_t>(on_disk));
  });
  return fmt::format("{} per checkpoint in {}", gigabytes(bytes), directory);
}

void Checkpointing::check_space(int64_t bytes) {
  const std::string& directory = options_.control.save;
  const int64_t kept = retention_of(options_.control).keep_latest;
  const auto there = static_cast<int64_t>(io::complete_steps(directory).size());
  const int64_t more = kept + 1 - std::min(kept, there);
  const int64_t free = io::free_bytes(directory);
  if (free / more >= bytes) return;
  throw ConfigError(fmt::format(
      "--save {}: {} free, but {} checkpoints of {} must fit ({}): free some space, name another directory, or use "
      "--no-save-optim",
      directory, gigabytes(static_cast<double>(free)), more, gigabytes(static_cast<double>(bytes)),
      kept > 0 ? fmt::format("--keep-latest {} and one more", kept) : std::string("at least one")));
}

LoadRequest Checkpointing::agree_on_checkpoint() {
  // A directory on a network may look different elsewhere: what rank 0 sees counts.
  LoadRequest request;
  const TakePart leader = grid_->world_rank() == 0 ? TakePart::Yes : TakePart::No;
  run_collectively(grid_->world(), leader, deadline_s(options_), [&] { request = find_checkpoint(options_.control); });
  request.path = broadcast_text(grid_->world(), request.path);
  double mode = static_cast<double>(request.mode);
  grid_->world().broadcast(Tensor(&mode, DType::Float64, {1}), 0).wait();
  request.mode = static_cast<LoadMode>(mode);
  return request;
}

std::string Checkpointing::load_or_initialize() {
  const LoadRequest request = agree_on_checkpoint();
  if (request.mode == LoadMode::Fresh) {
    if (run_fault_ != nullptr) run_fault_->at(FaultPhase::Load, 0);
    trainer_->initialize();
    return {};
  }
  const bool trains = trainer_->optimizer() != nullptr;
  const auto with = request.mode == LoadMode::Resume && trains ? WithOptimizer::Yes : WithOptimizer::No;
  if (!trains) trainer_->weight_source();  // its memory is made outside of what may fail on some ranks
  io::CheckpointHeader header;
  double bytes = 0;
  int64_t missing = 0;  // of the compression's state
  int64_t missing_histories = 0;
  const Stopwatch watch;
  run_collectively(grid_->world(), TakePart::Yes, deadline_s(options_), [&] {
    if (run_fault_ != nullptr) run_fault_->at(FaultPhase::Load, 0);
    read_or_name_others(request.path, options_.control, [&] {
      if (options_.control.verify_integrity) {
        io::verify_share(request.path, grid_->world_rank(), grid_->world().size());
      }
      io::CheckpointReader reader(request.path);
      header = reader.header();
      const std::string& hash = header.weights.tokenizer_hash;
      if (!hash.empty() && !tokenizer_.tokenizer_hash.empty() && hash != tokenizer_.tokenizer_hash) {
        throw ConfigError(fmt::format(
            "--load {}: trained with tokenizer {}, the data were made with {}: use data made with the same tokenizer",
            request.path, hash, tokenizer_.tokenizer_hash));
      }
      const std::vector<std::string> faults = tensor_differences(reader, options_.model);
      if (!faults.empty()) throw ConfigError(fmt::format("--load {}: {}", request.path, fmt::join(faults, "; ")));
      for (const io::Piece& piece : pieces_to_load(*trainer_, reader, with)) {
        if (with == WithOptimizer::Yes && !reader.has_kind(piece.kind)) {
          throw ConfigError(
              fmt::format("--load {}: has no {}: --finetune starts a new run from its weights, --no-load-optim goes on "
                          "with fresh moments",
                          request.path, piece.kind));
        }
        read_piece(reader, piece, *device_);
      }
      if (with == WithOptimizer::Yes && trainer_->compression() != nullptr) {
        missing = load_compression(*trainer_->compression(), trainer_->store(), grid_->coord(), grid_->data().size(),
                                   reader, *device_);
      }
      if (with == WithOptimizer::Yes && trainer_->fp8() != nullptr) {
        missing_histories = load_fp8(*trainer_->fp8(), reader);
      }
      bytes = static_cast<double>(reader.bytes_read());
    });
  });
  trainer_->weights_changed();
  bytes = sum_over(grid_->world(), bytes);
  loaded_iteration_ = request.mode == LoadMode::Weights ? 0 : header.weights.iteration;
  if (request.mode != LoadMode::Weights) {
    Progress& progress = trainer_->progress();
    progress.iteration = header.weights.iteration;
    progress.consumed_samples = header.weights.consumed_samples;
    loaded_ = {header.training.consumed_valid_samples, header.training.evaluated_at, header.training.learning_rate};
    if (request.mode == LoadMode::Resume) {
      const io::TrainingState& state = header.training;
      progress.updates = state.updates;
      progress.schedule_samples = state.schedule_samples;
      progress.loss_scale = {state.loss_scale, state.good_steps, state.hysteresis_left, state.consecutive_skips};
    }
    if (request.path.starts_with(options_.control.save + "/")) saved_at_ = progress.iteration;
  }
  const char* what = request.mode == LoadMode::Resume        ? "all state"
                     : request.mode == LoadMode::NoOptimizer ? "weights (moments and learning-rate schedule anew)"
                                                             : "weights (a new run)";
  std::string line =
      fmt::format("loaded {} of iteration {} from {}: {} in {:.2f} s, written by {}", what, header.weights.iteration,
                  request.path, gigabytes(bytes), watch.elapsed_s(), header.layout);
  const double all_missing = sum_over(grid_->world(), static_cast<double>(missing));
  if (all_missing > 0) {
    line += fmt::format("; {} tensors of the compression's state are not in it and start from zero", all_missing);
  }
  if (sum_over(grid_->world(), static_cast<double>(missing_histories)) > 0) {
    line += "; it holds no fp8 history for all layers: those begin anew";
  }
  return line;
}

void Checkpointing::stage(std::vector<io::Piece>& pieces) {
  int64_t at = 0;
  for (io::Piece& piece : pieces) {
    const Tensor copy(static_cast<std::byte*>(staging_.data()) + at, piece.data.dtype(), {piece.data.numel()});
    if (piece.memory == io::PieceMemory::Host) {
      std::memcpy(copy.data(), piece.data.data(), static_cast<size_t>(piece.bytes()));
    } else {
      device_->on_host() ? device_->copy(piece.data, copy) : device_->start_copy_beside(piece.data, copy);
    }
    at += aligned(piece.bytes());
    piece.data = copy;
  }
}

/// Training goes on; the next op that changes what is copied waits, on a GPU, for the copies (Trainer::update).
void Checkpointing::start_in_background(SaveJob job) {
  running_ = std::async(std::launch::async, [this, job = std::move(job)] {
    device_->finish_copies();
    save_checkpoint(grid_->control(), job);
  });
}

std::string Checkpointing::save(const RunState& run, const std::string& why) {
  const io::RunControl& control = options_.control;
  const Progress& progress = trainer_->progress();
  if (control.save.empty() || trainer_->optimizer() == nullptr || saved_at_ == progress.iteration) return {};
  const Stopwatch watch;
  std::string earlier;
  if (unsettled_) {  // on all ranks or on none, whatever check() saw here
    const bool done = !running_.valid() || running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    double busy = done ? 0 : 1;
    grid_->world().all_reduce(Tensor(&busy, DType::Float64, {1}), comm::ReduceOp::Max).wait();
    if (busy != 0 && control.async_save_busy == io::AsyncBusy::Skip && why == "interval") {
      return fmt::format("iteration {} is not saved: iteration {} is still being written (--async-save-busy skip)",
                         progress.iteration, running_iteration_);
    }
    earlier = finish() + "\n";
  }
  SaveJob job;
  job.directory = control.save;
  job.header = checkpoint_header(options_, tokenizer_, progress, run);
  job.pieces = pieces_to_save(*trainer_, *grid_, with_optimizer());
  job.writer = choose_writers(grid_->nodes(), control.ckpt_writers_per_node);
  job.retention = retention_of(control);
  job.patience_s = deadline_s(options_);
  job.hook = fault_;
  if (run_fault_ != nullptr && *run_fault_) {
    job.hook = [this, hook = fault_, iteration = progress.iteration](io::SavePoint point) {
      if (hook) hook(point);
      if (point == io::SavePoint::HalfWritten) run_fault_->at(FaultPhase::Save, iteration);
    };
  }
  saved_at_ = progress.iteration;
  if (in_background()) {
    stage(job.pieces);
    running_iteration_ = progress.iteration;
    unsettled_ = true;
    start_in_background(std::move(job));
    return fmt::format("{}saving iteration {} ({}): {} in {:.3f} s", earlier, progress.iteration, why,
                       device_->on_host() ? "copied" : "copies begun", watch.elapsed_s());
  }
  if (!device_->on_host()) {
    staging_ = staging_arena_.allocate(static_cast<size_t>(staging_bytes(job.pieces)), MemoryCategory::Staging);
    stage(job.pieces);
    device_->finish_copies();
  }
  save_checkpoint(grid_->control(), job);
  if (!device_->on_host()) staging_.reset();
  return fmt::format("saved iteration {} in {} ({}) in {:.2f} s", progress.iteration, control.save, why,
                     watch.elapsed_s());
}

void Checkpointing::check() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) running_.get();
}

std::string Checkpointing::finish() {
  if (!unsettled_) return {};
  if (running_.valid()) running_.get();
  unsettled_ = false;
  return fmt::format("saved iteration {} in {}", running_iteration_, options_.control.save);
}

}  // namespace triax::train
