#include "kernels/cuda/tensor_map.h"

#include <string>

namespace triax::kernels {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver is not linked, since the module must load, and say what it lacks, where there is none.
Encode driver_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  TRIAX_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
#else
  TRIAX_CUDA(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw RunTimeError(
        "--device cuda: the driver has no cuTensorMapEncodeTiled; update it to one for CUDA 12 or newer");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap head_map(DType dtype, const void* data, int64_t row_stride, int heads, const AttentionShape& shape,
                     HeadBox box) {
  static const Encode encode = driver_encode();
  CUtensorMap map{};
  const auto u64 = [](int64_t v) { return static_cast<cuuint64_t>(v); };
  const int64_t row_bytes = (row_stride + 7) / 8 * 16;  // a single row may have any stride
  const cuuint64_t extent[4] = {u64(shape.dim), u64(heads), u64(shape.batch), u64(shape.seq)};
  const cuuint64_t stride[3] = {u64(shape.dim * 2), u64(row_bytes), u64(shape.batch * row_bytes)};
  const cuuint32_t size[4] = {static_cast<cuuint32_t>(box.cols), 1, 1, static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t every[4] = {1, 1, 1, 1};
  const CUtensorMapDataType type =
      dtype == DType::BFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUtensorMapSwizzle swizzle = box.cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  const CUresult status =
      encode(&map, type, 4, const_cast<void*>(data), extent, stride, size, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw ApiError("CUDA driver", "cuTensorMapEncodeTiled", status,
                   "head dimension " + std::to_string(shape.dim) + ", row stride " + std::to_string(row_stride),
                   __FILE__, __LINE__);
  }
  return map;
}

}  // namespace triax::kernels
