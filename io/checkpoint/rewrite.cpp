#include "io/checkpoint/rewrite.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/verify.h"
#include "io/data/atomic_file.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

constexpr int64_t kCopyTileBytes = int64_t{256} << 20;

/// Removes the file unless released.
struct Temporary {
  explicit Temporary(std::string name) : path(std::move(name)) {}
  ~Temporary() {
    if (!path.empty()) std::remove(path.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  std::string path;
};

void copy_tensor(CheckpointReader& reader, const TensorInfo& t, hid_t file, std::vector<std::byte>& buffer) {
  const auto rank = static_cast<int>(t.shape.size());
  std::vector<hsize_t> dims(t.shape.begin(), t.shape.end());
  const Hdf5Type type = hdf5_type(t.dtype);
  const Hdf5Space space(TRIAX_H5(H5Screate_simple(rank, dims.data(), nullptr)));
  const Hdf5Properties creation(TRIAX_H5(H5Pcreate(H5P_DATASET_CREATE)));
  TRIAX_H5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  const std::string name = fmt::format("/{}/{}", t.kind, t.name);
  const Hdf5Dataset dataset(
      TRIAX_H5(H5Dcreate2(file, name.c_str(), type.get(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  AttributeWriter attribute(dataset.get());
  attribute("dtype", std::string(name_of(t.dtype)));
  attribute.list("shape", t.shape);
  const int64_t row_bytes = columns_of(t.shape) * static_cast<int64_t>(size_of(t.dtype));
  const int64_t step = std::max<int64_t>(1, kCopyTileBytes / row_bytes);
  for (int64_t row = 0; row < t.shape[0]; row += step) {
    const int64_t rows = std::min(step, t.shape[0] - row);
    buffer.resize(static_cast<size_t>(rows * row_bytes));
    const Tensor values(buffer.data(), t.dtype, {rows * columns_of(t.shape)});
    reader.read_rows(t, row, row + rows, values);
    std::vector<hsize_t> start(dims.size(), 0);
    start[0] = static_cast<hsize_t>(row);
    std::vector<hsize_t> count = dims;
    count[0] = static_cast<hsize_t>(rows);
    TRIAX_H5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
    const auto numel = static_cast<hsize_t>(values.numel());
    const Hdf5Space memory(TRIAX_H5(H5Screate_simple(1, &numel, nullptr)));
    TRIAX_H5(H5Dwrite(dataset.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, values.data()));
  }
}

bool asked(const TensorInfo& t, const std::vector<std::string>& kinds) {
  return kinds.empty() || std::find(kinds.begin(), kinds.end(), t.kind) != kinds.end();
}

}  // namespace

void export_hdf5(CheckpointReader& reader, const std::string& path, const std::vector<std::string>& kinds) {
  if (std::filesystem::exists(path)) throw ConfigError(fmt::format("{}: exists already; name a new file", path));
  verify_share(reader.path(), 0, 1);  // a copy of damaged values would have checksums that fit
  Temporary temporary(fmt::format("{}.tmp.{}", path, ::getpid()));
  Hdf5File file = create_file(temporary.path);
  write_checkpoint_header(file.get(), reader.header());
  std::vector<std::byte> buffer;
  std::string kind;
  int64_t copied = 0;
  for (const TensorInfo& t : reader.tensors()) {
    if (!asked(t, kinds)) continue;
    if (t.kind != kind) {
      H5Gclose(TRIAX_H5(H5Gcreate2(file.get(), t.kind.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    }
    kind = t.kind;
    copy_tensor(reader, t, file.get(), buffer);
    ++copied;
  }
  if (copied == 0) {
    throw ConfigError(fmt::format("checkpoint {}: has no tensor of kind {}", reader.path(), fmt::join(kinds, ", ")));
  }
  TRIAX_H5(H5Fclose(file.release()));
  make_durable(temporary.path);
  if (std::rename(temporary.path.c_str(), path.c_str()) != 0) {
    throw RunTimeError(fmt::format("cannot rename {} to {}: {}", temporary.path, path, std::strerror(errno)));
  }
  temporary.path.clear();
}

namespace {

/// Elements [numel * shard / shards, numel * (shard + 1) / shards) of every tensor.
ShardSummary write_part(CheckpointReader& reader, const std::string& path, int shard, int shards) {
  std::vector<Piece> pieces;
  int64_t bytes = 0;
  for (const TensorInfo& t : reader.tensors()) {
    const int64_t numel = elements_of(t.shape);
    Piece piece{t.kind, t.name, {}, numel * shard / shards, numel * (shard + 1) / shards, {}};
    if (piece.begin == piece.end) continue;
    piece.spec.global_shape = t.shape;
    piece.spec.count = t.shape[0];
    piece.data = Tensor(nullptr, t.dtype, {piece.end - piece.begin});
    bytes += piece.bytes();
    pieces.push_back(std::move(piece));
  }
  ShardWriter writer(path, bytes);
  std::vector<std::byte> buffer;
  for (Piece& piece : pieces) {
    buffer.resize(static_cast<size_t>(piece.bytes()));
    piece.data = Tensor(buffer.data(), piece.data.dtype(), {piece.end - piece.begin});
    reader.read(piece);
    writer.write(piece);
  }
  return writer.commit();
}

}  // namespace

void reshard(CheckpointReader& reader, const std::string& directory, int shards) {
  const int64_t iteration = reader.header().weights.iteration;
  if (std::filesystem::exists(step_path(directory, iteration))) {
    throw ConfigError(fmt::format("{}: exists already; name another directory", step_path(directory, iteration)));
  }
  verify_share(reader.path(), 0, 1);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunTimeError(fmt::format("{}: cannot be made: {}", directory, error.message()));
  const DirectoryLock lock(directory);
  begin_step(directory, iteration);
  const std::string unfinished = unfinished_path(directory, iteration);
  try {
    std::vector<ShardSummary> summaries;
    for (int shard = 0; shard < shards; ++shard) {
      summaries.push_back(write_part(reader, unfinished + "/" + shard_name(shard), shard, shards));
    }
    write_index(unfinished, reader.header(), summaries);
    publish_step(directory, iteration);
  } catch (...) {
    std::filesystem::remove_all(unfinished, error);
    throw;
  }
}

}  // namespace triax::io
