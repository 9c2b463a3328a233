// cuBLASLt's descriptors and the algorithm that its heuristic chose, made once per shape and epilogue.
#pragma once

#include <cublasLt.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/handle.h"
#include "base/memory.h"
#include "kernels/device.h"

namespace triax::kernels {

struct CublasLtPolicy {
  using type = cublasLtHandle_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type handle) noexcept { static_cast<void>(cublasLtDestroy(handle)); }
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

class GemmPlans {
 public:
  /// Makes the cuBLASLt handle; scratch of up to 32 MiB comes from the arena while a product runs. `log` is told once
  /// of each kind of epilogue and type that cuBLASLt has no algorithm for.
  GemmPlans(Arena& workspace, std::function<void(const std::string&)> log);
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;
  ~GemmPlans();

  /// c (+)= op(a) op(b) and the epilogue on the stream, g.bias not looked at; false, with nothing done, when cuBLASLt
  /// has no algorithm for this shape, these strides, these alignments and this epilogue. a and b may be fp8, a not
  /// transposed and b transposed; then the product is multiplied by fp8_a.scale[1] * fp8_b.scale[1].
  bool run(const Gemm& g, const Epilogue& epilogue, cudaStream_t stream);

 private:
  struct Plan;
  /// m, n, k; strides of a, b, c, aux; dtypes and flags; alignments. Whether c is accumulated is no part of it:
  /// cuBLASLt is not asked for that, either.
  using Key = std::array<int64_t, 9>;
  static Key key_of(const Gemm& g, const Epilogue& epilogue);
  std::unique_ptr<Plan> make_plan(const Gemm& g, const Epilogue& epilogue);
  void say_none(const Gemm& g, const Epilogue& epilogue);

  Arena& workspace_;
  std::function<void(const std::string&)> log_;
  Handle<CublasLtPolicy> handle_;
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
