#include "train/parameter_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace triax::train {
namespace {

constexpr int kGradientTag = 1;
constexpr int kWeightsTag = 2;

void wait_all(std::vector<comm::Work>& works) {
  for (comm::Work& work : works) work.wait();
  works.clear();
}

}  // namespace

Tensor ParameterServer::Ring::at(int64_t v) const {
  const int64_t slot = v % slots;
  return memory.view(dtype, {elements * slots}).range(slot * elements, (slot + 1) * elements);
}

ParameterServer::Ring ParameterServer::make_ring(Arena& arena, const Tensor& like) const {
  Ring ring;
  ring.dtype = like.dtype();
  ring.elements = like.numel();
  ring.slots = max_staleness_ + 1;
  ring.memory = arena.allocate(like.dtype(), ring.elements * ring.slots, MemoryCategory::Communication);
  return ring;
}

ParameterServer::ParameterServer(comm::Communicator& data, comm::Communicator& model_parallel, kernels::Device& device,
                                 Arena& arena, Tensor gradient, Tensor weights, int max_staleness, Apply apply)
    : data_(&data),
      model_parallel_(&model_parallel),
      device_(&device),
      gradient_(gradient.flat()),
      weights_(weights.flat()),
      max_staleness_(max_staleness),
      apply_(std::move(apply)) {
  ensure(max_staleness >= 0, "ParameterServer: staleness is at least 0");
  const int rings = is_server() ? data.size() : 1;
  for (int r = 0; r < rings; ++r) gradients_.push_back(make_ring(arena, gradient_));
  weights_ring_ = make_ring(arena, weights_);
  receives_.resize(static_cast<size_t>(max_staleness_ + 1));
  sends_.resize(static_cast<size_t>(max_staleness_ + 1));
  report_.steps_with.resize(static_cast<size_t>(max_staleness_ + 1));
}

ParameterServer::~ParameterServer() {
  // While an error unwinds, the job is about to be aborted.
  if (std::uncaught_exceptions() > 0) return;
  try {
    settle();
  } catch (const std::exception& error) {
    spdlog::error("the parameter server's last updates failed: {}", error.what());
  }
}

void ParameterServer::end_step() {
  const int64_t staleness = steps_ - version_;  // of the step that ends, since no update was taken up within it
  ensure(staleness <= max_staleness_, "ParameterServer: weights older than --max-staleness allows");
  ++report_.steps;
  report_.sum += staleness;
  report_.largest = std::max(report_.largest, staleness);
  ++report_.steps_with[static_cast<size_t>(staleness)];
  hand_over();
  advance_to(steps_ - max_staleness_);
}

void ParameterServer::settle() {
  advance_to(steps_);
  for (auto& sends : sends_) wait_all(sends);
}

/// The gradient of step `steps_` leaves its place, which the next step overwrites.
void ParameterServer::hand_over() {
  const Ring& own = gradients_[0];
  auto& sends = sends_[static_cast<size_t>(steps_ % own.slots)];
  // Step steps_ - S - 1 is in an update that this rank has seen: its message has long arrived.
  if (!is_server()) wait_all(sends);
  device_->copy(gradient_, own.at(steps_));
  device_->synchronize();
  if (!is_server()) sends.push_back(data_->send(own.at(steps_), 0, kGradientTag));
  ++steps_;
  post_receives();
}

/// Of all steps handed over: what was posted is sure to come. They are at most S + 1 that are not taken up.
void ParameterServer::post_receives() {
  for (; posted_ < steps_; ++posted_) {
    auto& receives = receives_[static_cast<size_t>(posted_ % (max_staleness_ + 1))];
    receives.clear();
    if (!is_server()) {
      receives.push_back(data_->recv(weights_ring_.at(posted_), 0, kWeightsTag));
      continue;
    }
    for (int r = 1; r < data_->size(); ++r) {
      receives.push_back(data_->recv(gradients_[static_cast<size_t>(r)].at(posted_), r, kGradientTag));
    }
  }
}

bool ParameterServer::arrived(int64_t v, bool wait) {
  auto& receives = receives_[static_cast<size_t>(v % (max_staleness_ + 1))];
  if (wait) wait_all(receives);
  return std::all_of(receives.begin(), receives.end(), [](comm::Work& work) { return work.test(); });
}

int64_t ParameterServer::ready(int64_t needed) {
  while (arrived_ < posted_ && arrived(arrived_, arrived_ < needed)) ++arrived_;
  return arrived_;
}

int64_t ParameterServer::least_of_replica(int64_t mine) {
  if (model_parallel_->size() == 1) return mine;
  model_parallel_->all_reduce(Tensor(&mine, DType::Int64, {1}), comm::ReduceOp::Min).wait();
  return mine;
}

void ParameterServer::advance_to(int64_t version) {
  const int64_t common = least_of_replica(ready(version));
  while (version_ < common) take_up(version_);
}

void ParameterServer::take_up(int64_t v) {
  if (!is_server()) {
    // Only the newest of several is looked at, but each has its turn: they are few and lie in memory.
    device_->copy(weights_ring_.at(v), weights_);
    device_->synchronize();
    ++version_;
    return;
  }
  device_->copy(gradients_[0].at(v), gradient_);
  for (size_t r = 1; r < gradients_.size(); ++r) device_->add(gradients_[r].at(v), gradient_);
  apply_(v);
  // The workers have begun step v with version v - S or later, so version v - S - 1 has left its place.
  auto& sends = sends_[static_cast<size_t>(v % (max_staleness_ + 1))];
  wait_all(sends);
  const Tensor out = weights_ring_.at(v);
  device_->copy(weights_, out);
  device_->synchronize();
  for (int r = 1; r < data_->size(); ++r) sends.push_back(data_->send(out, r, kWeightsTag));
  ++version_;
}

}  // namespace triax::train
