// HDF5 handles that close themselves, and the check around every HDF5 call.
#pragma once

#include <hdf5.h>

#include <string>

#include "base/dtype.h"
#include "base/handle.h"

namespace triax::io {

template <herr_t (*close)(hid_t)>
struct Hdf5Policy {
  using type = hid_t;
  static type null() noexcept { return H5I_INVALID_HID; }
  static void destroy(type id) noexcept { close(id); }
};
using Hdf5File = Handle<Hdf5Policy<H5Fclose>>;
using Hdf5Dataset = Handle<Hdf5Policy<H5Dclose>>;
using Hdf5Space = Handle<Hdf5Policy<H5Sclose>>;
using Hdf5Type = Handle<Hdf5Policy<H5Tclose>>;
using Hdf5Attribute = Handle<Hdf5Policy<H5Aclose>>;
using Hdf5Properties = Handle<Hdf5Policy<H5Pclose>>;

/// Throws ApiError with the innermost words of HDF5's error stack.
[[noreturn]] void throw_hdf5_error(const char* call, int64_t code, const char* file, int line);

/// Returns what the call returned (an identifier or a status); throws when it is negative.
template <class T>
T check_hdf5(T code, const char* call, const char* file, int line) {
  if (code < 0) throw_hdf5_error(call, static_cast<int64_t>(code), file, line);
  return code;
}

/// Errors are thrown, not printed: switches HDF5's own printing off for this thread.
void quiet_hdf5();

/// File and memory type of an element, little endian: fp64, fp32, and the 2-byte floats bf16 (8 bits of exponent, 7 of
/// mantissa) and fp16 (5 and 10), which h5dump and h5py read.
Hdf5Type hdf5_type(DType dtype);
/// The dtype of a stored type; throws RunTimeError for one that this file format does not know. `where` is for the
/// text.
DType dtype_of(hid_t type, const std::string& where);

}  // namespace triax::io

#define TRIAX_H5(call) ::triax::io::check_hdf5((call), #call, __FILE__, __LINE__)
