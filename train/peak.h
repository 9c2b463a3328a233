// The peak that MFU is measured against when none is given: the best rate of a large matrix product on this device.
#pragma once

#include "base/memory.h"
#include "comm/communicator.h"
#include "kernels/device.h"

namespace triax::train {

/// TFLOP/s of one rank: the best of several C = A B with 768 x 768 x 768 (a GPU: 8192 x 8192 x 8192) in `dtype`, all
/// ranks at the same time (ranks that share cores share the peak), mean over ranks. At most 0.2 s; on a processor until
/// six products in turn were no faster. The matrices are no part of the run's memory and given back at once. Collective
/// over world.
double measure_peak_tflops(kernels::Device& device, DType dtype, comm::Communicator& world);

}  // namespace triax::train
