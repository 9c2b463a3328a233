// A device with memory of its own, which the host cannot read: what it adds to Device are the ways in and out.
#pragma once

#include "kernels/device.h"

namespace triax::kernels {

class DiscreteDevice : public Device {
 public:
  /// device = host; same dtype and shape, row strides free. Ordered after all work given so far; returns when the host
  /// memory may be reused.
  virtual void upload(Tensor host, Tensor device) = 0;
  /// host = device, when all work given so far is done.
  virtual void download(Tensor device, Tensor host) = 0;
  /// *device = block, ordered with the kernels that read it. `device` is memory of memory().
  virtual void upload_step(const StepBlock& block, StepBlock* device) = 0;
  /// "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139.8 GiB; driver for CUDA 13.0, built with 13.0".
  virtual std::string describe() const = 0;
  /// Kernels' and cuBLASLt's scratch (category Workspace), in device memory.
  virtual const Arena& workspace() const = 0;
};

}  // namespace triax::kernels
