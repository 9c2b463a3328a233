// Attributes of HDF5 objects: text, 64-bit integers (also for yes and no: 1, 0), doubles, lists of integers.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "io/weights/hdf5.h"

namespace triax::io {

/// Words for the values of an enumeration, in order; specialised beside it.
template <class E>
struct EnumNames;

/// write("name", value) makes an attribute of `object`.
class AttributeWriter {
 public:
  explicit AttributeWriter(hid_t object) : object_(object) {}
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      text(name, std::string(EnumNames<T>::names[static_cast<size_t>(value)]));
    } else if constexpr (std::is_integral_v<T>) {
      const auto integer = static_cast<int64_t>(value);
      scalar(name, H5T_STD_I64LE, H5T_NATIVE_INT64, &integer);
    } else if constexpr (std::is_floating_point_v<T>) {
      scalar(name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
    } else {
      text(name, value);
    }
  }
  void list(const char* name, const std::vector<int64_t>& values);

 private:
  void scalar(const char* name, hid_t file_type, hid_t memory_type, const void* value);
  void text(const char* name, const std::string& value);
  hid_t object_;
};

/// read("name", value); throws RunTimeError naming `path` and the attribute when it is missing or unknown.
class AttributeReader {
 public:
  AttributeReader(hid_t object, std::string path) : object_(object), path_(std::move(path)) {}
  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::string word;
      text(name, word);
      size_t index = 0;
      const auto& names = EnumNames<T>::names;
      while (index < names.size() && names[index] != word) ++index;
      if (index == names.size()) unknown(name, word);
      value = static_cast<T>(index);
    } else if constexpr (std::is_integral_v<T>) {
      int64_t integer = 0;
      TRIAX_H5(H5Aread(open(name).get(), H5T_NATIVE_INT64, &integer));
      value = static_cast<T>(integer);
    } else if constexpr (std::is_floating_point_v<T>) {
      TRIAX_H5(H5Aread(open(name).get(), H5T_NATIVE_DOUBLE, &value));
    } else {
      text(name, value);
    }
  }
  bool has(const char* name) const { return TRIAX_H5(H5Aexists(object_, name)) > 0; }
  std::vector<int64_t> list(const char* name) const;

 private:
  Hdf5Attribute open(const char* name) const;
  void text(const char* name, std::string& value) const;
  [[noreturn]] void unknown(const char* name, const std::string& word) const;
  hid_t object_;
  std::string path_;
};

}  // namespace triax::io
