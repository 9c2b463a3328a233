#include "train/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "parallel/program_print.h"

namespace triax::train {

using parallel::Op;
using parallel::OpKind;

namespace {

FlightRecorder::Entry entry_of(const Op& op, size_t index) {
  FlightRecorder::Entry entry;
  entry.kind = FlightKind::Op;
  entry.code = static_cast<uint8_t>(op.kind);
  entry.number = static_cast<int64_t>(index);
  entry.micro_batch = op.micro_batch;
  entry.chunk = static_cast<int16_t>(op.chunk);
  return entry;
}

/// Even for activations, odd for gradients: on a device, which keeps messages of one parity in order
/// (comm/device_groups.h), neither kind then waits for the other.
int tag_of(const Op& op) {
  const bool gradient = op.kind == OpKind::SendGradient || op.kind == OpKind::RecvGradient;
  return static_cast<int>(2 * op.match + (gradient ? 1 : 0));
}

size_t direction_of(const Op& send) { return send.kind == OpKind::SendActivation ? 0 : 1; }

}  // namespace

Executor::Executor(std::span<const Op> ops, const parallel::LayerMap& layers, int num_micro_batches,
                   comm::Communicator& pipeline, kernels::Device& device, Arena& arena, const MessageShape& message,
                   ReceiveAhead ahead, int staged)
    : ops_(ops),
      layers_(&layers),
      num_micro_batches_(num_micro_batches),
      pipeline_(&pipeline),
      device_(&device),
      arena_(&arena),
      message_(message),
      ahead_(ahead),
      activations_(static_cast<size_t>(layers.chunks) * static_cast<size_t>(num_micro_batches)),
      gradients_(activations_.size()),
      times_(ops.size()) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (parallel::is_receive(ops[i].kind)) receives_.push_back(i);
    if (parallel::is_send(ops[i].kind)) staged_[direction_of(ops[i])].resize(static_cast<size_t>(staged));
  }
  for (auto& direction : staged_) {
    for (Message& stage : direction) {
      stage.buffer = arena.allocate(message.dtype, message.slice(), MemoryCategory::Communication);
    }
  }
  posted_.reserve(2);
  if (device.on_host()) return;
  for (const Op& op : ops) names_.push_back(parallel::text_of(layers, pipeline.rank(), op));
}

ExecutionTimes Executor::run(StageWork& work) {
  start_s_ = now_s();
  if (clock_ != nullptr) clock_->start_step();
  next_receive_ = 0;
  peak_op_ = -1;
  posted_.clear();
  if (ahead_ == ReceiveAhead::OneAhead) post_receive();
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    const int64_t peak = arena_->ledger().peak_total;
    device_->mark(2 * i);
    const FlightRecorder::Entry entry = entry_of(op, i);
    if (flight_ != nullptr) flight_->begin(entry);
    if (before_) before_(op);
    if (!names_.empty()) device_->begin_range(names_[i].c_str());
    try {
      execute(op, work);
    } catch (const comm::PeerLost& lost) {
      throw comm::PeerLost(fmt::format("{}; in op {} of {}, {}, chunk {}, micro-batch {}", lost.what(), i, ops_.size(),
                                       parallel::name_of(op.kind), op.chunk, op.micro_batch));
    }
    if (clock_ != nullptr) clock_->advance(static_cast<int>(i));
    device_->mark(2 * i + 1);
    if (!names_.empty()) device_->end_range();
    if (flight_ != nullptr) flight_->end(entry);
    if (arena_->ledger().peak_total > peak) peak_op_ = static_cast<int>(i);
  }
  for (auto& direction : staged_) {
    for (Message& stage : direction) stage.work.wait();
  }
  device_->synchronize();
  return times_of_run();
}

ExecutionTimes Executor::times_of_run() {
  ExecutionTimes total;
  total.end_s = now_s() - start_s_;
  for (size_t i = 0; i < ops_.size(); ++i) {
    times_[i] = {device_->marked_s(2 * i) - start_s_, device_->marked_s(2 * i + 1) - start_s_};
    const OpKind kind = ops_[i].kind;
    if (is_receive(kind)) total.receive_wait_s += times_[i].stop_s - times_[i].start_s;
    if (is_compute(kind) || is_send(kind)) total.compute_end_s = times_[i].stop_s;
  }
  return total;
}

void Executor::execute(const Op& op, StageWork& work) {
  if (is_receive(op.kind)) {
    finish_receive(op);
  } else if (is_send(op.kind)) {
    send(op);
  } else if (is_message_gather(op.kind)) {
    gather_message(op);
  } else if (op.kind == OpKind::Forward) {
    Buffer output = work.compute(op, std::move(activations_[slot(op)]));
    activations_[slot_after(op, 1)] = std::move(output);
  } else if (is_backward_input(op.kind)) {
    Buffer output = work.compute(op, std::move(gradients_[slot(op)]));
    gradients_[slot_after(op, -1)] = std::move(output);
  } else if (is_compute(op.kind)) {
    work.compute(op, Buffer());
  } else {
    work.update(op);
  }
}

void Executor::post_receive() {
  if (next_receive_ == receives_.size()) return;
  const Op& op = ops_[receives_[next_receive_++]];
  Message message;
  message.buffer = arena_->allocate(message_.dtype, message_.slice(), MemoryCategory::Communication);
  message.work = pipeline_->recv(message.buffer.view(message_.dtype, {message_.slice()}), peer_of(op), tag_of(op));
  posted_.push_back(std::move(message));
}

void Executor::finish_receive(const Op& op) {
  if (ahead_ == ReceiveAhead::None) post_receive();
  posted_.front().work.wait();
  Buffer& target = op.kind == OpKind::RecvActivation ? activations_[slot(op)] : gradients_[slot(op)];
  target = std::move(posted_.front().buffer);
  posted_.erase(posted_.begin());
  if (ahead_ == ReceiveAhead::OneAhead) post_receive();
}

void Executor::send(const Op& op) {
  const Buffer data = std::move(op.kind == OpKind::SendActivation ? activations_[slot(op)] : gradients_[slot(op)]);
  ensure(static_cast<bool>(data), "Executor: the program sends what no op has made");
  const size_t direction = direction_of(op);
  Message& stage = staged_[direction][next_staged_[direction]];
  next_staged_[direction] = (next_staged_[direction] + 1) % staged_[direction].size();
  stage.work.wait();
  const Tensor out = stage.buffer.view(message_.dtype, {message_.slice()});
  const int64_t begin = message_.scattered_over != nullptr ? message_.scattered_over->rank() * message_.slice() : 0;
  device_->copy(data.view(message_.dtype, {message_.numel()}).range(begin, begin + message_.slice()), out);
  stage.work = pipeline_->send(out, peer_of(op), tag_of(op));
}

void Executor::gather_message(const Op& op) {
  Buffer& target = op.kind == OpKind::GatherActivation ? activations_[slot(op)] : gradients_[slot(op)];
  Buffer whole = arena_->allocate(message_.dtype, message_.numel(), MemoryCategory::Communication);
  message_.scattered_over
      ->all_gather(target.view(message_.dtype, {message_.slice()}), whole.view(message_.dtype, {message_.numel()}))
      .wait();
  target = std::move(whole);
}

int Executor::peer_of(const Op& op) const { return (pipeline_->rank() + op.peer_offset) % pipeline_->size(); }

size_t Executor::slot_after(const Op& op, int step) const {
  const int stage = layers_->virtual_stage(pipeline_->rank(), op.chunk) + step;
  Op next = op;
  const bool here =
      stage >= 0 && stage < layers_->num_virtual_stages() && layers_->position_of(stage) == pipeline_->rank();
  if (here) next.chunk = layers_->chunk_of(stage);
  return slot(next);
}

size_t Executor::slot(const Op& op) const {
  return static_cast<size_t>(op.chunk) * static_cast<size_t>(num_micro_batches_) + static_cast<size_t>(op.micro_batch);
}

}  // namespace triax::train
