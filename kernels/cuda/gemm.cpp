// C[m,n] (+)= op(A) op(B) + bias by cuBLASLt, which thinks in columns: its problem is C^T[n,m] = op(B)^T op(A)^T, where
// a matrix of ours with row stride s is one of its with leading dimension s, transposed; the bias then runs along its
// rows. fp32 products are IEEE (no TF32); sums are fp32. cuBLASLt on one stream gives the same bits every time.
#include <algorithm>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

/// NVIDIA's advice for Hopper; smaller GPUs take less of it.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

int64_t op_rows(const Tensor& t, Transpose transpose) { return transpose == Transpose::Yes ? t.cols() : t.rows(); }
int64_t op_cols(const Tensor& t, Transpose transpose) { return transpose == Transpose::Yes ? t.rows() : t.cols(); }

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::Float8E4M3) return CUDA_R_8F_E4M3;
  if (dtype == DType::Float8E5M2) return CUDA_R_8F_E5M2;
  if (dtype == DType::BFloat16) return CUDA_R_16BF;
  return dtype == DType::Float16 ? CUDA_R_16F : CUDA_R_32F;
}

/// log2 of the alignment of the tensor's start, up to 256 bytes.
uint32_t alignment_log2(const Tensor& t) {
  uint32_t log = 0;
  while (log < 8 && reinterpret_cast<uintptr_t>(t.data()) % (uintptr_t{2} << log) == 0) ++log;
  return log;
}

int64_t leading(const Tensor& t) { return std::max<int64_t>({t.row_stride(), t.cols(), 1}); }

struct MatmulPolicy {
  using type = cublasLtMatmulDesc_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type raw) noexcept { static_cast<void>(cublasLtMatmulDescDestroy(raw)); }
};
struct LayoutPolicy {
  using type = cublasLtMatrixLayout_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type raw) noexcept { static_cast<void>(cublasLtMatrixLayoutDestroy(raw)); }
};
struct PreferencePolicy {
  using type = cublasLtMatmulPreference_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type raw) noexcept { static_cast<void>(cublasLtMatmulPreferenceDestroy(raw)); }
};

void check_gemm(const Gemm& g) {
  const int64_t m = op_rows(g.a, g.transpose_a), k = op_cols(g.a, g.transpose_a), n = op_cols(g.b, g.transpose_b);
  ensure(g.a && g.b && g.c && g.a.rank() == 2 && g.b.rank() == 2 && g.c.rank() == 2, "gemm: a, b, c must be matrices");
  // The texts are made only for a fault: a steady step takes nothing from the heap.
  if (op_rows(g.b, g.transpose_b) != k) {
    ensure(false, "gemm: op(a) is [m, k] and op(b) [k, n], but a is " + g.a.describe() + " and b is " + g.b.describe());
  }
  if (g.c.rows() != m || g.c.cols() != n) {
    ensure(false, "gemm: c is " + g.c.describe() + ", but op(a) op(b) is not of that shape");
  }
  ensure(g.a.dtype() == g.b.dtype(), "gemm: a and b must share a dtype");
  if (g.a.dtype() == DType::Float64) refuse_type("gemm", g.a.dtype());
  ensure(g.a.dtype() <= DType::Float16, "gemm: a and b must be floating");
  ensure(g.c.dtype() == g.a.dtype() || g.c.dtype() == DType::Float32, "gemm: dtype of c");
  if (g.bias) need_vector("gemm", "bias", g.bias, g.a.dtype(), n);
}

/// What the product is multiplied by. Their A is our B.
void set_fp8_scales(cublasLtMatmulDesc_t matmul, const Gemm& g) {
  const void* const a = g.fp8_b.scale.as<float>() + 1;
  const void* const b = g.fp8_a.scale.as<float>() + 1;
  TRIAX_CUBLASLT(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a, sizeof a));
  TRIAX_CUBLASLT(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b, sizeof b));
}

}  // namespace

struct GemmPlans::Plan {
  Handle<MatmulPolicy> matmul;
  Handle<LayoutPolicy> a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  bool found = false;
};

GemmPlans::GemmPlans(Arena& workspace) : workspace_(workspace) { TRIAX_CUBLASLT(cublasLtCreate(handle_.out())); }
GemmPlans::~GemmPlans() = default;

std::unique_ptr<GemmPlans::Plan> GemmPlans::make_plan(const Gemm& g) {
  auto plan = std::make_unique<Plan>();
  TRIAX_CUBLASLT(cublasLtMatmulDescCreate(plan->matmul.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    TRIAX_CUBLASLT(cublasLtMatmulDescSetAttribute(plan->matmul.get(), attribute, &value, sizeof value));
  };
  const auto op = [](Transpose t) { return t == Transpose::Yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  // Their A is our B.
  set(CUBLASLT_MATMUL_DESC_TRANSA, op(g.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, op(g.transpose_a));
  if (g.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const void* const pointer = g.bias.data();
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
    const int32_t type = cuda_type(g.bias.dtype());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  if (g.fp8_a.scale) set_fp8_scales(plan->matmul.get(), g);
  const auto layout = [](Handle<LayoutPolicy>& to, const Tensor& t) {
    TRIAX_CUBLASLT(cublasLtMatrixLayoutCreate(to.out(), cuda_type(t.dtype()), static_cast<uint64_t>(t.cols()),
                                              static_cast<uint64_t>(t.rows()), leading(t)));
  };
  layout(plan->a, g.b);
  layout(plan->b, g.a);
  layout(plan->c, g.c);
  Handle<PreferencePolicy> preference;
  TRIAX_CUBLASLT(cublasLtMatmulPreferenceCreate(preference.out()));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    TRIAX_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  const uint32_t a = 1u << alignment_log2(g.b), b = 1u << alignment_log2(g.a), c = 1u << alignment_log2(g.c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan->matmul.get(), plan->a.get(), plan->b.get(), plan->c.get(),
                                     plan->c.get(), preference.get(), 1, &best, &count);
  // Both words for "none": the caller has another way.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return plan;
  TRIAX_CUBLASLT(status);
  if (count == 0) return plan;
  plan->found = true;
  plan->algorithm = best.algo;
  plan->workspace_bytes = best.workspaceSize;
  return plan;
}

bool GemmPlans::run(const Gemm& g, cudaStream_t stream) {
  const uint32_t flags = static_cast<uint32_t>(g.transpose_a) | static_cast<uint32_t>(g.transpose_b) << 1 |
                         static_cast<uint32_t>(g.accumulate) << 2 |
                         static_cast<uint32_t>(static_cast<bool>(g.bias)) << 3 |
                         static_cast<uint32_t>(g.a.dtype()) << 8 | static_cast<uint32_t>(g.c.dtype()) << 16 |
                         static_cast<uint32_t>(g.b.dtype()) << 24;
  const uint64_t alignments = alignment_log2(g.a) | alignment_log2(g.b) << 8 | alignment_log2(g.c) << 16 |
                              (g.bias ? alignment_log2(g.bias) << 24 : 0);
  const Key key{g.c.rows(), g.c.cols(), op_cols(g.a, g.transpose_a), leading(g.a), leading(g.b), leading(g.c),
                flags,      alignments};
  auto at = plans_.find(key);
  if (at == plans_.end()) at = plans_.emplace(key, make_plan(g)).first;
  Plan& plan = *at->second;
  if (!plan.found) return false;
  if (g.bias) {
    const void* const pointer = g.bias.data();
    TRIAX_CUBLASLT(
        cublasLtMatmulDescSetAttribute(plan.matmul.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer, sizeof pointer));
  }
  if (g.fp8_a.scale) set_fp8_scales(plan.matmul.get(), g);
  const float alpha = 1, beta = g.accumulate == Accumulate::Yes ? 1 : 0;
  // Always of one size, so that products of all shapes share it.
  const Buffer scratch =
      plan.workspace_bytes == 0 ? Buffer() : workspace_.allocate(kWorkspaceBytes, MemoryCategory::Workspace);
  TRIAX_CUBLASLT(cublasLtMatmul(handle_.get(), plan.matmul.get(), &alpha, g.b.data(), plan.a.get(), g.a.data(),
                                plan.b.get(), &beta, g.c.data(), plan.c.get(), g.c.data(), plan.c.get(),
                                &plan.algorithm, scratch.data(), plan.workspace_bytes, stream));
  return true;
}

void CudaDevice::gemm(const Gemm& g) {
  check_gemm(g);
  if (g.c.rows() == 0 || g.c.cols() == 0) return;
  if (g.a.numel() == 0) {  // k = 0: an empty sum
    if (g.accumulate == Accumulate::No) fill(g.c, 0);
    if (g.bias) add_bias(g.bias, g.c);
    return;
  }
  // The epilogue adds a bias of the output's type from an aligned address; any other is added by a pass of its own.
  Gemm product = g;
  const bool by_epilogue = g.bias && g.c.dtype() == g.bias.dtype() && alignment_log2(g.bias) >= 4;
  if (!by_epilogue) product.bias = Tensor();
  const bool fp8 = g.fp8_a.scale || g.fp8_b.scale;
  if (fp8) gemm_fp8(product);
  if (fp8 || plans_->run(product, stream())) {
    if (g.bias && !by_epilogue) add_bias(g.bias, g.c);
    return;
  }
  gemm_plain(g);
}

}  // namespace triax::kernels
