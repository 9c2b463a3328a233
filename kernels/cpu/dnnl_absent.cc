// Stands in for dnnl_gemm.cc in a build without oneDNN.
#include "kernels/cpu/dnnl_gemm.h"

namespace triax::kernels {

struct DnnlGemm::Impl {};
DnnlGemm::DnnlGemm(Arena&, int) {}
DnnlGemm::~DnnlGemm() = default;
bool DnnlGemm::run(const Gemm&) { return false; }
std::string DnnlGemm::description() const { return {}; }

}  // namespace triax::kernels
