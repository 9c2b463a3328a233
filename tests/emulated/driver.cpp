// The driver's stand-in: tensor maps, with the checks that the driver makes and one that the hardware does not: the
// whole tensor lies in one allocation of device memory.
#include <cuda.h>

#include <cstring>

#include "gpu.h"

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                                const cuuint64_t* extent, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* element_stride, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (rank != 4 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  *map = {};
  map->address = static_cast<const unsigned char*>(address);
  map->row_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : 64;
  uint64_t bytes = 2 * extent[0];
  for (int i = 0; i < 4; ++i) {
    if (extent[i] == 0 || extent[i] > (uint64_t{1} << 32) || box[i] == 0 || box[i] > 256 || element_stride[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    map->extent[i] = static_cast<uint32_t>(extent[i]);
    map->box[i] = box[i];
    if (i == 0) continue;
    if (stride[i - 1] % 16 != 0 || stride[i - 1] >= (uint64_t{1} << 40)) return CUDA_ERROR_INVALID_VALUE;
    map->stride[i - 1] = stride[i - 1];
    bytes += (extent[i] - 1) * stride[i - 1];
  }
  // A row of the box must be a multiple of 16 bytes and fit the swizzle.
  if (box[0] * 2 % 16 != 0 || box[0] * 2 > map->row_bytes) return CUDA_ERROR_INVALID_VALUE;
  return triax::emulated::on_device(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
