#include "io/data/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <regex>

namespace triax::io {

namespace {

constexpr size_t kAlignment = 64;
constexpr std::string_view kNpyMagic{"\x93NUMPY\x01\x00", 8};

}  // namespace

void write_npy(const std::string& path, const char* type, std::span<const std::byte> data,
               std::span<const int64_t> shape) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type,
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const size_t before = kNpyMagic.size() + 2;
  const size_t padded = (before + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.append(padded - before - header.size() - 1, ' ');
  header.push_back('\n');
  const auto size = static_cast<uint16_t>(header.size());
  AtomicFile file(path);
  file.write(kNpyMagic.data(), kNpyMagic.size());
  file.write(&size, sizeof(size));
  file.write(header.data(), header.size());
  file.write(data.data(), data.size());
  file.commit();
}

NpyFile::NpyFile(const std::string& path) : file_(path) {
  const auto refuse = [&path](const char* what) {
    throw RunTimeError(fmt::format("{}: {}; remove the file, it will be built again", path, what));
  };
  if (file_.size() < 10 || std::memcmp(file_.data(), kNpyMagic.data(), kNpyMagic.size()) != 0)
    refuse("is no .npy 1.0 file");
  uint16_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data() + kNpyMagic.size(), 2);
  data_begin_ = size_t{10} + header_bytes;
  if (file_.size() < data_begin_) refuse("is cut");
  const std::string header(reinterpret_cast<const char*>(file_.data()) + 10, header_bytes);
  static const std::regex pattern(
      R"(\{'descr': '(<[iu][248])', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \}\s*)");
  std::smatch match;
  if (!std::regex_match(header, match, pattern)) refuse("has a header that is not understood");
  type_ = match[1];
  const std::string dims = match[2];
  count_ = 1;
  for (size_t at = 0; at < dims.size();) {
    size_t used = 0;
    shape_.push_back(std::stoll(dims.substr(at), &used));
    count_ *= static_cast<size_t>(shape_.back());
    at = std::min(dims.size(), dims.find_first_of("0123456789", at + used));
  }
  const auto item = static_cast<size_t>(type_[2] - '0');
  if (file_.size() - data_begin_ != count_ * item) refuse("is cut or has bytes too many");
}

}  // namespace triax::io
