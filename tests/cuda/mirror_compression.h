// Compression of a device with memory of its own on host tensors (mirror.h).
#pragma once

#include "kernels/compression.h"
#include "tests/cuda/mirror.h"

namespace triax::kernels::testing {

class MirroredCompression final : public Compression {
 public:
  explicit MirroredCompression(DiscreteDevice& device) : device_(device), arena_(device.memory()) {}
  void encode(const Encode& args) override {
    run([&](auto& on) {
      Encode there = args;
      there.x = on(args.x), there.residual = on(args.residual), there.packed = on(args.packed);
      device_.compression()->encode(there);
    });
  }
  void decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) override {
    run([&](auto& on) { device_.compression()->decode(codec, segments, on(packed), on(y), mode); });
  }
  void top_k(std::span<const TopK> tensors) override {
    run([&](auto& on) {
      std::vector<TopK> there;
      for (const TopK& t : tensors) there.push_back({on(t.x), on(t.residual), on(t.value), on(t.index), t.base});
      device_.compression()->top_k(there);
    });
  }
  void scatter(Tensor index, Tensor value, Tensor y, Decode mode) override {
    run([&](auto& on) { device_.compression()->scatter(on(index), on(value), on(y), mode); });
  }
  void orthonormalize(Tensor x, uint64_t seed, uint64_t stream) override {
    run([&](auto& on) { device_.compression()->orthonormalize(on(x), seed, stream); });
  }
  void momentum(Tensor m, double beta, double factor, Tensor g) override {
    run([&](auto& on) { device_.compression()->momentum(on(m), beta, factor, on(g)); });
  }
  void frozen_adam(const FrozenAdam& args, const StepBlock* step) override {
    run([&](auto& on) {
      FrozenAdam there = args;
      there.master = on(args.master), there.exp_avg = on(args.exp_avg), there.exp_avg_sq = on(args.exp_avg_sq);
      device_.compression()->frozen_adam(there, on(step));
    });
  }

 private:
  template <class F>
  void run(F&& operation) {
    MirroredCall call(device_, arena_);
    operation(call);
    call.finish();
  }

  DiscreteDevice& device_;
  Arena arena_;
};

}  // namespace triax::kernels::testing
