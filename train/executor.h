// Executes the program of one pipeline position op by op. It knows neither schedules nor models: order, peers and tags
// come from the program, the math from a StageWork.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/flight_recorder.h"
#include "base/memory.h"
#include "comm/communicator.h"
#include "kernels/device.h"
#include "parallel/program.h"
#include "parallel/virtual_clock.h"

namespace triax::train {

/// What the ops of a program do: the trainer's model and optimizer, or a fake in tests.
class StageWork {
 public:
  virtual ~StageWork() = default;
  /// Forward, Backward, BackwardInput, BackwardWeight, Recompute. `input` is what was received for it, empty where
  /// nothing was (first virtual stage forward, last one backward, weight gradients, recomputation). Returns what is to
  /// be sent, or nothing.
  virtual Buffer compute(const parallel::Op& op, Buffer input) = 0;
  /// Every other op that is not a message: LoadBatch, gradient sums, norm, optimizer.
  virtual void update(const parallel::Op& op) = 0;
};

/// Every message between stages: [rows, cols], whole, or in slices of 1/t that the ranks of `scattered_over` send and
/// gather (where the program has gathers of messages).
struct MessageShape {
  DType dtype = DType::Float32;
  int64_t rows = 0, cols = 0;
  comm::Communicator* scattered_over = nullptr;  ///< tp; null: whole
  int64_t numel() const { return rows * cols; }
  int64_t slice() const { return scattered_over != nullptr ? numel() / scattered_over->size() : numel(); }
};

/// How early receives are posted. OneAhead: when a message has arrived, the receive of the next one is posted at once,
/// so it travels during the compute op in between. None: a receive is posted when the program comes to it.
enum class ReceiveAhead { None, OneAhead };

/// Seconds since the start of the run of the program.
struct OpSeconds {
  double start_s = 0, stop_s = 0;
};

struct ExecutionTimes {
  double receive_wait_s = 0;  ///< standing in receives
  double compute_end_s = 0;   ///< end of the last forward or backward op or send
  double end_s = 0;
};

/// A send copies into one of the staging buffers of its direction and travels while the next ops run; it waits only
/// while all of them are under way. So the memory of messages is fixed: the staged ones and two received. Blocks else
/// only in receives, in what StageWork does, and at the end until all sends are through. Reused for every step; a
/// steady step allocates only from the arena.
class Executor {
 public:
  /// `ops` and `layers` must outlive the executor. The position is this rank's in `pipeline`. Messages are
  /// MemoryCategory::Communication of `arena`. staged: buffers per direction, as many as the whole program needs
  /// (staging.h).
  Executor(std::span<const parallel::Op> ops, const parallel::LayerMap& layers, int num_micro_batches,
           comm::Communicator& pipeline, kernels::Device& device, Arena& arena, const MessageShape& message,
           ReceiveAhead ahead, int staged);

  /// Runs the whole list once. Throws what the work or a communicator throws.
  ExecutionTimes run(StageWork& work);
  /// Of the last run: times()[i] belongs to op i.
  std::span<const OpSeconds> times() const { return times_; }
  /// When the last run started, on this host's monotonic clock.
  double start_s() const { return start_s_; }
  /// From now on every run also advances `clock` over each op (started anew by each run); null: no clock.
  void set_clock(parallel::VirtualClock* clock) { clock_ = clock; }
  /// From now on every run notes the beginning and end of each op there; null: nowhere.
  void set_flight(FlightRecorder* flight) { flight_ = flight; }
  /// Called before each op; empty: nothing is. For faults on purpose.
  void set_before(std::function<void(const parallel::Op&)> before) { before_ = std::move(before); }
  /// Op of the last run during which the arena's peak was last raised; -1: none.
  int peak_op() const { return peak_op_; }

 private:
  struct Message {
    Buffer buffer;
    comm::Work work;
  };
  void execute(const parallel::Op& op, StageWork& work);
  ExecutionTimes times_of_run();
  void post_receive();
  void finish_receive(const parallel::Op& op);
  void send(const parallel::Op& op);
  void gather_message(const parallel::Op& op);
  int peer_of(const parallel::Op& op) const;
  size_t slot(const parallel::Op& op) const;
  /// Where the result of a compute op is looked for next: by its send, or by the neighbouring virtual stage (step 1 or
  /// -1) where that is a chunk of this position.
  size_t slot_after(const parallel::Op& op, int step) const;

  std::span<const parallel::Op> ops_;
  const parallel::LayerMap* layers_;
  int num_micro_batches_;
  comm::Communicator* pipeline_;
  kernels::Device* device_;
  Arena* arena_;
  MessageShape message_;
  ReceiveAhead ahead_;
  std::vector<size_t> receives_;                ///< indices of receive ops, in order
  size_t next_receive_ = 0;                     ///< first of receives_ that is not posted
  std::vector<Message> posted_;                 ///< in order, at most two
  std::array<std::vector<Message>, 2> staged_;  ///< [direction]: used in turn; empty where nothing is sent
  std::array<size_t, 2> next_staged_{};
  int peak_op_ = -1;
  double start_s_ = 0;
  parallel::VirtualClock* clock_ = nullptr;
  FlightRecorder* flight_ = nullptr;
  std::function<void(const parallel::Op&)> before_;
  std::vector<std::string> names_;   ///< of ops, for a profiler; empty where none can be
  std::vector<Buffer> activations_;  ///< [chunk, micro-batch]: received input or output to send of a forward
  std::vector<Buffer> gradients_;    ///< the same of a backward
  std::vector<OpSeconds> times_;
};

}  // namespace triax::train
