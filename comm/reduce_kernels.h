// The arithmetic of reductions: several buffers into one, and the result written to several places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace triax::comm {

/// destinations[d][i] = op over s of sources[s][i], i < count, sources taken in order: ((s0 + s1) + s2) + ...
/// fp64, fp32, int32, int64 in their own type; bf16 and fp16 in fp32, rounded once. Max and Min keep a NaN.
/// A destination may be a source (the same address). Other dtypes: std::logic_error.
void reduce_buffers(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                    std::span<std::byte* const> destinations, int64_t count);

}  // namespace triax::comm
