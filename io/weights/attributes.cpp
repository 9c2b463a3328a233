#include "io/weights/attributes.h"

#include <fmt/format.h>

#include "base/error.h"

namespace triax::io {

void AttributeWriter::scalar(const char* name, hid_t file_type, hid_t memory_type, const void* value) {
  const Hdf5Space space(TRIAX_H5(H5Screate(H5S_SCALAR)));
  const Hdf5Attribute attribute(TRIAX_H5(H5Acreate2(object_, name, file_type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  TRIAX_H5(H5Awrite(attribute.get(), memory_type, value));
}

void AttributeWriter::text(const char* name, const std::string& value) {
  const Hdf5Type type(TRIAX_H5(H5Tcopy(H5T_C_S1)));
  TRIAX_H5(H5Tset_size(type.get(), value.size() + 1));
  TRIAX_H5(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  scalar(name, type.get(), type.get(), value.c_str());
}

void AttributeWriter::list(const char* name, const std::vector<int64_t>& values) {
  const hsize_t count = values.size();
  const Hdf5Space space(TRIAX_H5(H5Screate_simple(1, &count, nullptr)));
  const Hdf5Attribute attribute(
      TRIAX_H5(H5Acreate2(object_, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  TRIAX_H5(H5Awrite(attribute.get(), H5T_NATIVE_INT64, values.data()));
}

Hdf5Attribute AttributeReader::open(const char* name) const {
  if (!has(name)) {
    throw RunTimeError(fmt::format("{}: attribute {} is missing: the file is not complete", path_, name));
  }
  return Hdf5Attribute(TRIAX_H5(H5Aopen(object_, name, H5P_DEFAULT)));
}

void AttributeReader::text(const char* name, std::string& value) const {
  const Hdf5Attribute attribute = open(name);
  const Hdf5Type stored(TRIAX_H5(H5Aget_type(attribute.get())));
  std::vector<char> bytes(TRIAX_H5(static_cast<int64_t>(H5Tget_size(stored.get()))) + 1, '\0');
  TRIAX_H5(H5Aread(attribute.get(), stored.get(), bytes.data()));
  value = bytes.data();
}

std::vector<int64_t> AttributeReader::list(const char* name) const {
  const Hdf5Attribute attribute = open(name);
  const Hdf5Space space(TRIAX_H5(H5Aget_space(attribute.get())));
  std::vector<int64_t> values(static_cast<size_t>(TRIAX_H5(H5Sget_simple_extent_npoints(space.get()))));
  TRIAX_H5(H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()));
  return values;
}

void AttributeReader::unknown(const char* name, const std::string& word) const {
  throw RunTimeError(fmt::format("{}: attribute {} has the unknown value {}", path_, name, word));
}

}  // namespace triax::io
