// cuBLASLt's descriptors and the algorithm that its heuristic chose, made once per shape.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>

#include "base/handle.h"
#include "base/memory.h"
#include "kernels/device.h"

namespace triax::kernels {

struct CublasLtPolicy {
  using type = cublasLtHandle_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type handle) noexcept { static_cast<void>(cublasLtDestroy(handle)); }
};

class GemmPlans {
 public:
  /// Makes the cuBLASLt handle; scratch of up to kWorkspaceBytes comes from the arena while a product runs.
  explicit GemmPlans(Arena& workspace);
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;
  ~GemmPlans();

  /// c (+)= op(a) op(b) + bias on the stream; false, with nothing done, when cuBLASLt has no algorithm for this shape,
  /// these strides and these alignments. bias may be given only when c has its type. a and b may be fp8, a not
  /// transposed and b transposed; then the product is multiplied by fp8_a.scale[1] * fp8_b.scale[1].
  bool run(const Gemm& g, cudaStream_t stream);
  /// Shapes planned so far.
  size_t size() const { return plans_.size(); }

 private:
  struct Plan;
  /// m, n, k, three strides, dtypes and flags, alignments.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, uint32_t, uint64_t>;
  std::unique_ptr<Plan> make_plan(const Gemm& g);

  Arena& workspace_;
  Handle<CublasLtPolicy> handle_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace triax::kernels
