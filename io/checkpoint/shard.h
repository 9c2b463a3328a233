// A shard: the HDF5 file of one writer, with one contiguous dataset per box of a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/piece.h"
#include "io/checkpoint/raw_file.h"
#include "io/weights/hdf5.h"

namespace triax::io {

/// A dataset of a shard.
struct StoredBox {
  std::string kind, tensor;
  DType dtype = DType::Float32;
  std::vector<int64_t> global_shape;
  Box box;
  std::string dataset;  ///< "/<kind>/<tensor>", with "@<row>,<col>" from the second box of a tensor on
  uint64_t checksum = 0;
};

/// What the index must know of a shard.
struct ShardSummary {
  std::string file;  ///< name without directory
  int64_t size_bytes = 0;
  std::string checksum;  ///< of the whole file
  std::vector<StoredBox> boxes;
};
std::string to_json(const ShardSummary& summary);
ShardSummary shard_from_json(const std::string& text);

/// One checksum of all datasets of a shard: of their names and their own checksums, in the order of names. The index
/// holds it, so that a shard of another save is found out when it is opened.
std::string boxes_checksum(std::map<std::string, uint64_t> checksum_of_dataset);

/// Where a save stands; tests stop it there.
enum class SavePoint {
  FirstByte,
  HalfWritten,
  Written,
  Closed,
  Durable,
  Verified,
  IndexHalf,
  IndexDone,
  Renamed,
  TrackerWritten,
  Tracked,
  RetentionHalf
};
inline constexpr int kSavePoints = 12;
using SaveHook = std::function<void(SavePoint)>;

/// What is reserved on the disk for a shard with these values: with HDF5's own bytes, which are about 1 kB a tensor.
int64_t shard_file_bytes(int64_t value_bytes);

/// Writes one shard file at `path`, whose directory is not yet visible under its final name. Space is reserved first,
/// so that a full disk is found before HDF5 has written anything. One thread. Errors: RunTimeError.
class ShardWriter {
 public:
  /// `bytes`: sum of the values that will come.
  ShardWriter(std::string path, int64_t bytes, SaveHook hook = {});
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void write(const Piece& piece);
  /// Flush, close, fsync, and read back: a value that does not come back as it was written is an error that names the
  /// tensor. Returns the summary.
  ShardSummary commit();

 private:
  void write_box(const Piece& piece, const PlacedBox& placed);
  /// HDF5 gives a dataset its place in the file; the values go there past it. Returns their checksum.
  uint64_t write_values(const StoredBox& stored, Tensor values, int64_t offset);
  void progress(int64_t bytes);
  std::string path_;
  int64_t bytes_ = 0, written_ = 0;
  SaveHook hook_;
  Hdf5File file_;
  RawWriter raw_;
  std::map<std::string, int> groups_;
  std::vector<StoredBox> boxes_;
  std::vector<int64_t> offsets_;  ///< of each box in the file
};

/// Access and creation properties of all checkpoint files: metadata with checksums (HDF5 1.10's format), closing the
/// file closes what is open in it, a file system without locks is accepted.
Hdf5Properties file_access();
/// Creates a file; throws RunTimeError with the system's words.
Hdf5File create_file(const std::string& path);
/// Opens a file for reading. Throws RunTimeError that tells a missing file, a damaged one and a lock apart, and names
/// the process that holds the lock where the system tells it; `what` begins the text.
Hdf5File open_file(const std::string& path, const std::string& what);

}  // namespace triax::io
