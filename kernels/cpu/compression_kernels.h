// The serial kernels of gradient compression on raw memory, for fp32 and fp64, built for several instruction sets.
// Sums over a block are taken in 16 lanes whatever the instruction set, so the bits agree everywhere.
#pragma once

#include <cstdint>

#include "kernels/compression.h"

namespace triax::kernels {

struct EncodeSegment {
  Codec codec;
  CodeSegment segment;
  const void* x;   ///< first element of the segment
  void* residual;  ///< likewise; may be null
  uint8_t* packed;
  int levels;
  DrawKey draw;
};

struct DecodeSegment {
  Codec codec;
  CodeSegment segment;
  const uint8_t* packed;
  void* y;
  Decode mode;
};

struct FrozenAdamArgs {
  double beta1_correction;  ///< 1 / (1 - beta1^t)
  double learning_rate, eps, weight_decay, inv_sqrt_correction2;
};

/// `wide`: elements are double, else float.
void encode_segment(bool wide, const EncodeSegment& args);
void decode_segment(bool wide, const DecodeSegment& args);
/// a = x + residual into a (which may be residual).
void add_elements(bool wide, const void* x, const void* residual, void* a, int64_t n);
/// Writes the k largest of a, and clears them in it where `clear` is set.
void select_largest(bool wide, const void* a, void* clear, int64_t n, int64_t k, int64_t base, void* value,
                    int32_t* index);
double dot(bool wide, const void* x, const void* y, int64_t n);
/// y += factor * x.
void add_scaled(bool wide, double factor, const void* x, void* y, int64_t n);
/// y = beta * x + factor * y.
void blend(bool wide, double beta, const void* x, double factor, void* y, int64_t n);
void frozen_adam_run(bool wide, const FrozenAdamArgs& args, void* w, const void* m, const void* v, int64_t n);

}  // namespace triax::kernels
