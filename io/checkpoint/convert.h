// Element types of stored values.
#pragma once

#include "base/tensor.h"

namespace triax::io {

/// to = from (vectors of fp64, fp32, bf16, fp16; equal lengths), rounded to nearest even where `to` is narrower. The
/// same type: the same bits.
void convert(Tensor from, Tensor to);

}  // namespace triax::io
