// A device with memory of its own, which the host cannot read, and that works while the host goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/device.h"

namespace triax::kernels {

/// Which kernels attention on 16-bit types takes: the best of this GPU, or those that every GPU has.
enum class AttentionKernels { Best, Common };

/// How many calls took a way that not every GPU or run has.
struct SpecialCalls {
  int64_t hopper_attention = 0;  ///< forward or backward, by wgmma
  int64_t fp8_products = 0;
  int64_t gemm_epilogues = 0;  ///< GELU, its gradient or the gradient of a bias in cuBLASLt's product
};

/// What a machine's description says of a GPU.
struct GpuFacts {
  std::string name;  ///< "NVIDIA H200"
  int64_t memory_bytes = 0, free_bytes = 0;
  int multiprocessors = 0;
  int visible = 0;  ///< GPUs that this process sees
};

class DiscreteDevice : public Device {
 public:
  bool on_host() const override { return false; }
  /// "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139.8 GiB; driver for CUDA 13.0, built with 13.0".
  virtual std::string describe() const = 0;
  virtual GpuFacts facts() const = 0;
  /// What tells this device from every other of its host: 16 bytes in hexadecimal.
  virtual std::string uuid() const = 0;
  /// Kernels' and cuBLASLt's scratch (category Workspace), in device memory.
  virtual const Arena& workspace() const = 0;
  virtual void set_attention_kernels(AttentionKernels kernels) = 0;
  virtual SpecialCalls special_calls() const = 0;
  /// Products, by shape, whose algorithm was timed by this device (GemmTuning::Measure).
  virtual int64_t timed_products() const = 0;
  /// Asked every few milliseconds while the host waits for the device: it throws when what the device waits for will
  /// not come. Empty: nobody is asked.
  virtual void set_watch(std::function<void()> watch) = 0;
};

}  // namespace triax::kernels
