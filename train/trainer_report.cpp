// What a trainer says about its steps: op times, communication, the report of a rank.
#include <algorithm>
#include <cmath>

#include "train/trainer.h"

namespace triax::train {

OpTimes Trainer::op_times() {
  std::vector<parallel::OpTime> own;
  if (clock_) {
    own.assign(clock_->times().begin(), clock_->times().end());
  } else {
    clocks_ = grid_->align_clocks();
    const auto ps = [this](double s) { return std::llround((executor_->start_s() + s - clocks_.offset_s) * 1e12); };
    for (const OpSeconds& time : executor_->times()) own.push_back({ps(time.start_s), ps(time.stop_s)});
  }
  return gather_op_times(program_, own, grid_->host(grid_->pipeline()));
}

double Trainer::exposed_s() const {
  double exposed = 0;
  for (const char* group :
       {"tp", "pp", "dp", "dp_shard", "dp_replica", "model_parallel", "embedding", "kv_replicas", "world"})
    exposed += grid_->ledger().total_exposed_s(group);
  return exposed;
}

const StepCommunication& Trainer::communication() {
  communication_.leave(grid_->ledger());
  return communication_;
}

const StepCommunication& Trainer::finish_communication() {
  if (!communication_.inside()) return communication_;
  communication_.leave(grid_->ledger());
  grid_->meet_on_device();
  communication_.add_waited(grid_->ledger());
  return communication_;
}

RankReport Trainer::report(const StepInput& input, const ExecutionTimes& times) {
  const comm::Ledger& ledger = grid_->ledger();
  RankReport r;
  r.loss_sum = take_loss_sum();
  r.tokens = counted_tokens_;
  r.receive_wait_s = times.receive_wait_s;
  r.compute_end_s = times.compute_end_s;
  r.exposed_s = exposed_s() - exposed_before_;
  r.own_s = std::max(0.0, times.end_s - r.exposed_s);
  r.data_wait_s = input.data_wait_s;
  r.sent_bytes = ledger.total_sent_bytes() - sent_bytes_before_;
  r.live_bytes = static_cast<double>(arena_->ledger().live_total);
  r.peak_bytes = static_cast<double>(arena_->ledger().peak_total);
  if (input.wishes) r.wishes = input.wishes();
  return r;
}

}  // namespace triax::train
