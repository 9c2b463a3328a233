// The device of these tests: the GPU, or the emulated one, as TRIAX_TEST_DEVICE says (cuda, cuda-emulated).
#pragma once

#include "kernels/cuda_loader.h"
#include "tests/cuda/mirror.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {

inline const std::vector<DType> kCudaTypes{DType::Float32, DType::BFloat16, DType::Float16};

/// True when every thread is a fiber, and shapes must be small.
bool is_emulated();
/// TRIAX_SHAPES_SEED (0 when it is not set): tests of random shapes take others.
uint64_t shapes_seed();
/// The device, and the same for host tensors.
DiscreteDevice& cuda_device();
MirroredDevice& mirrored();

/// What the stand-ins' arithmetic and the GPU's approximate instructions may differ by, relative: rounding of one
/// stored value, and of fp32 sums of a few hundred terms.
inline double rounding(DType dtype, double fp32_units) { return fp32_units * 0x1p-24 + unit(dtype); }

}  // namespace triax::kernels::testing
