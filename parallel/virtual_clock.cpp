#include "parallel/virtual_clock.h"

#include <algorithm>

namespace triax::parallel {
namespace {

Tensor one_value(int64_t& value) { return Tensor(&value, DType::Int64, {1}); }

}  // namespace

VirtualClock::VirtualClock(const Program& program, const CostTable& table, const TimeOptions& options,
                           comm::Communicator& pipeline, comm::Communicator& data)
    : program_(&program),
      pipeline_(&pipeline),
      data_(&data),
      lane_{data.rank(), pipeline.rank()},
      model_(program, table, data.size(), options),
      ops_(program.positions[static_cast<size_t>(pipeline.rank())]),
      times_(ops_.size()),
      flights_(ops_.size(), 0) {
  for (const auto& ops : program.positions) {
    for (const Op& op : ops) num_matches_ = std::max(num_matches_, op.match + 1);
  }
}

void VirtualClock::start_step() {
  now_ps_ = 0;
  data_end_ps_ = 0;
  norm_start_ps_ = -1;
  gathered_ps_.assign(static_cast<size_t>(program_->chunks), 0);
}

void VirtualClock::advance(int index) {
  const Op& o = op(index);
  OpTime& time = times_[static_cast<size_t>(index)];
  const int peer = (lane_.position + o.peer_offset) % program_->pipeline;
  if (is_send(o.kind)) {
    time = {now_ps_, now_ps_};
    send(now_ps_ + model_.flight_ps(lane_.position, o), peer, tag_of(o));
  } else if (is_receive(o.kind)) {
    // The wire takes as long as the table says for the sender's op, which is this one seen from the other side.
    Op sent = o;
    sent.kind = o.kind == OpKind::RecvActivation ? OpKind::SendActivation : OpKind::SendGradient;
    sent.peer_offset = (program_->pipeline - o.peer_offset) % program_->pipeline;
    flights_[static_cast<size_t>(index)] = model_.flight_ps(peer, sent);
    time = {now_ps_, std::max(now_ps_, receive(peer, tag_of(o)))};
    now_ps_ = time.stop_ps;
  } else if (o.kind == OpKind::ReduceGradients || o.kind == OpKind::GatherParameters) {
    reduce(index);
  } else if (o.kind == OpKind::GradientNorm) {
    norm(index);
  } else {
    if (o.kind == OpKind::SumTied || o.kind == OpKind::SumTensorPartial) now_ps_ = std::max(now_ps_, data_end_ps_);
    if (is_forward(o.kind)) now_ps_ = std::max(now_ps_, gathered_ps_[static_cast<size_t>(o.chunk)]);
    const int64_t start = o.kind == OpKind::SumTied ? largest_with_tied_partner(now_ps_) : now_ps_;
    time = {start, start + duration_ps(index)};
    now_ps_ = time.stop_ps;
  }
  while (!sent_.empty() && sent_.front().work.test()) sent_.pop_front();
}

void VirtualClock::reduce(int index) {
  OpTime& time = times_[static_cast<size_t>(index)];
  const bool beside = op(index).stream == Stream::Data;
  const int64_t ready = largest(now_ps_, *data_);
  const int64_t start = beside ? std::max(ready, data_end_ps_) : ready;
  time = {start, start + duration_ps(index)};
  (beside ? data_end_ps_ : now_ps_) = time.stop_ps;
  if (beside && op(index).kind == OpKind::GatherParameters) {
    gathered_ps_[static_cast<size_t>(op(index).chunk)] = time.stop_ps;
  }
}

void VirtualClock::norm(int index) {
  const int64_t start = largest(std::max(now_ps_, data_end_ps_), *pipeline_);
  if (norm_start_ps_ < 0) norm_start_ps_ = start;
  times_[static_cast<size_t>(index)] = {start, start + duration_ps(index)};
  now_ps_ = times_[static_cast<size_t>(index)].stop_ps;
}

StepTimes VirtualClock::finish_step() {
  for (Sent& message : sent_) message.work.wait();
  sent_.clear();
  const IdleAccount account = account_of(ops_, times_, flights_);
  const int64_t pass_end = largest(account.last_ps(), *pipeline_);
  StepTimes times;
  times.makespan_ps = largest(largest(std::max({now_ps_, data_end_ps_, pass_end}), *pipeline_), *data_);
  times.span_ps = largest(largest(account.last_ps() - std::max<int64_t>(account.first_ps(), 0), *pipeline_), *data_);
  times.busy_ps = account.busy_ps();
  times.idle = account.finish(pass_end, norm_start_ps_ < 0 ? times.makespan_ps : norm_start_ps_, times.makespan_ps);
  return times;
}

void VirtualClock::send(int64_t value, int peer, int tag) {
  sent_.push_back({value, {}});
  sent_.back().work = pipeline_->send(one_value(sent_.back().arrival_ps), peer, tag);
}

int64_t VirtualClock::receive(int peer, int tag) {
  int64_t value = 0;
  pipeline_->recv(one_value(value), peer, tag).wait();
  return value;
}

int64_t VirtualClock::largest(int64_t value, comm::Communicator& group) {
  group.all_reduce(one_value(value), comm::ReduceOp::Max).wait();
  return value;
}

int64_t VirtualClock::largest_with_tied_partner(int64_t value) {
  const LayerMap& layers = program_->layers;
  const int first = layers.position_of(0);
  const int last = layers.position_of(layers.num_virtual_stages() - 1);
  if (first == last) return value;
  const int partner = lane_.position == first ? last : first;
  const int tag = static_cast<int>(3 * num_matches_);
  send(value, partner, tag);
  return std::max(value, receive(partner, tag));
}

}  // namespace triax::parallel
