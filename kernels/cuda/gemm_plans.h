// cuBLASLt's descriptors and an algorithm, the heuristic's first or the fastest of those that were timed, made once per
// shape and epilogue.
#pragma once

#include <cublasLt.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/handle.h"
#include "base/memory.h"
#include "kernels/cuda/gemm_choices.h"
#include "kernels/device.h"

namespace triax::kernels {

struct CublasLtPolicy {
  using type = cublasLtHandle_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type handle) noexcept { static_cast<void>(cublasLtDestroy(handle)); }
};

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

/// What cuBLASLt does beside the product, in the same kernel.
struct Epilogue {
  enum class Kind {
    None,
    Bias,          ///< c (+)= product + vector[n]
    Gelu,          ///< aux = product + vector[n] (which may be empty), c = gelu(aux before it is rounded)
    GeluBackward,  ///< c = product * gelu'(aux)
    BiasGradient   ///< vector[m] = sums of op(a) over k; op(a) transposed
  };
  Kind kind = Kind::None;
  Tensor vector{};  ///< of c's type
  Tensor aux{};     ///< [m, n] of c's type, rows at multiples of 8 elements
};

/// "GELU gradient".
const char* name_of(Epilogue::Kind kind);

class GemmPlans {
 public:
  struct Settings {
    GemmSearch search{};
    std::string gpu{};  ///< name
    std::function<void(const std::string&)> log{};
    std::function<void()> synchronize{};  ///< waits for the stream, under the deadline of peers
  };
  /// Makes the cuBLASLt handle; scratch of up to 32 MiB comes from the arena while a product runs. `log` is told once
  /// of each kind of epilogue and type that cuBLASLt has no algorithm for. ConfigError for a bad file of choices.
  GemmPlans(Arena& workspace, Settings settings);
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;
  ~GemmPlans();

  /// c (+)= op(a) op(b) and the epilogue on the stream, g.bias not looked at; false, with nothing done, when cuBLASLt
  /// has no algorithm for this shape, these strides, these alignments and this epilogue. a and b may be fp8, a not
  /// transposed and b transposed; then the product is multiplied by fp8_a.scale[1] * fp8_b.scale[1]. The first time
  /// that a product is timed waits for the stream, and for other ranks that time theirs.
  bool run(const Gemm& g, const Epilogue& epilogue, cudaStream_t stream);
  /// Products that were timed here.
  int64_t timed() const { return timed_; }

 private:
  /// NVIDIA's advice for Hopper; smaller GPUs take less of it.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  struct Plan {
    Handle<MatmulPolicy> matmul;
    Handle<LayoutPolicy> a, b, c;
    cublasLtMatmulAlgo_t algorithm{};
    size_t workspace_bytes = 0;
    bool found = false;
    void take(const cublasLtMatmulAlgo_t& chosen, size_t bytes) {
      algorithm = chosen;
      workspace_bytes = bytes;
      found = true;
    }
  };
  /// m, n, k; strides of a, b, c, aux; dtypes and flags; alignments. Whether c is accumulated is no part of it:
  /// cuBLASLt is not asked for that, either.
  using Key = std::array<int64_t, 9>;
  static Key key_of(const Gemm& g, const Epilogue& epilogue);
  static std::string name_of(const Key& key, const Gemm& g, const Epilogue& epilogue);
  std::unique_ptr<Plan> make_plan(const Gemm& g, const Epilogue& epilogue);
  /// The algorithms that the heuristic names, best first.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Plan& plan, const Gemm& g, int wanted);
  std::unique_ptr<Plan> choose(const Key& key, const Gemm& g, const Epilogue& epilogue, cudaStream_t stream);
  GemmChoice measure(Plan& plan, const std::vector<cublasLtMatmulHeuristicResult_t>& among, const Gemm& g,
                     const Buffer& scratch, cudaStream_t stream);
  /// A choice from the file fits the library and the product.
  void check(const Plan& plan, const std::string& product) const;
  cublasStatus_t launch(const Plan& plan, const Gemm& g, const Buffer& scratch, cudaStream_t stream);
  Buffer scratch_for(const Plan& plan);
  void say_none(const Gemm& g, const Epilogue& epilogue);

  Arena& workspace_;
  Settings settings_;
  Handle<CublasLtPolicy> handle_;
  std::unique_ptr<GemmChoices> choices_;
  int64_t timed_ = 0;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::map<std::string, int> said_;
};

/// Rows and columns of op(t).
inline int64_t op_rows(const Tensor& t, Transpose transpose) {
  return transpose == Transpose::Yes ? t.cols() : t.rows();
}
inline int64_t op_cols(const Tensor& t, Transpose transpose) {
  return transpose == Transpose::Yes ? t.rows() : t.cols();
}

/// log2 of the alignment of the tensor's start, up to 256 bytes.
inline uint32_t alignment_log2(const Tensor& t) {
  uint32_t log = 0;
  while (log < 8 && reinterpret_cast<uintptr_t>(t.data()) % (uintptr_t{2} << log) == 0) ++log;
  return log;
}

}  // namespace triax::kernels
