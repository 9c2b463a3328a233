// Parameters of this rank: each carries a ShardSpec that says how it is cut and summed; storage is flat, by unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/tensor.h"
#include "kernels/device.h"
#include "parallel/unit_ops.h"

namespace triax::parallel {

/// Over which ranks of the model-parallel group a gradient is a partial sum after the backward pass.
enum class GradientSum {
  None,        ///< complete on this rank (sharded over tp, or replicated with equal gradients)
  Tensor,      ///< each tp rank saw a part of the tokens (norms, row-parallel biases under sequence parallelism)
  KvReplicas,  ///< the tp ranks that share a KV head each saw their own query heads
};

enum class InitKind { Normal, Zeros, Ones };

/// Elements [begin, end) of the flat arrays.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool contains(const FlatRange& inner) const { return begin <= inner.begin && inner.end <= end; }
  bool operator==(const FlatRange&) const = default;
};
/// What both hold; size() <= 0 when nothing.
inline FlatRange intersection(const FlatRange& a, const FlatRange& b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

/// How one global tensor lies on this rank. Read by initialisation, gradient sums, norm, checkpoint and replica check.
struct ShardSpec {
  std::vector<int64_t> global_shape;  ///< true shape; a padded vocabulary never shows
  int cut_dim = -1;                   ///< dimension cut over tp; -1: whole on every tp rank
  int64_t begin = 0;                  ///< first global index along cut_dim held here
  int64_t count = 0;                  ///< number of true indices held here (padding excluded); whole dim 0 when not cut
  int replicas = 1;                   ///< tp ranks that hold these same elements
  int replica = 0;                    ///< index among them; 0 counts the elements in the norm and writes them to files
  GradientSum gradient_sum = GradientSum::None;
};

struct Parameter {
  std::string name;  ///< global, e.g. "model.layers.3.self_attn.q_proj.weight"
  ShardSpec spec;
  std::vector<int64_t> local_shape;  ///< [rows, cols] or [n], padding included
  InitKind init = InitKind::Normal;
  double init_std = 0;
  bool weight_decay = true;  ///< false for biases and norms (Megatron)
  bool tied_copy = false;    ///< second copy of the word embedding, on the last stage: not counted, not written
  bool tied = false;         ///< gradient is also summed over the embedding group
  GradientPhase phase = GradientPhase::Weight;
  int unit = 0;
  int64_t offset = 0;  ///< first element in the flat buffers
  int64_t numel = 0;   ///< local elements, padding rows included
  Tensor weight;       ///< compute dtype; empty while it is not gathered (ZeRO 3)
  Tensor grad;         ///< gradient dtype, accumulated over micro-batches; empty outside of a backward pass (ZeRO 2, 3)

  FlatRange range() const { return {offset, offset + numel}; }

  /// True elements of this rank: rows of padding excluded.
  int64_t true_numel() const;
  /// Offset in the global tensor (row-major) of local element i (i < true_numel(), local row-major order).
  int64_t global_index(int64_t i) const;
};

/// What a unit is, for rules that treat the ends of the model otherwise (compression leaves them out).
enum class UnitKind { Embedding, Layer, Head };

/// What the model runs as one: the embedding, one layer, the head.
struct ParameterUnit {
  std::string name;
  int chunk = 0;
  UnitKind kind = UnitKind::Layer;
};

/// Parameters that lie one directly after the other, used as one matrix: [first, first + count).
struct ParameterGroup {
  size_t first = 0, count = 0;
  int unit = 0;
  std::vector<int> users;   ///< other units that use it too
  bool by_product = false;  ///< the first gradient of a step is one product over the whole group
  bool forgotten = false;   ///< its gradient is still to be written: the memory holds anything
};

/// Elements between parameter groups are aligned to this many, and zero.
inline constexpr int64_t kParameterAlignment = 32;

/// What of the flat arrays has memory of its own, ascending and disjoint. The rest of the weights is gathered when
/// used, the rest of the gradients lives in buckets.
struct HeldRanges {
  std::vector<FlatRange> weights, gradients;
};

/// Built in steps: layers declare, place() may order the flat arrays anew, then allocate() makes storage and views.
class ParameterStore {
 public:
  /// Starts a unit; the following add() calls belong to it.
  void begin_unit(std::string name, int chunk, UnitKind kind = UnitKind::Layer);
  /// Declares tensors that lie one directly after the other (so that q, k, v can be used as one matrix). Returns the
  /// index of the first; indices are stable and consecutive.
  size_t add(std::vector<Parameter> group);
  /// The unit that was begun last also uses the parameter `index` of an earlier one (a head that is the embedding).
  void share(size_t index);
  /// Orders the flat arrays: blocks of groups (indices into groups(), each exactly once), each block padded to a
  /// multiple of `alignment` elements. Returns the blocks' ranges.
  std::vector<FlatRange> place(const std::vector<std::vector<size_t>>& blocks, int64_t alignment);
  /// Weights and gradients from `arena`, zero-filled, whole or only what is held. With an arena over
  /// ProcessGrid::memory() they are reduced in place.
  void allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device);
  void allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device, HeldRanges held);

  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  Parameter& at(size_t index) { return parameters_[index]; }
  const Parameter& at(size_t index) const { return parameters_[index]; }
  const std::vector<ParameterUnit>& units() const { return units_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// Elements of a group, its alignment included.
  int64_t padded_numel(const ParameterGroup& group) const;
  /// Flat length, alignment and padding included.
  int64_t numel() const { return numel_; }
  DType weight_dtype() const { return weights_.dtype; }
  DType grad_dtype() const { return grads_.dtype; }
  const HeldRanges& held() const { return held_; }
  /// Part of the storage; must lie within one held range.
  Tensor weight(FlatRange range) const;
  Tensor grad(FlatRange range) const;
  /// All that is held, one range after the other.
  Tensor held_weights() const { return weights_.all; }
  Tensor held_grads() const { return grads_.all; }
  Tensor flat_weight() const;  ///< [numel], when all is held
  Tensor flat_grad() const;    ///< [numel], when all is held
  /// Weights (gradients) of the parameters in `range` live in `memory` [range.size()] from now on; empty: nowhere.
  void bind_weights(FlatRange range, Tensor memory);
  void bind_grads(FlatRange range, Tensor memory);

  /// Declares, before allocate(), that the group which begins at parameter `index` takes its first gradient of a step
  /// from a product that asks accumulation(index): its memory need not be zeroed.
  void first_grad_by_product(size_t index);
  /// The gradients of `range`, which live in `memory` [range.size()], are forgotten: zero, or to be overwritten.
  void forget_grads(FlatRange range, Tensor memory, kernels::Device& device);
  void forget_held_grads(kernels::Device& device);
  /// How the next gradient of the group that begins at `index` is written: No for the first after it was forgotten.
  kernels::Accumulate accumulation(size_t index);
  /// All gradients of `range` were written since they were forgotten.
  bool grads_written(FlatRange range) const;
  /// Weights of `count` tensors from `index` on as one matrix [sum of rows, cols] (or one vector).
  Tensor fused_weight(size_t index, size_t count) const;
  Tensor fused_grad(size_t index, size_t count) const;

 private:
  struct Storage {
    DType dtype = DType::Float32;
    Buffer buffer;
    Tensor all;
    std::vector<int64_t> begin;  ///< of each held range in `all`
  };
  using View = Tensor Parameter::*;
  void make_storage(Storage& storage, DType dtype, const std::vector<FlatRange>& held, Arena& arena,
                    kernels::Device& device, MemoryCategory category, View view);
  Tensor part(const Storage& storage, const std::vector<FlatRange>& held, FlatRange range) const;
  void bind(FlatRange range, Tensor memory, View view);
  Tensor fused(View view, size_t index, size_t count) const;
  FlatRange range_of(const ParameterGroup& group) const;
  ParameterGroup& group_at(size_t index);
  std::vector<Parameter> parameters_;
  std::vector<ParameterUnit> units_;
  std::vector<ParameterGroup> groups_;
  std::vector<size_t> products_;  ///< groups whose first gradient is a product, by their place in the flat arrays
  int64_t numel_ = 0;
  HeldRanges held_;
  Storage weights_, grads_;
};

/// Fills `values` (host, state dtype: fp32 or fp64, [range.size()]) with the initial weights of that flat range:
/// element i of tensor `name` is init_std * normal_at(seed, stream_of(name), global index), whatever the layout.
/// Padding is 0.
void initialize_parameters(const ParameterStore& store, uint64_t seed, FlatRange range, Tensor values);

}  // namespace triax::parallel
