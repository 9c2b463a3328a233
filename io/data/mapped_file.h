// Read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <string>

namespace triax::io {

/// Owns a mapping; empty files map to nothing (data() == nullptr). Throws RunTimeError when the file cannot be opened.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Tells the kernel that the file will be read from front to back (read far ahead) ...
  void advise_sequential() const;
  /// ... or here and there: a page fault then reads its page alone, where read-ahead may fetch megabytes.
  void advise_random() const;
  /// Starts reading these bytes from disk, without waiting.
  void will_need(const std::byte* from, size_t size_bytes) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace triax::io
