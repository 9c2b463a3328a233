// A tensor as bytes, which is how communicators move it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor.h"

namespace triax::comm {

/// Bytes of an element.
inline int64_t width(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
inline std::byte* bytes_of(const Tensor& t) { return static_cast<std::byte*>(t.data()); }
/// Where an element of a contiguous tensor begins.
inline std::byte* bytes_at(const Tensor& t, int64_t element) { return bytes_of(t) + element * width(t.dtype()); }

}  // namespace triax::comm
