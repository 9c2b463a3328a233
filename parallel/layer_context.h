// What every parallel layer needs: device, memory, the tp group, and how tokens lie.
#pragma once

#include <cstdint>

#include "base/memory.h"
#include "comm/communicator.h"
#include "comm/ledger.h"
#include "kernels/device.h"
#include "parallel/fp8.h"
#include "parallel/unit_ops.h"

namespace triax::parallel {

enum class SequenceParallel { No, Yes };
/// Train keeps activations and applies dropout; Evaluate does neither.
enum class Mode { Train, Evaluate };
/// When weight gradients are computed: directly after the input gradient of each layer, or in a later op.
enum class WeightGradient { Now, Later };

struct LayerContext {
  kernels::Device* device = nullptr;
  Arena* arena = nullptr;                ///< activations and workspace
  comm::Communicator* tensor = nullptr;  ///< tp group, t ranks
  DType dtype = DType::Float32;          ///< parameters and activations
  DType state_dtype = DType::Float32;    ///< gradients and statistics
  SequenceParallel sequence_parallel = SequenceParallel::No;
  int64_t seq_length = 0;   ///< s
  int64_t micro_batch = 0;  ///< b
  uint64_t seed = 0;
  const kernels::StepBlock* step = nullptr;  ///< device memory
  UnitObserver* units = nullptr;             ///< told before each unit runs; may be null
  Fp8Scales* fp8 = nullptr;                  ///< of the linear layers' products; null: they are not fp8
  comm::Ledger* ledger = nullptr;            ///< told which kind of layer communicates; may be null

  void label(const char* kind) const {
    if (ledger != nullptr) ledger->set_label(kind);
  }
  int t() const { return tensor->size(); }
  bool sp() const { return sequence_parallel == SequenceParallel::Yes && t() > 1; }
  int64_t tokens() const { return seq_length * micro_batch; }                ///< T
  int64_t local_tokens() const { return sp() ? tokens() / t() : tokens(); }  ///< rows outside of tp regions
  int64_t local_begin() const { return sp() ? local_tokens() * tensor->rank() : 0; }
  Buffer activation(int64_t rows, int64_t cols) const {
    return arena->allocate(dtype, rows * cols, MemoryCategory::Activations);
  }
  Buffer statistic(int64_t elements) const {
    return arena->allocate(state_dtype, elements, MemoryCategory::Activations);
  }
};

/// Inputs of one micro-batch; row = position * b + sample (Megatron's [s, b]).
struct MicroBatch {
  Tensor token;               ///< int32 [T]; needed on the first virtual stage
  Tensor target;              ///< int32 [T]; needed on the last
  Tensor loss_mask;           ///< fp32 [T] or empty (all ones); last virtual stage
  kernels::TokenIndex index;  ///< positions and sample ids; every stage
};

}  // namespace triax::parallel
