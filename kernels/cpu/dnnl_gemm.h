// GEMM by oneDNN: fp32 and bf16. Primitives are created once per shape; their scratch comes from the device's arena.
#pragma once

#include <memory>
#include <string>

#include "base/memory.h"
#include "kernels/device.h"

namespace triax::kernels {

/// Without oneDNN in the build (dnnl_absent.cc) nothing is supported and the description is empty.
class DnnlGemm {
 public:
  DnnlGemm(Arena& workspace, int threads);
  DnnlGemm(const DnnlGemm&) = delete;
  DnnlGemm& operator=(const DnnlGemm&) = delete;
  DnnlGemm(DnnlGemm&&) = delete;
  DnnlGemm& operator=(DnnlGemm&&) = delete;
  ~DnnlGemm();

  /// Does it and returns true, or returns false when oneDNN has no fast implementation for these types here.
  bool run(const Gemm& g);
  /// "oneDNN 2.6.3", or empty.
  std::string description() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triax::kernels
