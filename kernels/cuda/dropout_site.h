// A dropout site as the kernels see it: the step is read from the step block on the device, the bits are those of
// kernels/dropout_key.h.
#pragma once

#include "kernels/cuda/global_memory.h"
#include "kernels/cuda/types.h"
#include "kernels/dropout_key.h"

namespace triax::kernels {

/// What the bits of a row depend on.
struct TokenPlace {
  int64_t sample;
  int32_t position;
};

struct DropoutSite {
  bool active = false;
  uint64_t seed = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;
  float keep_scale = 1;
  const StepBlock* step = nullptr;
  const int64_t* sample = nullptr;    // [b]
  const int32_t* position = nullptr;  // [T]
  int64_t batch = 1;

  __device__ DropoutKey key() const { return dropout_key(seed, global_read(&step->step), site); }
  /// Where row r stands.
  __device__ TokenPlace place(int64_t r) const {
    return {global_read(sample + static_cast<uint32_t>(r) % static_cast<uint32_t>(batch)), global_read(position + r)};
  }
};

/// Checks the index when the site is active; batch is the number of samples of the index.
inline DropoutSite dropout_site(const char* operation, const Dropout& dropout, const TokenIndex& index, int64_t rows) {
  DropoutSite site;
  if (dropout.p == 0) return site;
  ensure(dropout.p > 0 && dropout.p < 1, "dropout probability outside [0, 1)");
  ensure(dropout.step != nullptr && static_cast<bool>(index.sample), "active dropout needs a step block and an index");
  need_vector(operation, "position", index.position, DType::Int32, rows);
  need_vector(operation, "sample", index.sample, DType::Int64, index.sample.numel());
  site.active = true;
  site.seed = dropout.seed;
  site.site = dropout.site;
  site.threshold = dropout_threshold(dropout.p);
  site.keep_scale = static_cast<float>(1 / (1 - dropout.p));
  site.step = dropout.step;
  site.sample = index.sample.as<int64_t>();
  site.position = index.position.as<int32_t>();
  site.batch = index.sample.numel();
  return site;
}

}  // namespace triax::kernels
