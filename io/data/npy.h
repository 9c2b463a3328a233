// numpy's `.npy` files of integers: written here, readable by numpy.load and the other way round.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/data/atomic_file.h"
#include "io/data/mapped_file.h"

namespace triax::io {

/// numpy's little-endian type string of T: "<i4".
template <class T>
constexpr const char* npy_type();
template <>
constexpr const char* npy_type<int16_t>() {
  return "<i2";
}
template <>
constexpr const char* npy_type<int32_t>() {
  return "<i4";
}
template <>
constexpr const char* npy_type<uint32_t>() {
  return "<u4";
}
template <>
constexpr const char* npy_type<int64_t>() {
  return "<i8";
}

/// Format version 1.0, C order, data aligned to 64 bytes. Appears complete or not at all.
void write_npy(const std::string& path, const char* type, std::span<const std::byte> data,
               std::span<const int64_t> shape);
template <class T>
void write_npy(const std::string& path, std::span<const T> values, std::span<const int64_t> shape) {
  write_npy(path, npy_type<T>(), std::as_bytes(values), shape);
}

/// A mapped `.npy` file of format version 1.0 in C order. Throws RunTimeError for anything else.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);
  const std::string& type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::string& path() const { return file_.path(); }
  /// All elements in C order; T must be the file's type.
  template <class T>
  std::span<const T> values() const {
    ensure(type_ == npy_type<T>(), "NpyFile::values: element type differs from the file's");
    return {reinterpret_cast<const T*>(file_.data() + data_begin_), count_};
  }

 private:
  MappedFile file_;
  std::string type_;
  std::vector<int64_t> shape_;
  size_t data_begin_ = 0;
  size_t count_ = 0;
};

}  // namespace triax::io
