// A device that computes nothing: the trainer's own code runs on it to learn what a step allocates and sends, for
// models and layouts that this machine could not hold (the memory executor, rehearsals).
#pragma once

#include "kernels/compression.h"
#include "kernels/device.h"
#include "kernels/launch_recorder.h"

namespace triax::kernels {

/// Memory that costs nothing until touched: address space reserved from the kernel, read as zeros.
class ReserveProvider final : public MemoryProvider {
 public:
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;
};

class NullCompression final : public Compression {
 public:
  void encode(const Encode&) override {}
  void decode(Codec, std::span<const CodeSegment>, Tensor, Tensor, Decode) override {}
  void top_k(std::span<const TopK>) override {}
  void scatter(Tensor, Tensor, Tensor, Decode) override {}
  void orthonormalize(Tensor, uint64_t, uint64_t) override {}
  void momentum(Tensor, double, double, Tensor) override {}
  void frozen_adam(const FrozenAdam&, const StepBlock*) override {}
};

/// Nothing is put off.
class NullRecorder final : public LaunchRecorder {
 public:
  explicit NullRecorder(Device& device) : device_(&device) {}
  Device& device() override { return *device_; }
  void begin() override {}
  void end() override {}
  void discard() noexcept override {}
  RecorderCounts counts() const override { return {}; }

 private:
  Device* device_;
};

/// Every operation returns at once and leaves its outputs as they are, but sum_of_squares, which adds 1 so that a norm
/// is not 0. Scalars that the host reads are zeros of the memory.
class NullDevice final : public Device {
 public:
  /// Of which kind of device the run is rehearsed.
  enum class Stands { ForHost, ForDiscrete };
  explicit NullDevice(Stands stands = Stands::ForHost) : stands_(stands) {}
  std::string name() const override { return "null"; }
  bool on_host() const override { return stands_ == Stands::ForHost; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& staging_memory() override { return memory_; }
  void synchronize() override {}
  void gemm(const Gemm&) override {}
  std::string fp8_refusal() const override { return {}; }
  LaunchRecorder* recorder() override { return on_host() ? nullptr : &recorder_; }
  void bias_backward(Tensor, Tensor) override {}
  void layer_norm_forward(Tensor, Tensor, Tensor, double, Tensor, Tensor, Tensor) override {}
  void layer_norm_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Accumulate, Tensor, Tensor) override {}
  void rms_norm_forward(Tensor, Tensor, double, Tensor, Tensor) override {}
  void rms_norm_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Accumulate, Tensor) override {}
  void rotary(Tensor, Tensor, Tensor, Tensor, int64_t, RotaryDirection) override {}
  void gelu_forward(Tensor, Tensor) override {}
  void gelu_backward(Tensor, Tensor, Tensor) override {}
  void swiglu_forward(Tensor, Tensor) override {}
  void swiglu_backward(Tensor, Tensor, Tensor) override {}
  void bias_dropout_add_forward(Tensor, Tensor, Tensor, const Dropout&, const TokenIndex&, Tensor) override {}
  void bias_dropout_backward(Tensor, const Dropout&, const TokenIndex&, Tensor, Tensor) override {}
  void attention_forward(const Attention&, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_backward(const Attention&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void embedding_forward(Tensor, Tensor, int64_t, Accumulate, Tensor) override {}
  void embedding_backward(Tensor, Tensor, int64_t, Tensor) override {}
  void cross_entropy_max(Tensor, int64_t, Tensor) override {}
  void cross_entropy_sum(Tensor, int64_t, int64_t, Tensor, Tensor, Tensor, Tensor) override {}
  void cross_entropy_loss(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void cross_entropy_backward(Tensor, int64_t, int64_t, Tensor, Tensor, Tensor, Tensor, double,
                              const StepBlock*) override {}
  void fill(Tensor, double) override {}
  void copy(Tensor, Tensor) override {}
  void add(Tensor, Tensor) override {}
  void scale(Tensor, double) override {}
  void sum_of_squares(Tensor, Tensor out) override { *out.as<double>() += 1; }
  void count_nonfinite(Tensor, Tensor) override {}
  void adamw(const AdamW&, const StepBlock*) override {}
  void sgd(const Sgd&, const StepBlock*) override {}
  Compression* compression() override { return &compression_; }

 private:
  Stands stands_;
  NullCompression compression_;
  NullRecorder recorder_{*this};
  ReserveProvider memory_;
};

}  // namespace triax::kernels
