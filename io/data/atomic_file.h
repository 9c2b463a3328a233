// A file that becomes visible only when complete: temporary name, fsync, rename, fsync of the directory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace triax::io {

/// fsync of a file or a directory. Throws RunTimeError.
void make_durable(const std::string& path);

/// Buffered writer. Every error throws RunTimeError with path and errno text (disk full, read-only, no permission).
class AtomicFile {
 public:
  /// Writes to `path` + ".tmp.<host>.<pid>.<n>" until commit(). A link stays a link: its target is replaced. Devices
  /// and pipes (/dev/stdout, /dev/null) are written to as they are, never replaced.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  AtomicFile(AtomicFile&&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Removes the temporary file unless committed.
  ~AtomicFile();

  void write(const void* data, size_t size_bytes);
  /// Flushes, makes durable, renames over `path`.
  void commit();

 private:
  void write_through(const std::byte* data, size_t size_bytes);
  bool in_place() const { return temporary_ == path_; }
  [[noreturn]] void fail(const char* what) const;
  std::string path_;
  std::string temporary_;
  std::vector<std::byte> buffer_;
  int descriptor_ = -1;
};

}  // namespace triax::io
