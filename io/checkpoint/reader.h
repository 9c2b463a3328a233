// Reads tensors, or the parts of them that a rank needs, from a checkpoint in any layout.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/header.h"
#include "io/checkpoint/piece.h"
#include "io/checkpoint/shard.h"

namespace triax::io {

/// A whole tensor of a checkpoint.
struct TensorInfo {
  std::string kind, name;
  DType dtype = DType::Float32;
  std::vector<int64_t> shape;
  int64_t bytes() const { return elements_of(shape) * static_cast<int64_t>(size_of(dtype)); }
  bool operator==(const TensorInfo&) const = default;
};

/// One step's directory (index.h5 and shards), one plain HDF5 file with the same groups, or a weights file of an
/// earlier version. Not thread-safe; other HDF5 calls must not run at the same time.
class CheckpointReader {
 public:
  /// `path`: the directory or the file. Throws RunTimeError: missing, damaged, locked, another format, newer version.
  explicit CheckpointReader(const std::string& path);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  const CheckpointHeader& header() const;
  const std::string& path() const;
  /// Sorted by kind and name.
  const std::vector<TensorInfo>& tensors() const;
  bool has_kind(const std::string& kind) const;
  /// nullptr when there is none.
  const TensorInfo* find(const std::string& kind, const std::string& tensor) const;

  /// Fills piece.data (a vector of fp64, fp32, bf16 or fp16) with its elements of the stored tensor, converted (round
  /// to nearest even) where the stored type is another. Only bytes that are needed are read. A box of a shard that is
  /// read whole must have its checksum. Throws RunTimeError by name: tensor missing, of another shape; shard missing
  /// or damaged.
  void read(const Piece& piece);
  /// Whole tensor into `out` [numel].
  void read_whole(const TensorInfo& tensor, Tensor out);
  /// Rows [begin, end) of it (of a vector: elements) into `out`.
  void read_rows(const TensorInfo& tensor, int64_t begin, int64_t end, Tensor out);
  /// Bytes of tensor values read so far.
  int64_t bytes_read() const;
  /// Boxes of a tensor in shards: files without directory; the file itself when the tensor is stored whole.
  struct Part {
    std::string file, dataset;
    Box box;
  };
  const std::vector<Part>& parts(const TensorInfo& tensor);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triax::io
