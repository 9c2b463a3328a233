// cuBLASLt's stand-in: D = alpha op(A) op(B) + beta C on matrices stored by columns, sums in fp32 in the order of k,
// with the epilogues bias, GELU with its input beside it, GELU's gradient and the gradient of a bias from B. Like the
// library it has no algorithm for 16-bit matrices whose columns do not start at multiples of 4 bytes; fp8 only from
// compute capability 8.9 on, with A transposed, B not, multiples of 16, not E5M2 on both sides, and no epilogue but a
// bias; vectors only of D's type; the matrix beside GELU only of A's type, with columns at multiples of 8 elements.
// TRIAX_EMULATED_EPILOGUES=0: it has an algorithm for no epilogue but a bias, as libraries differ in what they have.
// TRIAX_EMULATED_ALGORITHMS="30,10,20": it has so many algorithms, which take so many milliseconds on the clock of
// events; the second sums k in two halves, the third in three parts, so that their bits differ. Who lets it round
// the sums of parts to a 16-bit D (reduction schemes "in place" and "output type") gets that.
// TRIAX_EMULATED_CUBLASLT: its version.
#include <cublasLt.h>
#include <simt.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fp8.h"
#include "gpu.h"

struct EmulatedLt {};
struct EmulatedMatmul {
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;
  const void* aux = nullptr;
  int64_t aux_leading = 0;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
};
struct EmulatedLayout {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t leading;
};
struct EmulatedPreference {
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
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
  int64_t parts = 1;     // of k
  bool rounded = false;  // sums of the parts, to D's type
};

constexpr uint64_t kAlgorithm = 0x7472696178;  // the first word of an algorithm; the second is its number

/// Milliseconds of each algorithm.
std::vector<double> algorithms() {
  const char* at = std::getenv("TRIAX_EMULATED_ALGORITHMS");
  if (at == nullptr) return {0};
  std::vector<double> times;
  for (const char* const end = at + std::strlen(at); at < end; ++at) {
    times.push_back(0);
    at = std::from_chars(at, end, times.back()).ptr;
  }
  return times;
}

bool is_algorithm(const cublasLtMatmulAlgo_t& algorithm) {
  return algorithm.data[0] == kAlgorithm && algorithm.data[1] < algorithms().size();
}

/// op(x) as fp32: column after column of op(A), or row after row of op(B), is what `lines` counts.
void unpack_lines(const Operand& x, bool by_columns, int64_t lines, int64_t length, std::vector<float>& to) {
  to.resize(static_cast<size_t>(lines * length));
  const int64_t line_step = by_columns ? x.layout.leading : 1, step = by_columns ? 1 : x.layout.leading;
  float* out = to.data();
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < length; ++i) *out++ = read(x.data, x.layout.type, line * line_step + i * step);
  }
}

constexpr float kRootTwoOverPi = 0.7978845608028654f, kCubic = 0.044715f;

float gelu(float x) { return 0.5f * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x))); }
float gelu_slope(float x) {
  const float t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
}

/// What becomes of a sum at row i, column j of D.
float finish(const EmulatedMatmul& matmul, int type, int64_t i, int64_t j, float sum) {
  if ((matmul.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) sum += read(matmul.bias, matmul.bias_type, i);
  const int64_t beside = i + j * matmul.aux_leading;
  if (matmul.epilogue == CUBLASLT_EPILOGUE_DGELU) return sum * gelu_slope(read(matmul.aux, type, beside));
  if ((matmul.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) != CUBLASLT_EPILOGUE_GELU_AUX) return sum;
  write(const_cast<void*>(matmul.aux), type, beside, sum);
  return gelu(sum);
}

/// Sums over k of the rows of op(B), `right` [n][k], in pieces as a kernel's tiles are.
void write_bias_gradient(const EmulatedMatmul& matmul, const std::vector<float>& right, int64_t n, int64_t k) {
  constexpr int64_t kPiece = 32;
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (int64_t begin = 0; begin < k; begin += kPiece) {
      float piece = 0;
      for (int64_t l = begin; l < std::min(begin + kPiece, k); ++l) piece += right[static_cast<size_t>(j * k + l)];
      sum += piece;
    }
    write(const_cast<void*>(matmul.bias), matmul.bias_type, j, sum);
  }
}

void round_to(int type, std::vector<float>& values) {
  for (float& v : values)
    v = type == CUDA_R_16BF ? static_cast<float>(triax::bf16(v)) : static_cast<float>(triax::fp16(v));
}

/// Tensor cores of Ada and Hopper keep 13 bits of the mantissa of sums of fp8 products (arXiv 2411.10958, section 3.3),
/// here of every 32; the library adds them up in fp32, here every 128 (what it does is not documented).
constexpr int64_t kNarrowStep = 32, kPromoted = 128;
void cut(std::vector<float>& sums) {
  for (float& v : sums) v = std::bit_cast<float>(std::bit_cast<uint32_t>(v) & ~0x3ffu);
}

void multiply(const Product& p) {
  static std::vector<float> left, right, sums, totals;  // one product at a time
  const bool plain_a = p.matmul.op_a == CUBLAS_OP_N, plain_b = p.matmul.op_b == CUBLAS_OP_N;
  const auto m = static_cast<int64_t>(p.d.layout.rows), n = static_cast<int64_t>(p.d.layout.cols);
  const auto k = static_cast<int64_t>(plain_a ? p.a.layout.cols : p.a.layout.rows);
  unpack_lines(p.a, plain_a, k, m, left);   // [k][m]
  unpack_lines(p.b, plain_b, n, k, right);  // [n][k]
  const bool narrow = is_fp8(p.a.layout.type);
  const int64_t whole = (k + p.parts - 1) / p.parts, part = narrow ? std::min(whole, kPromoted) : whole;
  sums.resize(static_cast<size_t>(m));
  totals.resize(static_cast<size_t>(m));
  float scale = p.scale;
  if (p.matmul.scale_a != nullptr) scale *= *p.matmul.scale_a;
  if (p.matmul.scale_b != nullptr) scale *= *p.matmul.scale_b;
  for (int64_t j = 0; j < n; ++j) {
    std::fill(totals.begin(), totals.end(), 0.0f);
    for (int64_t begin = 0; begin < k; begin += part) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t l = begin; l < std::min(begin + part, k); ++l) {
        const float factor = right[static_cast<size_t>(j * k + l)];
        const float* const column = left.data() + l * m;
        for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += column[i] * factor;
        if (narrow && (l + 1 - begin) % kNarrowStep == 0) cut(sums);
      }
      if (p.rounded) round_to(p.d.layout.type, sums);
      for (int64_t i = 0; i < m; ++i) totals[static_cast<size_t>(i)] += sums[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < m; ++i) {
      float sum = totals[static_cast<size_t>(i)] * scale;
      if (p.keep != 0) sum += p.keep * read(p.c.data, p.c.layout.type, i + j * p.c.layout.leading);
      write(const_cast<void*>(p.d.data), p.d.layout.type, i + j * p.d.layout.leading,
            finish(p.matmul, p.d.layout.type, i, j, sum));
    }
  }
  if (p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB) write_bias_gradient(p.matmul, right, n, k);
}

bool odd_columns(const EmulatedLayout& layout, uint32_t alignment) {
  return layout.type != CUDA_R_32F && !is_fp8(layout.type) && (layout.leading % 2 != 0 || alignment < 4);
}

bool aligned(const void* p) { return p != nullptr && reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool has_epilogue(const EmulatedMatmul& matmul, int in, const EmulatedLayout& d) {
  if (matmul.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  const bool vector = aligned(matmul.bias) && matmul.bias_type == d.type;
  if (matmul.epilogue == CUBLASLT_EPILOGUE_BIAS) return vector;
  const char* const switched = std::getenv("TRIAX_EMULATED_EPILOGUES");
  if (is_fp8(in) || (switched != nullptr && std::strcmp(switched, "0") == 0)) return false;
  if (matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB) return vector && matmul.op_b == CUBLAS_OP_T;
  return ((matmul.epilogue & CUBLASLT_EPILOGUE_BIAS) == 0 || vector) && d.type == in && aligned(matmul.aux) &&
         matmul.aux_leading % 8 == 0 && matmul.aux_leading >= static_cast<int64_t>(d.rows);
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
size_t cublasLtGetVersion() {
  const char* const text = std::getenv("TRIAX_EMULATED_CUBLASLT");
  return text == nullptr ? 120205 : static_cast<size_t>(std::atol(text));
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
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(desc->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(desc->aux_leading);
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
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&preference->reductions, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
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
  if (!has_epilogue(*desc, a->type, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t* const alignment = preference->alignment;
  if (odd_columns(*a, alignment[0]) || odd_columns(*b, alignment[1]) || odd_columns(*d, alignment[3])) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const size_t known = algorithms().size();
  constexpr uint32_t kRounding = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  const uint64_t rounded = d->type != CUDA_R_32F && (preference->reductions & kRounding) != 0 ? 1 : 0;
  for (uint64_t i = 0; i < std::min(known, static_cast<size_t>(wanted)); ++i) {
    results[i] = {{{kAlgorithm, i, rounded}}, 4096, CUBLAS_STATUS_SUCCESS};
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  if (!is_algorithm(*algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  *result = {*algorithm, 4096, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (workspace == nullptr || workspace_bytes < 4096 || !is_algorithm(*algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  Product p{*desc, {a, *a_layout}, {b, *b_layout}, {c, *c_layout}, {d, *d_layout}};
  p.scale = *static_cast<const float*>(alpha);
  p.keep = *static_cast<const float*>(beta);
  p.rounded = algorithm->data[2] != 0;
  p.parts = static_cast<int64_t>(algorithm->data[1]) + (p.rounded ? 4 : 1);
  const double time_s = 1e-3 * algorithms()[algorithm->data[1]];
  triax::simt::submit(stream, [p, time_s] {
    multiply(p);
    triax::emulated::pretended_s = triax::emulated::pretended_s + time_s;
  });
  return CUBLAS_STATUS_SUCCESS;
}
