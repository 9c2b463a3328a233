// The safetensors format: 8 bytes with the header's length N (little endian), N bytes of JSON, then the tensors' bytes.
// {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {"key": "text"}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace triax::io {

/// Longest header that is read, as in the reference implementation.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string type;            ///< "F32", "BF16", "U8", ... as in the file
  std::vector<int64_t> shape;  ///< may be empty: one element
  int64_t begin = 0, end = 0;  ///< bytes from the end of the header
  int64_t numel() const;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< ascending bytes
  std::map<std::string, std::string> metadata;  ///< "__metadata__"
  int64_t data_begin = 0;                       ///< byte of the file where the tensors begin
};

/// The element type of "F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8"; nothing for the format's other types.
std::optional<DType> dtype_of_safetensors(const std::string& type);
/// "F32" of fp32 and so on. fp64, fp32, bf16, fp16 only.
std::string safetensors_type(DType dtype);

/// Reads and checks the header of a whole file in memory: lengths, JSON, no name twice, types that the format knows,
/// bytes = shape x size of an element, tensors one after the other without holes or overlaps up to the end of the file.
/// Throws RunTimeError with path, tensor and what is wrong.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path);

/// The first 8 + N bytes of a file: entries as given (their begin and end are used), padded with blanks to a multiple
/// of 8.
std::string safetensors_header_bytes(const SafetensorsHeader& header);

}  // namespace triax::io
