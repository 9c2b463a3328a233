// Tensors for measured kernels. Every call takes the next place in a ring of memory, so that what training reads from
// beyond the caches (weights, saved activations) is not hot here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "kernels/device.h"

namespace triax::bench {

/// Hot: what the op before has just made, as in training (a ring of 1 MiB). Cold: weights, gradients, states and what a
/// forward pass has saved (a ring of 32 MiB; of a GPU a 128th of its memory, up to 512 MiB).
enum class Reuse { Hot, Cold };

class Operands {
 public:
  /// `roles` rings of each kind; operands of one call must have different roles. Values are small constants.
  Operands(kernels::Device& device, Arena& arena);

  /// The next [rows, cols] of the ring. Valid until other calls have gone round.
  Tensor next(int role, Reuse reuse, DType dtype, int64_t rows, int64_t cols);
  /// int32 [n]: 0, 7919, 2 * 7919, ... mod `below`: token ids that are neither sorted nor equal.
  Tensor ids(int64_t n, int64_t below);
  /// Positions and sample ids of s * b rows.
  kernels::TokenIndex index(int64_t rows, int64_t batch);
  /// In device memory: learning rate 1e-6, all else as it starts.
  const kernels::StepBlock* step() const { return step_; }
  kernels::Device& device() { return *device_; }

 private:
  struct Ring {
    Buffer buffer;
    size_t next = 0;
  };
  void fill(const Buffer& buffer);
  void write(Tensor device, const void* host);
  Tensor int_tensor(DType dtype, int64_t n);

  static constexpr int kRoles = 8;
  kernels::Device* device_;
  Arena* arena_;
  size_t cold_bytes_;
  std::array<std::array<Ring, kRoles>, 2> rings_;  ///< [reuse][role]
  std::vector<Buffer> kept_;
  kernels::StepBlock* step_ = nullptr;
};

}  // namespace triax::bench
