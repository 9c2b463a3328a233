#include "train/executor.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace triax::train {

using parallel::Op;
using parallel::OpKind;

namespace {

bool is_receive(const Op& op) { return op.kind == OpKind::RecvActivation || op.kind == OpKind::RecvGradient; }
bool is_send(const Op& op) { return op.kind == OpKind::SendActivation || op.kind == OpKind::SendGradient; }
bool is_compute(const Op& op) {
  return op.kind == OpKind::Forward || op.kind == OpKind::Backward || op.kind == OpKind::BackwardInput ||
         op.kind == OpKind::BackwardWeight;
}

}  // namespace

Executor::Executor(std::span<const Op> ops, int chunks, int num_micro_batches, comm::Communicator& pipeline,
                   Arena& arena, const MessageShape& message, ReceiveAhead ahead)
    : ops_(ops),
      num_micro_batches_(num_micro_batches),
      pipeline_(&pipeline),
      arena_(&arena),
      message_(message),
      ahead_(ahead),
      activations_(static_cast<size_t>(chunks) * static_cast<size_t>(num_micro_batches)),
      gradients_(activations_.size()),
      times_(ops.size()) {
  size_t sends = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (is_receive(ops[i])) receives_.push_back(i);
    if (is_send(ops[i])) ++sends;
  }
  posted_.reserve(2);
  sends_.reserve(sends);
}

ExecutionTimes Executor::run(StageWork& work) {
  ExecutionTimes total;
  const double start_s = now_s();
  next_receive_ = 0;
  posted_.clear();
  if (ahead_ == ReceiveAhead::OneAhead) post_receive();
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    times_[i].start_s = now_s() - start_s;
    execute(op, work);
    times_[i].stop_s = now_s() - start_s;
    if (is_receive(op)) total.receive_wait_s += times_[i].stop_s - times_[i].start_s;
    if (is_compute(op) || is_send(op)) total.compute_end_s = times_[i].stop_s;
  }
  for (Message& message : sends_) message.work.wait();
  sends_.clear();
  total.end_s = now_s() - start_s;
  return total;
}

void Executor::execute(const Op& op, StageWork& work) {
  if (is_receive(op)) {
    finish_receive(op);
  } else if (is_send(op)) {
    send(op);
  } else if (op.kind == OpKind::Forward) {
    Buffer& data = activations_[slot(op)];
    data = work.compute(op, std::move(data));
  } else if (op.kind == OpKind::BackwardWeight) {
    work.compute(op, Buffer());
  } else if (is_compute(op)) {
    Buffer& data = gradients_[slot(op)];
    data = work.compute(op, std::move(data));
  } else {
    work.update(op);
  }
  reap_sends();
}

void Executor::post_receive() {
  if (next_receive_ == receives_.size()) return;
  const Op& op = ops_[receives_[next_receive_++]];
  Message message;
  message.buffer =
      arena_->allocate(message_.dtype, message_.rows * message_.cols, MemoryCategory::Communication);
  message.work = pipeline_->recv(message.buffer.view(message_.dtype, {message_.rows, message_.cols}), peer_of(op),
                                 static_cast<int>(op.match));
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
  Message message;
  message.buffer = std::move(op.kind == OpKind::SendActivation ? activations_[slot(op)] : gradients_[slot(op)]);
  ensure(static_cast<bool>(message.buffer), "Executor: the program sends what no op has made");
  message.work = pipeline_->send(message.buffer.view(message_.dtype, {message_.rows, message_.cols}), peer_of(op),
                                 static_cast<int>(op.match));
  sends_.push_back(std::move(message));
}

void Executor::reap_sends() {
  std::erase_if(sends_, [](Message& message) { return message.work.test(); });
}

int Executor::peer_of(const Op& op) const { return (pipeline_->rank() + op.peer_offset) % pipeline_->size(); }

size_t Executor::slot(const Op& op) const {
  return static_cast<size_t>(op.chunk) * static_cast<size_t>(num_micro_batches_) + static_cast<size_t>(op.micro_batch);
}

}  // namespace triax::train
