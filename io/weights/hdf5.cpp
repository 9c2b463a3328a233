#include "io/weights/hdf5.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"

namespace triax::io {
namespace {

herr_t keep_words(unsigned, const H5E_error2_t* error, void* words) {
  // The walk goes outwards, so the first description is the cause.
  auto& text = *static_cast<std::string*>(words);
  if (text.empty() && error->desc != nullptr) text = error->desc;
  return 0;
}

/// sign | exponent | mantissa of a 2-byte little-endian float.
Hdf5Type small_float(size_t exponent_bits, size_t mantissa_bits, size_t bias) {
  Hdf5Type type(TRIAX_H5(H5Tcopy(H5T_IEEE_F32LE)));
  TRIAX_H5(H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits));
  TRIAX_H5(H5Tset_size(type.get(), 2));
  TRIAX_H5(H5Tset_ebias(type.get(), bias));
  return type;
}

}  // namespace

void throw_hdf5_error(const char* call, int64_t code, const char* file, int line) {
  std::string words;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_words, &words);
  throw ApiError("HDF5", call, static_cast<int>(code), words, file, line);
}

void quiet_hdf5() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

Hdf5Type hdf5_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return Hdf5Type(TRIAX_H5(H5Tcopy(H5T_IEEE_F64LE)));
    case DType::Float32:
      return Hdf5Type(TRIAX_H5(H5Tcopy(H5T_IEEE_F32LE)));
    case DType::BFloat16:
      return small_float(8, 7, 127);
    case DType::Float16:
      return small_float(5, 10, 15);
    default:
      throw ConfigError(
          fmt::format("weights of type {} cannot be stored: use fp64, fp32, bf16 or fp16", name_of(dtype)));
  }
}

DType dtype_of(hid_t type, const std::string& where) {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
    const Hdf5Type known = hdf5_type(dtype);
    if (TRIAX_H5(H5Tequal(type, known.get())) > 0) return dtype;
  }
  throw RunTimeError(fmt::format("{}: element type is none of fp64, fp32, bf16, fp16", where));
}

}  // namespace triax::io
