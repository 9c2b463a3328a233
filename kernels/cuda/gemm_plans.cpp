// cuBLASLt thinks in columns: its problem is C^T[n,m] = op(B)^T op(A)^T, where a matrix of ours with row stride s is
// one of its with leading dimension s, transposed; a bias of ours [n] then runs along its rows, and the sums of our
// op(A) over k, [m], are its gradient of a bias "based on B" (BGRADB).
#include "kernels/cuda/gemm_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/check.h"

namespace triax::kernels {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::Float8E4M3) return CUDA_R_8F_E4M3;
  if (dtype == DType::Float8E5M2) return CUDA_R_8F_E5M2;
  if (dtype == DType::BFloat16) return CUDA_R_16BF;
  return dtype == DType::Float16 ? CUDA_R_16F : CUDA_R_32F;
}

int64_t leading(const Tensor& t) { return std::max<int64_t>({t.row_stride(), t.cols(), 1}); }

struct PreferencePolicy {
  using type = cublasLtMatmulPreference_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type raw) noexcept { static_cast<void>(cublasLtMatmulPreferenceDestroy(raw)); }
};

template <class T>
void set(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  TRIAX_CUBLASLT(cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof value));
}

/// What changes from call to call: addresses. Their A is our B.
void set_pointers(cublasLtMatmulDesc_t matmul, const Gemm& g, const Epilogue& epilogue) {
  if (g.fp8_a.scale) {
    const void* const a = g.fp8_b.scale.as<float>() + 1;
    const void* const b = g.fp8_a.scale.as<float>() + 1;
    set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a);
    set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b);
  }
  const void* const vector = epilogue.vector.data();
  const void* const aux = epilogue.aux.data();
  if (vector != nullptr) set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (aux != nullptr) set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

cublasLtEpilogue_t word_of(const Epilogue& epilogue) {
  switch (epilogue.kind) {
    case Epilogue::Kind::None:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::Kind::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Kind::Gelu:
      return epilogue.vector ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::Kind::GeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::Kind::BiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

const char* name_of(Epilogue::Kind kind) {
  constexpr const char* kNames[] = {"no", "bias", "GELU", "GELU gradient", "bias gradient"};
  return kNames[static_cast<size_t>(kind)];
}

GemmPlans::GemmPlans(Arena& workspace, Settings settings) : workspace_(workspace), settings_(std::move(settings)) {
  TRIAX_CUBLASLT(cublasLtCreate(handle_.out()));
  if (!settings_.search.cache.empty()) {
    choices_ = std::make_unique<GemmChoices>(settings_.search, settings_.gpu, cublasLtGetVersion(), kWorkspaceBytes,
                                             settings_.log);
  }
}
GemmPlans::~GemmPlans() = default;

GemmPlans::Key GemmPlans::key_of(const Gemm& g, const Epilogue& epilogue) {
  const uint32_t types = static_cast<uint32_t>(g.a.dtype()) | static_cast<uint32_t>(g.b.dtype()) << 8 |
                         static_cast<uint32_t>(g.c.dtype()) << 16;
  const uint32_t flags = static_cast<uint32_t>(g.transpose_a) | static_cast<uint32_t>(g.transpose_b) << 1 |
                         static_cast<uint32_t>(word_of(epilogue)) << 2;
  const auto alignment = [](const Tensor& t, int place) {
    return static_cast<int64_t>(t ? alignment_log2(t) : 0) << place;
  };
  return {g.c.rows(),
          g.c.cols(),
          op_cols(g.a, g.transpose_a),
          leading(g.a),
          leading(g.b),
          leading(g.c),
          epilogue.aux ? leading(epilogue.aux) : 0,
          static_cast<int64_t>(types) | static_cast<int64_t>(flags) << 32,
          alignment(g.a, 0) | alignment(g.b, 8) | alignment(g.c, 16) | alignment(epilogue.vector, 24) |
              alignment(epilogue.aux, 32)};
}

std::unique_ptr<GemmPlans::Plan> GemmPlans::make_plan(const Gemm& g, const Epilogue& epilogue) {
  auto plan = std::make_unique<Plan>();
  TRIAX_CUBLASLT(cublasLtMatmulDescCreate(plan->matmul.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasLtMatmulDesc_t const matmul = plan->matmul.get();
  const auto op = [](Transpose t) { return t == Transpose::Yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, op(g.transpose_b));
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, op(g.transpose_a));
  set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, word_of(epilogue));
  const auto type_of_c = static_cast<int32_t>(cuda_type(g.c.dtype()));
  if (epilogue.vector) set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of_c);
  if (epilogue.aux) set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading(epilogue.aux));
  // The heuristic reads their alignment.
  set_pointers(matmul, g, epilogue);
  const auto layout = [](Handle<LayoutPolicy>& to, const Tensor& t) {
    TRIAX_CUBLASLT(cublasLtMatrixLayoutCreate(to.out(), cuda_type(t.dtype()), static_cast<uint64_t>(t.cols()),
                                              static_cast<uint64_t>(t.rows()), leading(t)));
  };
  layout(plan->a, g.b);
  layout(plan->b, g.a);
  layout(plan->c, g.c);
  return plan;
}

std::vector<cublasLtMatmulHeuristicResult_t> GemmPlans::candidates(const Plan& plan, const Gemm& g, int wanted) {
  Handle<PreferencePolicy> preference;
  TRIAX_CUBLASLT(cublasLtMatmulPreferenceCreate(preference.out()));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    TRIAX_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // By default an algorithm may round the sums over parts of k to the output's type before it adds them.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  const uint32_t a = 1u << alignment_log2(g.b), b = 1u << alignment_log2(g.a), c = 1u << alignment_log2(g.c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(wanted));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.matmul.get(), plan.a.get(), plan.b.get(), plan.c.get(),
                                     plan.c.get(), preference.get(), wanted, results.data(), &count);
  // Both words for "none": the caller has another way.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  TRIAX_CUBLASLT(status);
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

void GemmPlans::say_none(const Gemm& g, const Epilogue& epilogue) {
  const std::string what = fmt::format("{} epilogue from {} to {}", kernels::name_of(epilogue.kind),
                                       triax::name_of(g.a.dtype()), triax::name_of(g.c.dtype()));
  if (epilogue.kind == Epilogue::Kind::None || said_[what]++ > 0 || !settings_.log) return;
  settings_.log(
      fmt::format("cuBLASLt has no algorithm with {} for a product of {} x {} x {}: where it has none, a pass of its "
                  "own follows the product",
                  what, g.c.rows(), g.c.cols(), op_cols(g.a, g.transpose_a)));
}

cublasStatus_t GemmPlans::launch(const Plan& plan, const Gemm& g, const Buffer& scratch, cudaStream_t stream) {
  const float alpha = 1, beta = g.accumulate == Accumulate::Yes ? 1 : 0;
  const cublasStatus_t status = cublasLtMatmul(
      handle_.get(), plan.matmul.get(), &alpha, g.b.data(), plan.a.get(), g.a.data(), plan.b.get(), &beta, g.c.data(),
      plan.c.get(), g.c.data(), plan.c.get(), &plan.algorithm, scratch.data(), plan.workspace_bytes, stream);
  return status;
}

/// Always of one size, so that products of all shapes share it.
Buffer GemmPlans::scratch_for(const Plan& plan) {
  return plan.workspace_bytes == 0 ? Buffer() : workspace_.allocate(kWorkspaceBytes, MemoryCategory::Workspace);
}

bool GemmPlans::run(const Gemm& g, const Epilogue& epilogue, cudaStream_t stream) {
  const Key key = key_of(g, epilogue);
  auto at = plans_.find(key);
  if (at == plans_.end()) {
    at = plans_.emplace(key, choose(key, g, epilogue, stream)).first;
    if (!at->second->found) say_none(g, epilogue);
  }
  const Plan& plan = *at->second;
  if (!plan.found) return false;
  set_pointers(plan.matmul.get(), g, epilogue);
  TRIAX_CUBLASLT(launch(plan, g, scratch_for(plan), stream));
  return true;
}

}  // namespace triax::kernels
