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

namespace triax::parallel {

/// Over which ranks of the model-parallel group a gradient is a partial sum after the backward pass.
enum class GradientSum {
  None,        ///< complete on this rank (sharded over tp, or replicated with equal gradients)
  Tensor,      ///< each tp rank saw a part of the tokens (norms, row-parallel biases under sequence parallelism)
  KvReplicas,  ///< the tp ranks that share a KV head each saw their own query heads
};

enum class InitKind { Normal, Zeros, Ones };

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
  int unit = 0;
  int64_t offset = 0;  ///< first element in the flat buffers
  int64_t numel = 0;   ///< local elements, padding rows included
  Tensor weight;       ///< compute dtype
  Tensor grad;         ///< gradient dtype, accumulated over micro-batches

  /// True elements of this rank: rows of padding excluded.
  int64_t true_numel() const;
  /// Offset in the global tensor (row-major) of local element i (i < true_numel(), local row-major order).
  int64_t global_index(int64_t i) const;
};

/// Parameters that are gathered, reduced and sharded together: the embedding, one layer, the head.
struct ParameterUnit {
  std::string name;
  int chunk = 0;
  int64_t begin = 0, end = 0;  ///< flat range, whole parameters with their alignment
};

/// Elements between parameter groups are aligned to this many, and zero.
inline constexpr int64_t kParameterAlignment = 32;

/// Built in two steps: layers declare, then allocate() makes flat storage and fills in the views.
class ParameterStore {
 public:
  /// Starts a unit; the following add() calls belong to it.
  void begin_unit(std::string name, int chunk);
  /// Declares tensors that lie one directly after the other (so that q, k, v can be used as one matrix). Returns the
  /// index of the first; indices are stable and consecutive.
  size_t add(std::vector<Parameter> group);
  /// Weights and gradients from `arena`, zero-filled. With an arena over ProcessGrid::memory() they are reduced in place.
  void allocate(DType weight_dtype, DType grad_dtype, Arena& arena, kernels::Device& device);

  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  Parameter& at(size_t index) { return parameters_[index]; }
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Flat length, alignment included.
  int64_t numel() const { return numel_; }
  Tensor flat_weight() const { return flat_weight_; }  ///< [numel]
  Tensor flat_grad() const { return flat_grad_; }      ///< [numel]
  /// Weights of `count` tensors from `index` on as one matrix [sum of rows, cols] (or one vector).
  Tensor fused_weight(size_t index, size_t count) const;
  Tensor fused_grad(size_t index, size_t count) const;

 private:
  Tensor fused(Tensor flat, size_t index, size_t count) const;
  std::vector<Parameter> parameters_;
  std::vector<ParameterUnit> units_;
  int64_t numel_ = 0;
  Buffer weight_buffer_, grad_buffer_;
  Tensor flat_weight_, flat_grad_;
};

/// Fills `values` (host, state dtype: fp32 or fp64, [numel of the store]) with the initial weights: element i of tensor
/// `name` is init_std * normal_at(seed, stream_of(name), global index), whatever the layout. Padding is 0.
void initialize_parameters(const ParameterStore& store, uint64_t seed, Tensor values);

/// A contiguous flat range reduced in one all-reduce over dp.
struct GradientBucket {
  int64_t begin = 0, end = 0;
  int chunk = 0;
};
/// Cuts the flat gradient into buckets of at least `bucket_size` elements at unit borders, last unit first (the order
/// in which the backward pass finishes them); a bucket never spans chunks.
std::vector<GradientBucket> make_buckets(const ParameterStore& store, int64_t bucket_size);

}  // namespace triax::parallel
