#include "io/run_options.h"

namespace triax::io {

DType compute_dtype(Precision precision) {
  switch (precision) {
    case Precision::Fp64:
      return DType::Float64;
    case Precision::Fp32:
      return DType::Float32;
    case Precision::Bf16:
      return DType::BFloat16;
    case Precision::Fp16:
      return DType::Float16;
  }
  return DType::Float32;
}

DType state_dtype(Precision precision) { return precision == Precision::Fp64 ? DType::Float64 : DType::Float32; }

}  // namespace triax::io
