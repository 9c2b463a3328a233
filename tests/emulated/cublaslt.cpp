// cuBLASLt's stand-in: D = alpha op(A) op(B) + beta C + bias on matrices stored by columns, sums in fp32 in the order
// of k. Like the library it has no algorithm for 16-bit matrices whose columns do not start at multiples of 4 bytes,
// and fp8 only from compute capability 8.9 on, with A transposed, B not, multiples of 16 and not E5M2 on both sides.
#include <cublasLt.h>
#include <simt.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fp8.h"

struct EmulatedLt {};
struct EmulatedMatmul {
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
};
struct EmulatedLayout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t leading;
};
struct EmulatedPreference {
  uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

template <class T>
cublasStatus_t make(T** out, T value) {
  *out = std::make_unique<T>(value).release();
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* raw) {
  std::unique_ptr<T>{raw};
  return CUBLAS_STATUS_SUCCESS;
}

bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

float read(const void* data, int type, int64_t i) {
  if (is_fp8(type)) {
    return triax::from_fp8(static_cast<const uint8_t*>(data)[i],
                           type == CUDA_R_8F_E4M3 ? triax::DType::Float8E4M3 : triax::DType::Float8E5M2);
  }
  if (type == CUDA_R_16BF) return static_cast<float>(static_cast<const triax::bf16*>(data)[i]);
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const triax::fp16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void write(void* data, int type, int64_t i, float v) {
  if (type == CUDA_R_16BF) {
    static_cast<triax::bf16*>(data)[i] = triax::bf16(v);
  } else if (type == CUDA_R_16F) {
    static_cast<triax::fp16*>(data)[i] = triax::fp16(v);
  } else {
    static_cast<float*>(data)[i] = v;
  }
}

struct Operand {
  const void* data;
  EmulatedLayout layout;
};
struct Product {
  EmulatedMatmul matmul;
  Operand a, b, c, d;
  float scale = 1, keep = 0;
};

/// op(x) as fp32: column after column of op(A), or row after row of op(B), is what `lines` counts.
void unpack_lines(const Operand& x, bool by_columns, int64_t lines, int64_t length, std::vector<float>& to) {
  to.resize(static_cast<size_t>(lines * length));
  const int64_t line_step = by_columns ? x.layout.leading : 1, step = by_columns ? 1 : x.layout.leading;
  float* out = to.data();
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < length; ++i) *out++ = read(x.data, x.layout.type, line * line_step + i * step);
  }
}

void multiply(const Product& p) {
  static std::vector<float> left, right, sums;  // one product at a time
  const bool plain_a = p.matmul.op_a == CUBLAS_OP_N, plain_b = p.matmul.op_b == CUBLAS_OP_N;
  const auto m = static_cast<int64_t>(p.d.layout.rows), n = static_cast<int64_t>(p.d.layout.cols);
  const auto k = static_cast<int64_t>(plain_a ? p.a.layout.cols : p.a.layout.rows);
  unpack_lines(p.a, plain_a, k, m, left);   // [k][m]
  unpack_lines(p.b, plain_b, n, k, right);  // [n][k]
  sums.resize(static_cast<size_t>(m));
  float scale = p.scale;
  if (p.matmul.scale_a != nullptr) scale *= *p.matmul.scale_a;
  if (p.matmul.scale_b != nullptr) scale *= *p.matmul.scale_b;
  for (int64_t j = 0; j < n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t l = 0; l < k; ++l) {
      const float factor = right[static_cast<size_t>(j * k + l)];
      const float* const column = left.data() + l * m;
      for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += column[i] * factor;
    }
    for (int64_t i = 0; i < m; ++i) {
      float sum = sums[static_cast<size_t>(i)] * scale;
      if (p.keep != 0) sum += p.keep * read(p.c.data, p.c.layout.type, i + j * p.c.layout.leading);
      if (p.matmul.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += read(p.matmul.bias, p.matmul.bias_type, i);
      write(const_cast<void*>(p.d.data), p.d.layout.type, i + j * p.d.layout.leading, sum);
    }
  }
}

bool odd_columns(const EmulatedLayout& layout, uint32_t alignment) {
  return layout.type != CUDA_R_32F && !is_fp8(layout.type) && (layout.leading % 2 != 0 || alignment < 4);
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return make(handle, EmulatedLt{}); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  return make(desc, EmulatedMatmul{});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const auto take = [&](auto& to) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(desc->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(desc->op_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(desc->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(desc->bias_type);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(desc->scale_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(desc->scale_b);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return make(layout, EmulatedLayout{type, rows, cols, leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return make(preference, EmulatedPreference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroy(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return bytes == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  const auto dims = [](const EmulatedLayout& l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? std::pair(l.rows, l.cols) : std::pair(l.cols, l.rows);
  };
  const auto [m, k] = dims(*a, desc->op_a);
  const auto [k2, n] = dims(*b, desc->op_b);
  if (wanted < 1 || k != k2 || d->rows != m || d->cols != n || c->rows != m || c->cols != n ||
      is_fp8(a->type) != is_fp8(b->type) || (!is_fp8(a->type) && a->type != b->type)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (is_fp8(a->type) && (triax::simt::emulated_capability() < 89 || desc->op_a != CUBLAS_OP_T ||
                          desc->op_b != CUBLAS_OP_N || m % 16 != 0 || n % 16 != 0 || k % 16 != 0 ||
                          (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) || desc->scale_a == nullptr ||
                          desc->scale_b == nullptr || preference->alignment[0] < 16 || preference->alignment[1] < 16)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && desc->bias_type != d->type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t* const alignment = preference->alignment;
  if (odd_columns(*a, alignment[0]) || odd_columns(*b, alignment[1]) || odd_columns(*d, alignment[3])) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  results[0] = {};
  results[0].workspaceSize = 4096;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (workspace == nullptr || workspace_bytes < 4096) return CUBLAS_STATUS_INVALID_VALUE;
  Product p{*desc, {a, *a_layout}, {b, *b_layout}, {c, *c_layout}, {d, *d_layout}};
  p.scale = *static_cast<const float*>(alpha);
  p.keep = *static_cast<const float*>(beta);
  triax::simt::submit(stream, [p] { multiply(p); });
  return CUBLAS_STATUS_SUCCESS;
}
