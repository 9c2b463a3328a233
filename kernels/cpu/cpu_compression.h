// Gradient compression on the CPU: checks, and work split over threads by segment or tensor.
#pragma once

#include "kernels/compression.h"
#include "kernels/cpu/threads.h"

namespace triax::kernels {

class CpuCompression final : public Compression {
 public:
  explicit CpuCompression(const Threads& threads) : threads_(&threads) {}
  void encode(const Encode& args) override;
  void decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) override;
  void top_k(std::span<const TopK> tensors) override;
  void scatter(Tensor index, Tensor value, Tensor y, Decode mode) override;
  void orthonormalize(Tensor x, uint64_t seed, uint64_t stream) override;
  void momentum(Tensor m, double beta, double factor, Tensor g) override;
  void frozen_adam(const FrozenAdam& args, const StepBlock* step) override;

 private:
  const Threads* threads_;
};

}  // namespace triax::kernels
