// A directory of `.npy` index files, shared by processes: built once, opened by all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/data/npy.h"

namespace triax::io {

/// Files of one key: `<hash>-<label>-<array>.npy` and, written last, `<hash>-<label>-description.json`, whose text must
/// equal the key's: a hash that collides rebuilds instead of giving wrong data.
class IndexCache {
 public:
  struct Key {
    std::string label;        ///< "train", "valid", "test", ...
    std::string description;  ///< everything that decides the content
    std::vector<std::string> arrays;
  };
  /// Puts one array of the key into the directory.
  using Put = std::function<void(const std::string& array, const char* npy_type, std::span<const std::byte> data,
                                 std::span<const int64_t> shape)>;

  explicit IndexCache(std::string directory) : directory_(std::move(directory)) {}

  /// The key's arrays in its order; when any is missing, `build` puts them all first. Several processes may build at
  /// once: each renames its own complete files over the other's equal ones. Throws RunTimeError that names
  /// --data-cache-path when the directory cannot be written.
  std::vector<NpyFile> get(const Key& key, const std::function<void(const Put&)>& build) const;

 private:
  bool complete(const Key& key, const std::string& base) const;
  std::string directory_;
};

}  // namespace triax::io
