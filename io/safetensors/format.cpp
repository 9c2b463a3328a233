#include "io/safetensors/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"

namespace triax::io {
namespace {

using nlohmann::json;

/// Types of the format and their bytes per element.
constexpr std::array<std::pair<const char*, int64_t>, 15> kElementTypes = {{{"BOOL", 1},
                                                                            {"U8", 1},
                                                                            {"I8", 1},
                                                                            {"F8_E5M2", 1},
                                                                            {"F8_E4M3", 1},
                                                                            {"I16", 2},
                                                                            {"U16", 2},
                                                                            {"F16", 2},
                                                                            {"BF16", 2},
                                                                            {"I32", 4},
                                                                            {"U32", 4},
                                                                            {"F32", 4},
                                                                            {"F64", 8},
                                                                            {"I64", 8},
                                                                            {"U64", 8}}};

int64_t bytes_of_type(const std::string& type) {
  for (const auto& [name, bytes] : kElementTypes) {
    if (type == name) return bytes;
  }
  return 0;
}

/// Reports with the file's path.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw RunTimeError(fmt::format("{}: not a valid safetensors file: {}", path_, what));
  }

  uint64_t header_length(std::span<const std::byte> file) const {
    if (file.size() < 8) fail(fmt::format("{} bytes, the length of the header alone needs 8", file.size()));
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
    if (length > kMostHeaderBytes) {
      fail(fmt::format("a header of {} bytes (at most {}): another format, or damaged", length, kMostHeaderBytes));
    }
    if (length > file.size() - 8) {
      fail(fmt::format("a header of {} bytes in a file of {}: it is cut off", length, file.size()));
    }
    return length;
  }

  /// JSON of nesting at most three deep, with every name once.
  json parse(std::string_view text) const {
    if (text.empty() || text[0] != '{') fail("the header does not begin with {");
    std::set<std::string> names;
    std::string twice;
    const auto check = [&](int depth, json::parse_event_t event, json& value) {
      if (depth > 3) fail("the header is nested more deeply than the format");
      if (depth == 1 && event == json::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
        twice = value.get<std::string>();
      }
      return true;
    };
    json header;
    try {
      header = json::parse(text, check);
    } catch (const json::exception& error) {
      fail(fmt::format("the header is not JSON ({})", error.what()));
    }
    if (!twice.empty()) fail(fmt::format("the name '{}' stands twice in the header", twice));
    return header;
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    std::map<std::string, std::string> texts;
    if (!value.is_object()) fail("__metadata__ is no object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("__metadata__ '{}' is no text", key));
      texts[key] = text.get<std::string>();
    }
    return texts;
  }

  SafetensorsEntry entry(const std::string& name, const json& value) const {
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.is_object() || !value.contains(key)) fail(fmt::format("tensor '{}' has no {}", name, key));
    }
    SafetensorsEntry entry;
    entry.name = name;
    if (!value["dtype"].is_string()) fail(fmt::format("tensor '{}': dtype is no text", name));
    entry.type = value["dtype"].get<std::string>();
    const int64_t size = bytes_of_type(entry.type);
    if (size == 0) fail(fmt::format("tensor '{}' has the unknown dtype {}", name, entry.type));
    entry.shape = numbers(name, "shape", value["shape"]);
    const std::vector<int64_t> offsets = numbers(name, "data_offsets", value["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail(fmt::format("tensor '{}': data_offsets must be two ascending numbers", name));
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    int64_t bytes = size;
    for (const int64_t n : entry.shape) {
      if (__builtin_mul_overflow(bytes, n, &bytes)) fail(fmt::format("tensor '{}': the shape overflows", name));
    }
    if (bytes != entry.end - entry.begin) {
      fail(fmt::format("tensor '{}': {} [{}] has {} bytes, data_offsets hold {}", name, entry.type,
                       fmt::join(entry.shape, ", "), bytes, entry.end - entry.begin));
    }
    return entry;
  }

  void check_coverage(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes) const {
    int64_t at = 0;
    for (const SafetensorsEntry& entry : entries) {
      if (entry.begin != at) {
        fail(fmt::format("tensor '{}' begins at byte {}, the one before ends at {}: {}", entry.name, entry.begin, at,
                         entry.begin < at ? "they overlap" : "a hole"));
      }
      at = entry.end;
    }
    if (at > data_bytes)
      fail(fmt::format("the tensors need {} bytes, the file holds {}: it is cut off", at, data_bytes));
    if (at < data_bytes) fail(fmt::format("{} bytes after the last tensor", data_bytes - at));
  }

 private:
  std::vector<int64_t> numbers(const std::string& name, const char* key, const json& value) const {
    std::vector<int64_t> list;
    if (!value.is_array()) fail(fmt::format("tensor '{}': {} is no list", name, key));
    for (const json& one : value) {
      const bool whole = one.is_number_unsigned() && one.get<uint64_t>() <= uint64_t{1} << 62;
      if (!whole) fail(fmt::format("tensor '{}': {} holds {}, not a whole number", name, key, one.dump()));
      list.push_back(one.get<int64_t>());
    }
    return list;
  }

  const std::string& path_;
};

}  // namespace

int64_t SafetensorsEntry::numel() const {
  int64_t product = 1;
  for (const int64_t n : shape) product *= n;
  return product;
}

std::optional<DType> dtype_of_safetensors(const std::string& type) {
  static const std::map<std::string, DType> known = {
      {"F64", DType::Float64}, {"F32", DType::Float32}, {"F16", DType::Float16}, {"BF16", DType::BFloat16},
      {"I64", DType::Int64},   {"I32", DType::Int32},   {"I8", DType::Int8},     {"U8", DType::UInt8}};
  const auto found = known.find(type);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

std::string safetensors_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return "F64";
    case DType::Float32:
      return "F32";
    case DType::BFloat16:
      return "BF16";
    case DType::Float16:
      return "F16";
    default:
      ensure(false, "safetensors_type: not a type of weights");
  }
  return {};
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path) {
  const SafetensorsReader reader(path);
  const uint64_t length = reader.header_length(file);
  const json parsed = reader.parse({reinterpret_cast<const char*>(file.data()) + 8, length});
  SafetensorsHeader header;
  header.data_begin = static_cast<int64_t>(8 + length);
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      header.metadata = reader.metadata(value);
    } else {
      header.entries.push_back(reader.entry(name, value));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  reader.check_coverage(header.entries, static_cast<int64_t>(file.size()) - header.data_begin);
  return header;
}

std::string safetensors_header_bytes(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    json[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return bytes + text;
}

}  // namespace triax::io
