// Data parallelism through a parameter server, synchronous or with bounded staleness: an ablation beside all-reduce
// (--grad-sync parameter-server --max-staleness S). Stale synchronous parallel (Ho et al. 2013), by whole steps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/memory.h"
#include "comm/communicator.h"
#include "kernels/device.h"

namespace triax::train {

/// How old the weights of a step were: updates that were still missing when it began.
struct StalenessReport {
  int64_t steps = 0;
  int64_t largest = 0;
  int64_t sum = 0;
  std::vector<int64_t> steps_with;  ///< [staleness 0..S]
  double mean() const { return steps == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(steps); }
};

/// Rank 0 of dp is the server, and trains as well. In every step each of the other n-1 ranks sends its gradient, psi
/// bytes, and gets the weights, psi bytes: 2 (n-1) psi at the server, where an all-reduce costs every rank
/// 2 (n-1)/n psi. Update u adds up the gradients of step u of all ranks in rank order, so at S = 0 the bits are those
/// of the all-reduce. A rank begins step k with at least the updates before k - S, and with the newest that have
/// arrived. All ranks of a model replica (tp x pp) use the same version: they agree by an all-reduce of 8 bytes.
/// Memory: S + 1 gradients and weights on a worker; (n-1)(S+1) gradients, S + 1 of its own and S + 1 weights on the
/// server.
class ParameterServer {
 public:
  /// On the server: the gradient holds the sum of update `update` (from 0); changes the weights.
  using Apply = std::function<void(int64_t update)>;

  /// `gradient`, `weights`: flat arrays of this rank, whole, in memory that the CPU reads.
  ParameterServer(comm::Communicator& data, comm::Communicator& model_parallel, kernels::Device& device, Arena& arena,
                  Tensor gradient, Tensor weights, int max_staleness, Apply apply);
  ~ParameterServer();  ///< settles
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  bool is_server() const { return data_->rank() == 0; }
  /// Ends a step: hands the gradient over; returns when the weights may be used for the next one. Collective over dp
  /// and tp x pp.
  void end_step();
  /// Waits until the updates of all steps are in the weights of all ranks. Collective as above.
  void settle();
  /// Of this rank.
  const StalenessReport& staleness() const { return report_; }
  int64_t updates() const { return version_; }  ///< that are in the weights
  int64_t steps() const { return steps_; }      ///< that have ended

 private:
  /// S + 1 copies of an array; step or version v lies in copy v mod (S + 1).
  struct Ring {
    Buffer memory;
    Tensor at(int64_t v) const;
    DType dtype = DType::Float32;
    int64_t elements = 0;
    int64_t slots = 1;
  };
  Ring make_ring(Arena& arena, const Tensor& like) const;
  void hand_over();
  void advance_to(int64_t version);
  /// Updates that could be in the weights now; the first `needed` are waited for.
  int64_t ready(int64_t needed);
  bool arrived(int64_t v, bool wait);
  void take_up(int64_t v);
  void post_receives();
  int64_t least_of_replica(int64_t mine);

  comm::Communicator* data_;
  comm::Communicator* model_parallel_;
  kernels::Device* device_;
  Tensor gradient_, weights_;
  int64_t max_staleness_;
  Apply apply_;
  int64_t steps_ = 0;            ///< handed over
  int64_t version_ = 0;          ///< updates in the weights
  int64_t posted_ = 0;           ///< server: steps, worker: versions whose receives were posted
  int64_t arrived_ = 0;          ///< of these, complete
  std::vector<Ring> gradients_;  ///< server: of each rank; worker: its own, being sent
  Ring weights_ring_;
  std::vector<std::vector<comm::Work>> receives_;  ///< [slot][peer]
  std::vector<std::vector<comm::Work>> sends_;     ///< [slot][peer]
  StalenessReport report_;
};

}  // namespace triax::train
