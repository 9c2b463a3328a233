// Gradient compression on the GPU, fp32: the packed bytes, values and residuals of the CPU device, bit for bit
// (kernels/compression.h). Qsgd's draws are the CPU's too.
#pragma once

#include "base/memory.h"
#include "kernels/compression.h"
#include "kernels/cuda/check.h"

namespace triax::kernels {

class CudaDevice;

class CudaCompression final : public Compression {
 public:
  CudaCompression(CudaDevice& device, Arena& workspace) : device_(&device), workspace_(&workspace) {}
  void encode(const Encode& args) override;
  void decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) override;
  void top_k(std::span<const TopK> tensors) override;
  void scatter(Tensor index, Tensor value, Tensor y, Decode mode) override;
  /// Rounds otherwise than the CPU: sums over rows are in fp64 in another order.
  void orthonormalize(Tensor x, uint64_t seed, uint64_t stream) override;
  void momentum(Tensor m, double beta, double factor, Tensor g) override;
  void frozen_adam(const FrozenAdam& args, const StepBlock* step) override;

 private:
  void select(const TopK& t, void* scratch);
  /// The compute stream.
  cudaStream_t queue() const;

  CudaDevice* device_;
  Arena* workspace_;
};

}  // namespace triax::kernels
