// Injected delays: a slow network on demand, for tests of overlap and of order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace triax::comm {

/// One rule of a delay specification.
struct DelayRule {
  std::string group;  ///< name of the communicator, or "all"
  double least_s = 0;
  double most_s = 0;  ///< equal to least_s for a fixed delay
  uint64_t seed = 0;
  bool operator==(const DelayRule&) const = default;
};

/// Rules separated by commas: GROUP:fixed:TIME or GROUP:uniform:LEAST:MOST[:seed=N], times with the unit us, ms or s.
/// "dp:fixed:20ms", "all:uniform:0:2ms:seed=7". Anything else: ConfigError.
std::vector<DelayRule> parse_delay_spec(const std::string& spec);

/// Sleeps before every operation, as long as the rules of this group say; drawn from (seed, world rank, number of the
/// operation), so that a run can be repeated.
class DelayCommunicator final : public Communicator {
 public:
  DelayCommunicator(std::unique_ptr<Communicator> inner, DelayRule rule, int world_rank)
      : inner_(std::move(inner)), rule_(std::move(rule)), world_rank_(world_rank) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  Work all_reduce(Tensor t, ReduceOp op) override { return delayed().all_reduce(t, op); }
  Work reduce(Tensor t, ReduceOp op, int root) override { return delayed().reduce(t, op, root); }
  Work all_gather(Tensor in, Tensor out) override { return delayed().all_gather(in, out); }
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override {
    return delayed().all_gather_v(in, out, counts);
  }
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override { return delayed().reduce_scatter(in, out, op); }
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override {
    return delayed().reduce_scatter_v(in, out, counts, op);
  }
  Work broadcast(Tensor t, int root) override { return delayed().broadcast(t, root); }
  Work all_to_all(Tensor in, Tensor out) override { return delayed().all_to_all(in, out); }
  Work send(Tensor t, int peer, int tag) override { return delayed().send(t, peer, tag); }
  Work recv(Tensor t, int peer, int tag) override { return delayed().recv(t, peer, tag); }
  void barrier() override { delayed().barrier(); }
  Tensor allocate_symmetric(DType dtype, int64_t elements) override {
    return inner_->allocate_symmetric(dtype, elements);
  }
  const SentBytes* counted(Operation op) const override { return inner_->counted(op); }

 private:
  Communicator& delayed();
  std::unique_ptr<Communicator> inner_;
  DelayRule rule_;
  int world_rank_;
  uint32_t operations_ = 0;
};

}  // namespace triax::comm
