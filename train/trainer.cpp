#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/options/validate.h"
#include "parallel/checker.h"
#include "parallel/cost_text.h"
#include "train/batch_source.h"
#include "train/host_values.h"
#include "train/program_builder.h"
#include "train/staging.h"

namespace triax::train {

using parallel::Op;
using parallel::OpKind;

namespace {

kernels::LaunchRecorder* recorder_of(kernels::Device& device, const io::RunOptions& options) {
  if (!options.control.enable_cuda_graph) return nullptr;
  kernels::LaunchRecorder* const recorder = device.recorder();
  if (recorder == nullptr) {
    throw ConfigError(
        fmt::format("--enable-cuda-graph true: the {} device launches nothing; leave it out", device.name()));
  }
  return recorder;
}

parallel::LayerContext layer_context(comm::ProcessGrid& grid, kernels::Device& device, Arena& arena,
                                     const io::RunOptions& options, const kernels::StepBlock* step) {
  parallel::LayerContext context;
  context.device = &device;
  context.arena = &arena;
  context.tensor = &grid.tensor();
  context.ledger = &grid.ledger();
  context.dtype = io::compute_dtype(options.control.precision);
  context.state_dtype = io::state_dtype(options.control.precision);
  context.sequence_parallel =
      options.parallel.sequence_parallel ? parallel::SequenceParallel::Yes : parallel::SequenceParallel::No;
  context.seq_length = options.model.seq_length;
  context.micro_batch = options.batch.micro_batch_size;
  context.seed = options.control.seed;
  context.step = step;
  return context;
}

Tensor scalar(Arena& arena, Buffer& buffer) {
  buffer = arena.allocate(DType::Float64, 1, MemoryCategory::Workspace);
  return buffer.view(DType::Float64, {1});
}

/// A lost peer says where the run stood: `what` of a step.
template <class Call>
auto during(const char* what, int64_t step, Call call) {
  try {
    return call();
  } catch (const comm::PeerLost& lost) {
    throw comm::PeerLost(fmt::format("{} {}: {}", what, step, lost.what()));
  }
}

}  // namespace

Trainer::Trainer(comm::ProcessGrid& grid, kernels::Device& device, Arena& arena, const io::RunOptions& options, Use use)
    : grid_(&grid),
      device_(&device),
      arena_(&arena),
      options_(options),
      use_(use),
      step_buffer_(arena.allocate(sizeof(kernels::StepBlock), MemoryCategory::Workspace)),
      step_(static_cast<kernels::StepBlock*>(step_buffer_.data())),
      loss_sum_(scalar(arena, loss_buffer_)),
      uploads_(device, arena, options.batch.num_micro_batches, options.batch.micro_batch_size,
               options.batch.micro_batch_size * options.model.seq_length),
      recorder_(recorder_of(device, options)),
      context_(layer_context(grid, recorder_ != nullptr ? recorder_->device() : device, arena, options, step_)),
      scaler_(options.optimizer, options.control.precision),
      exchange_(grid.world(), host_arena()) {
  if (recorder_ != nullptr) arena.reuse(Reuse::Lowest);
  publish_step();
  const model::StageOptions stage{options.model, io::layer_map_of(options), options.parallel.recompute,
                                  grid.coord().pipeline};
  if (options.parallel.grid.data > 1) {
    units_ = std::make_unique<UnitRunner>();
    context_.units = units_.get();
  }
  build_fp8();
  chunks_ = model::make_chunks(stage, context_, store_);
  build_storage();
  const auto m = static_cast<size_t>(options.batch.num_micro_batches);
  states_.resize(chunks_.size());
  for (ChunkStates& states : states_) states.in_use.resize(m);
  views_.resize(m);
  build_server();
  build_programs();
  progress_.loss_scale = scaler_.state();
}

Trainer::~Trainer() = default;

void Trainer::build_fp8() {
  if (options_.fp8.format == parallel::Fp8Format::None) return;
  const std::string refusal = device_->fp8_refusal();
  if (!refusal.empty()) throw ConfigError(fmt::format("--fp8-format: {}; use --bf16 alone", refusal));
  fp8_ = std::make_unique<parallel::Fp8Scales>(options_.fp8, options_.model.num_layers, *device_, *arena_);
  context_.fp8 = fp8_.get();
}

void Trainer::build_programs() {
  const parallel::ProgramOptions options = program_options(options_);
  program_ = parallel::make_training_program(options);
  evaluation_program_ = parallel::make_evaluation_program(options);
  for (const parallel::Program* program : {&program_, &evaluation_program_}) {
    const std::vector<std::string> faults = parallel::check(*program);
    if (!faults.empty()) throw ConfigError(fmt::format("the program cannot run:\n  {}", fmt::join(faults, "\n  ")));
  }
  if (!device_->on_host()) check_lanes(program_, options_.control.device);
  const bool scattered = options.messages == parallel::Messages::Scattered;
  const MessageShape message{context_.dtype, context_.local_tokens(), options_.model.hidden_size,
                             scattered ? &grid_->tensor() : nullptr};
  const ReceiveAhead ahead = options_.parallel.overlap_p2p ? ReceiveAhead::OneAhead : ReceiveAhead::None;
  const auto position = static_cast<size_t>(grid_->coord().pipeline);
  const auto executor = [&](const parallel::Program& program) {
    return std::make_unique<Executor>(program.positions[position], program.layers, program.num_micro_batches,
                                      grid_->pipeline(), *device_, *arena_, message, ahead,
                                      staging_buffers(program, ahead));
  };
  batch_slots_ = batch_slots(program_.positions[position], program_.num_micro_batches);
  evaluation_batch_slots_ = batch_slots(evaluation_program_.positions[position], program_.num_micro_batches);
  executor_ = executor(program_);
  evaluator_ = executor(evaluation_program_);
  executor_->set_flight(grid_->flight());
  evaluator_->set_flight(grid_->flight());
  unit_ops_ = parallel::unit_ops(program_, grid_->coord().pipeline);
  evaluation_unit_ops_ = parallel::unit_ops(evaluation_program_, grid_->coord().pipeline);
  schedule_options_ = options.schedule;
  if (use_ == Use::Train && options_.control.clock == "virtual") build_clock();
}

void Trainer::build_clock() {
  const parallel::TextCosts text =
      parallel::parse_costs(options_.control.cost, program_.pipeline, program_.num_micro_batches);
  virtual_costs_ = parallel::make_cost_table(text.costs, program_.pipeline, program_.chunks);
  virtual_unit_ps_ = text.unit_ps;
  start_clock();
}

void Trainer::set_virtual_costs(parallel::CostTable table) {
  if (!clock_) return;
  virtual_costs_ = std::move(table);
  virtual_unit_ps_ = 1'000'000'000;
  virtual_unit_name_ = "ms";
  start_clock();
}

void Trainer::start_clock() {
  clock_ = std::make_unique<parallel::VirtualClock>(program_, virtual_costs_, io::time_options_of(options_),
                                                    grid_->pipeline(), grid_->data());
  executor_->set_clock(clock_.get());
}

void Trainer::set_fault(RunFault* fault) {
  fault_ = fault;
  if (fault != nullptr) {
    executor_->set_before([this](const Op& op) { fault_->before(op, progress_.iteration + 1); });
  }
}

void Trainer::start_run(const parallel::Program& program, const std::vector<std::vector<parallel::UnitOp>>& lists) {
  running_ = &program;
  gather_->release_all();
  if (units_) units_->use(lists);
}

size_t Trainer::index_of(const Op& op) const {
  return static_cast<size_t>(&op - running_->positions[static_cast<size_t>(grid_->coord().pipeline)].data());
}

StepResult Trainer::train_step(const StepInput& input) {
  ensure(use_ == Use::Train, "Trainer::train_step: made for evaluation");
  grid_->collect_device_seconds();  // of what came between two steps
  if (!communication_.inside()) grid_->skip_meeting_on_device();
  communication_.enter(grid_->ledger());
  sent_bytes_before_ = grid_->ledger().total_sent_bytes();
  exposed_before_ = exposed_s();
  mode_ = parallel::Mode::Train;
  batches_ = input.batches;
  prepare_step();
  start_run(program_, unit_ops_);
  const int64_t step = progress_.iteration + 1;
  if (grid_->flight() != nullptr) grid_->flight()->set_step(step);
  const PhaseRecord phase(grid_->flight(), FlightPhase::Step);
  const ExecutionTimes times = during("step", step, [&] { return executor_->run(*this); });
  device_->synchronize();
  grid_->collect_device_seconds();
  if (fp8_) during("largest values of step", step, [&] { fp8_->finish_step(grid_->world()); });
  if (clock_) virtual_times_ = clock_->finish_step();

  StepResult result;
  result.grad_norm = grad_norm_;
  result.learning_rate = now_.learning_rate;
  result.loss_scale = now_.loss_scale;
  result.skipped = now_.skip != 0;
  const RankReport mine = report(input, times);
  if (fault_ != nullptr) fault_->at(FaultPhase::Report, step);
  const auto reports = during("report of step", step, [&] { return exchange_.exchange(mine); });
  result.reports = reports;
  result.totals = combine(reports, grid_->shape().pipeline);
  if (!std::isfinite(result.totals.loss) && !result.skipped) fail_nonfinite(result.totals.loss);
  scaler_.update(result.skipped);
  if (!result.skipped) {
    ++progress_.updates;
    progress_.schedule_samples += options_.batch.global_batch_size;
  }
  ++progress_.iteration;
  progress_.consumed_samples += options_.batch.global_batch_size;
  progress_.loss_scale = scaler_.state();
  if (grid_->flight() != nullptr) grid_->flight()->set_iteration(progress_.iteration);
  return result;
}

void Trainer::prepare_step() {
  scaler_.restore(progress_.loss_scale);
  now_ = kernels::StepBlock();
  now_.step = progress_.iteration;
  now_.update = progress_.updates + 1;
  now_.learning_rate = learning_rate(schedule_, static_cast<double>(progress_.schedule_samples));
  now_.loss_scale = scaler_.scale();
  publish_step();
  if (fp8_) fp8_->start_step();
  if (compression_) compression_->start_step(now_.step, now_.update);
  sync_->start_step();
  device_->fill(loss_sum_, 0);
  counted_tokens_ = 0;
}

Buffer Trainer::compute(const Op& op, Buffer input) {
  model::Chunk& chunk = *chunks_[static_cast<size_t>(op.chunk)];
  ChunkStates& states = states_[static_cast<size_t>(op.chunk)];
  auto& state = states.in_use[static_cast<size_t>(op.micro_batch)];
  Buffer output;
  if (units_) units_->begin(index_of(op));
  kernels::RecordedPass pass(mode_ == parallel::Mode::Train ? recorder_ : nullptr);
  switch (op.kind) {
    case OpKind::Forward:
      if (states.free.empty()) states.free.push_back(chunk.make_state());
      state = std::move(states.free.back());
      states.free.pop_back();
      output = chunk.forward(*state, views_[static_cast<size_t>(op.micro_batch)], std::move(input), mode_, loss_sum_);
      if (mode_ == parallel::Mode::Evaluate) give_back_state(op);
      break;
    case OpKind::Backward:
      output = chunk.backward_input(*state, std::move(input), parallel::WeightGradient::Now);
      give_back_state(op);
      break;
    case OpKind::BackwardInput:
      output = chunk.backward_input(*state, std::move(input), parallel::WeightGradient::Later);
      break;
    case OpKind::BackwardWeight:
      chunk.backward_weight(*state);
      give_back_state(op);
      break;
    default:
      ensure(false, "Trainer: the program holds a compute op that is not known");
  }
  pass.finish();
  if (units_) units_->end();
  return output;
}

void Trainer::give_back_state(const Op& op) {
  ChunkStates& states = states_[static_cast<size_t>(op.chunk)];
  states.free.push_back(std::move(states.in_use[static_cast<size_t>(op.micro_batch)]));
}

void Trainer::update(const Op& op) {
  if (units_) {
    units_->begin(index_of(op));
    units_->end();
  }
  switch (op.kind) {
    case OpKind::LoadBatch: {
      const auto index = static_cast<size_t>(op.micro_batch);
      const auto& slots = mode_ == parallel::Mode::Train ? batch_slots_ : evaluation_batch_slots_;
      views_[index] = uploads_.view(index, slots[index], batches_[index]);
      if (chunks_[static_cast<size_t>(op.chunk)]->last() && grid_->coord().tensor == 0) {
        counted_tokens_ += counted_tokens(batches_[index]);
      }
      return;
    }
    case OpKind::SumTensorPartial:
      if (server_) return;  // of every update, when it is taken
      return sync_->sum_tensor_partial(op.chunk);
    case OpKind::SumTied:
      if (server_) return;
      return sync_->sum_tied();
    case OpKind::ReduceGradients:
      if (server_) return;  // the whole gradient goes at once, after the backward pass
      return sync_->reduce(op.bucket);
    case OpKind::GradientNorm:
      if (server_) return;  // of every update, when it is taken
      return gradient_norm();
    case OpKind::OptimizerStep:
      if (server_) return hand_to_server();
      device_->order_after_copies();                             // of a checkpoint
      weights_fresh_ = !options_.parallel.overlap_param_gather;  // else the next step gathers
      return codes_momentum() ? one_bit_adam_->step(now_, step_) : optimizer_->step(step_);
    case OpKind::GatherParameters:
      return gather_->refresh(op.bucket);
    default:
      ensure(false, "Trainer: the program holds an op that is not known");
  }
}

void Trainer::gradient_norm() {
  sync_->finish();
  measure_gradient(global_tokens());
}

void Trainer::measure_gradient(double tokens) {
  const double factor = mean_factor(context_.tokens(), now_.loss_scale, tokens);
  grad_norm_ = std::sqrt(codes_momentum() ? one_bit_adam_->sum_of_squares() : norm_->sum_of_squares()) * factor;
  if (!std::isfinite(grad_norm_)) {
    if (!scaler_.skips_overflow()) fail_nonfinite(grad_norm_);
    now_.skip = 1;
    publish_step();
    return;
  }
  if (grad_norm_ == 0) {
    throw RunTimeError(
        fmt::format("step {}: the gradient norm is exactly 0 on all ranks: no parameter would learn "
                    "(all loss-mask entries 0, or a cut in the backward pass)",
                    progress_.iteration + 1));
  }
  now_.grad_scale = factor * clip_factor(options_.optimizer.clip_grad, grad_norm_);
  publish_step();
}

double Trainer::global_tokens() {
  const double all =
      static_cast<double>(options_.batch.global_batch_size) * static_cast<double>(options_.model.seq_length);
  if (!options_.data.eod_mask_loss) return all;
  double count = counted_tokens_;
  grid_->world().all_reduce(Tensor(&count, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return std::max(1.0, count);
}

double Trainer::take_loss_sum() {
  const double sum = scalar_of(*device_, loss_sum_);
  return holds_head() && grid_->coord().tensor == 0 ? sum : 0;
}

void Trainer::evaluate_step(std::span<const io::MicroBatch> batches) {
  mode_ = parallel::Mode::Evaluate;
  batches_ = batches;
  finish_communication();
  settle();
  device_->fill(loss_sum_, 0);
  counted_tokens_ = 0;
  refresh_weights();
  start_run(evaluation_program_, evaluation_unit_ops_);
  during("evaluation after step", progress_.iteration, [&] { return evaluator_->run(*this); });
  evaluation_loss_ += take_loss_sum();
  evaluation_tokens_ += counted_tokens_;
}

Trainer::Evaluation Trainer::finish_evaluation() {
  RankReport mine;
  mine.loss_sum = std::exchange(evaluation_loss_, 0);
  mine.tokens = std::exchange(evaluation_tokens_, 0);
  const StepTotals totals = combine(exchange_.exchange(mine), 1);
  return {totals.loss, totals.tokens};
}

bool Trainer::holds_tokens() const {
  return std::any_of(chunks_.begin(), chunks_.end(), [](const auto& c) { return c->first() || c->last(); });
}

bool Trainer::holds_head() const {
  return std::any_of(chunks_.begin(), chunks_.end(), [](const auto& c) { return c->last(); });
}

}  // namespace triax::train
