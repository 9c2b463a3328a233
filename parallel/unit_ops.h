// What happens inside the forward and backward ops of a program with data parallelism: which units run, when weights
// are gathered and released, when gradients are collected and reduced. Expanded on demand from the program alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace triax::parallel {

struct Program;

/// Which part of a split backward completes a gradient: the input pass (norms, biases behind the last GEMM of a branch)
/// or the weight pass.
enum class GradientPhase : uint8_t { Input, Weight };

enum class UnitPass : uint8_t { Forward, Backward, BackwardInput, BackwardWeight };
/// "F", "B", "I", "W".
const char* name_of(UnitPass pass);

/// One unit runs, as part of a chunk's op.
struct UnitUse {
  int unit = 0;
  UnitPass pass = UnitPass::Forward;
  bool reads_weights = true;
  bool operator==(const UnitUse&) const = default;
};

/// Told by the model before each unit runs: the trainer gathers, the checker of a test looks.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void before(int unit, UnitPass pass) = 0;
};

/// The units that a chunk runs in each of its ops, in order.
struct ChunkWalk {
  std::vector<UnitUse> forward, backward, backward_input, backward_weight;
  bool operator==(const ChunkWalk&) const = default;
};

/// How long gathered weights stay (stage 3). Forward: until the next unit runs, so that each micro-batch gathers for
/// its forward and for its backward; Backward: from a micro-batch's forward to its backward (FSDP's SHARD_GRAD_OP);
/// Step: from first to last use in the step.
enum class KeepGathered : uint8_t { Forward, Backward, Step };
/// "forward", "backward", "step".
const char* name_of(KeepGathered keep);

/// Sharded blocks and walks of one pipeline position; block indices are those of its ShardPlan.
struct PositionUnits {
  struct Block {
    bool gathered = false;
    GradientPhase phase = GradientPhase::Weight;
    std::vector<int> units;
    bool operator==(const Block&) const = default;
  };
  std::vector<Block> blocks;
  std::vector<ChunkWalk> walks;  ///< [chunk]
  bool operator==(const PositionUnits&) const = default;
};

struct UnitOptions {
  int prefetch = 1;  ///< units ahead of which weights are gathered; 0: just before the unit
  KeepGathered keep = KeepGathered::Forward;
  int reductions_in_flight = 1;  ///< gradient blocks that are reduced while the backward goes on; 0: none
  bool shards_gradients = true;  ///< stage 2 and 3: blocks are collected and reduced in every micro-batch; else only
                                 ///< reduced, in the last backward of their chunk, as soon as they are complete
  bool operator==(const UnitOptions&) const = default;
};

enum class UnitOpKind : uint8_t {
  Gather,   ///< starts the all-gather of a block's weights
  Release,  ///< frees them
  Collect,  ///< a zeroed bucket for a block's gradients
  Reduce,   ///< starts its reduction
  Finish,   ///< waits for it, adds to the owned gradients, frees the bucket
  Run,      ///< the unit itself; waits for its weights first
};
/// "GATHER", "RELEASE", "COLLECT", "REDUCE", "FINISH", "RUN".
const char* name_of(UnitOpKind kind);

struct UnitOp {
  UnitOpKind kind = UnitOpKind::Run;
  int block = -1;  ///< all but Run
  UnitUse use;     ///< Run
  bool operator==(const UnitOp&) const = default;
};

/// [op of the position]: what happens inside of it, in order; empty lists where the program shards nothing.
/// Memory: gathered at once are the blocks of at most 1 + prefetch units (more only where `keep` says so); buckets: one
/// collected (two with a tied embedding inside one chunk) and reductions_in_flight reduced.
std::vector<std::vector<UnitOp>> unit_ops(const Program& program, int position);
/// "GATHER 3", "F layer-unit 2".
std::string text_of(const UnitOp& op);

}  // namespace triax::parallel
