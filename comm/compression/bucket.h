// What compression knows of a gradient bucket: tensors that are compressed, runs that travel as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace triax::comm {

/// The true elements of one tensor (no rows of padding) in the flat gradient, and where they stand in the global
/// tensor.
struct GradientTensor {
  std::string name;     ///< global
  uint64_t stream = 0;  ///< stream_of(name)
  int64_t begin = 0;    ///< flat
  int64_t count = 0;    ///< rows * cols
  int64_t rows = 1;     ///< 1 for a vector
  int64_t cols = 0;
  int64_t global_begin = 0;  ///< global index of the first element
  int64_t global_cols = 0;   ///< row length of the global tensor
  int64_t global_count = 0;  ///< elements of the global tensor
  bool compressed = true;    ///< false: its sum travels in the gradient's own dtype
};

/// Flat range [begin, end) and its tensors in ascending order; what belongs to no tensor is zero on all ranks and
/// stays.
struct CompressedBucket {
  int64_t begin = 0, end = 0;
  std::vector<GradientTensor> tensors;
};

/// Kinds of state. What this rank did not send; what an owner did not pass on of the sums of its piece; the factor that
/// the next power iteration starts from, [r, cols].
inline constexpr const char* kGradResidual = "grad_residual";
inline constexpr const char* kServerResidual = "server_residual";
inline constexpr const char* kPowerSgdQ = "powersgd_q";

/// State that must be kept to go on: flat elements [begin, end) of one tensor, whole or a part of it, or a tensor of
/// its own shape (PowerSGD's factor; begin = end = the tensor's first flat element).
struct StateTensor {
  const char* kind = "";    ///< kGradResidual, kServerResidual, kPowerSgdQ
  std::string tensor;       ///< global name
  bool replicated = false;  ///< the same on all ranks of the group, else of this rank alone
  int64_t begin = 0, end = 0;
  Tensor values;
};

/// Since the start of the run, of this rank. The kernels' seconds are the extra time of compression; waiting is the
/// ledger's business.
struct CompressionTally {
  double dense_bytes = 0;  ///< ring-equivalent bytes of the same sums uncompressed
  double sent_bytes = 0;   ///< as the ledger counts
  double kernel_s = 0;
};

}  // namespace triax::comm
