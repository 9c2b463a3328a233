// Tensors of one model in safetensors files: one file, or several with an index, as Hugging Face lays them out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/atomic_file.h"
#include "io/data/mapped_file.h"
#include "io/safetensors/format.h"

namespace triax::io {

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

/// A mapped file with its header checked.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  /// The entry's bytes, unaligned.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

/// All tensors of a directory (model.safetensors, or the files of its index), or of one file. Throws RunTimeError: none
/// of them there, a file of the index missing, a tensor that the index puts into a file that does not hold it, one that
/// the index does not name, or a malformed file.
class SafetensorsDirectory {
 public:
  explicit SafetensorsDirectory(const std::string& path);
  struct Item {
    const SafetensorsEntry* entry = nullptr;
    const SafetensorsFile* file = nullptr;
    std::span<const std::byte> bytes() const { return file->bytes(*entry); }
  };
  /// nullptr entry when there is no such tensor.
  Item find(const std::string& name) const;
  /// By name.
  const std::map<std::string, Item>& items() const { return items_; }
  const std::string& path() const { return path_; }

 private:
  void add(const std::string& path);
  [[noreturn]] static void fail_empty(const std::string& path);
  void read_index(const std::string& path);
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Item> items_;
};

/// What will be written, in order.
struct SafetensorsPlan {
  std::vector<SafetensorsEntry> tensors;  ///< name, type, shape; offsets are filled in
  std::map<std::string, std::string> metadata;
};

/// Writes the tensors of a plan in order, each in any number of pieces: to model.safetensors, or to
/// model-00001-of-0000N.safetensors and an index where they are more than `most_file_bytes` (a larger tensor gets a
/// file of its own). Files become visible when complete; the index, or the only file, last.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& directory, SafetensorsPlan plan, int64_t most_file_bytes);
  /// The next bytes, in the order of the plan.
  void write(const void* data, size_t size_bytes);
  /// Throws std::logic_error when bytes are missing.
  void commit();
  const std::vector<std::string>& file_names() const { return names_; }

 private:
  struct File {
    SafetensorsHeader header;
    int64_t bytes = 0;
  };
  void open_next();
  void close();
  void write_index();
  std::string directory_;
  std::vector<File> files_;
  std::vector<std::string> names_;
  size_t next_ = 0;    ///< file to open
  int64_t left_ = 0;   ///< bytes that the open file lacks
  int64_t total_ = 0;  ///< bytes of all tensors
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace triax::io
