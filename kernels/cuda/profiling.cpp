// What Nsight Systems shows and when it records. NVTX is headers alone: without a profiler its calls return at once.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "kernels/cuda/cuda_device.h"

namespace triax::kernels {

void CudaDevice::begin_range(const char* name) { static_cast<void>(nvtxRangePushA(name)); }
void CudaDevice::end_range() { static_cast<void>(nvtxRangePop()); }

bool CudaDevice::start_capture() {
  TRIAX_CUDA(cudaProfilerStart());
  return true;
}

void CudaDevice::stop_capture() { TRIAX_CUDA(cudaProfilerStop()); }

}  // namespace triax::kernels
