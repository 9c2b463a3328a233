#include "io/checkpoint/shard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "io/checkpoint/checksum.h"
#include "io/data/atomic_file.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

constexpr int64_t kWriteTransferBytes = int64_t{256} << 20;

/// Blocks on the disk for what will be written, inside the file's size: a file that grows is written slowly.
/// A file system that cannot reserve is taken as it is.
void reserve(const std::string& path, int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) throw RunTimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  const int result = ::fallocate(descriptor, 0, 0, bytes);
  const int error = result == 0 ? 0 : errno;
  ::close(descriptor);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw RunTimeError(fmt::format("cannot write {}: {} bytes are needed: {}", path, bytes, std::strerror(error)));
  }
}

/// What was reserved behind the end of the file.
void give_back_rest(const std::string& path, hsize_t size) {
  if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) {
    throw RunTimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
}

std::vector<hsize_t> dimensions(const Box& box, size_t rank) {
  if (rank == 1) return {static_cast<hsize_t>(box.rows)};
  return {static_cast<hsize_t>(box.rows), static_cast<hsize_t>(box.cols)};
}

}  // namespace

std::string to_json(const ShardSummary& summary) {
  nlohmann::json boxes = nlohmann::json::array();
  for (const StoredBox& b : summary.boxes) {
    boxes.push_back({b.kind, b.tensor, static_cast<int>(b.dtype), b.global_shape, b.box.row, b.box.col, b.box.rows,
                     b.box.cols, b.dataset, b.checksum});
  }
  return nlohmann::json{
      {"file", summary.file}, {"size", summary.size_bytes}, {"checksum", summary.checksum}, {"boxes", boxes}}
      .dump();
}

ShardSummary shard_from_json(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  ShardSummary summary{json["file"], json["size"], json["checksum"], {}};
  for (const auto& b : json["boxes"]) {
    summary.boxes.push_back(
        {b[0], b[1], static_cast<DType>(b[2].get<int>()), b[3], {b[4], b[5], b[6], b[7]}, b[8], b[9]});
  }
  return summary;
}

int64_t shard_file_bytes(int64_t value_bytes) {
  constexpr int64_t kMost = int64_t{1} << 20;
  constexpr int64_t kLeast = int64_t{64} << 10;
  return value_bytes + std::min(kMost, kLeast + value_bytes / 8);
}

ShardWriter::ShardWriter(std::string path, int64_t bytes, SaveHook hook)
    : path_(std::move(path)), bytes_(bytes), hook_(std::move(hook)), file_(create_file(path_)), raw_(path_) {
  try {
    reserve(path_, shard_file_bytes(bytes));
  } catch (...) {
    file_.reset();
    ::unlink(path_.c_str());
    throw;
  }
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::progress(int64_t bytes) {
  const int64_t before = written_;
  written_ += bytes;
  if (!hook_) return;
  if (before == 0) hook_(SavePoint::FirstByte);
  if (before * 2 < bytes_ && written_ * 2 >= bytes_) hook_(SavePoint::HalfWritten);
}

void ShardWriter::write(const Piece& piece) {
  ensure(piece.data.numel() == piece.end - piece.begin && piece.data.contiguous(),
         "ShardWriter: values do not fit the piece of " + piece.tensor);
  for (const PlacedBox& placed : boxes_of(piece.spec, piece.begin, piece.end)) write_box(piece, placed);
}

void ShardWriter::write_box(const Piece& piece, const PlacedBox& placed) {
  const Box& box = placed.box;
  if (groups_.emplace(piece.kind, 1).second) {
    H5Gclose(TRIAX_H5(H5Gcreate2(file_.get(), piece.kind.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  }
  StoredBox stored{piece.kind, piece.tensor, piece.data.dtype(), piece.spec.global_shape, box, {}, 0};
  stored.dataset = fmt::format("/{}/{}", piece.kind, piece.tensor);
  if (TRIAX_H5(H5Lexists(file_.get(), stored.dataset.c_str(), H5P_DEFAULT)) > 0) {
    stored.dataset += fmt::format("@{},{}", box.row, box.col);
  }
  const size_t rank = piece.spec.global_shape.size();
  const std::vector<hsize_t> dims = dimensions(box, rank);
  const Hdf5Type type = hdf5_type(piece.data.dtype());
  const Hdf5Space space(TRIAX_H5(H5Screate_simple(static_cast<int>(rank), dims.data(), nullptr)));
  const Hdf5Properties creation(TRIAX_H5(H5Pcreate(H5P_DATASET_CREATE)));
  TRIAX_H5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  TRIAX_H5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
  const Hdf5Dataset dataset(TRIAX_H5(H5Dcreate2(file_.get(), stored.dataset.c_str(), type.get(), space.get(),
                                                H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  const Tensor values = piece.data.range(placed.offset, placed.offset + box.numel());
  const haddr_t address = H5Dget_offset(dataset.get());
  ensure(address != HADDR_UNDEF, "ShardWriter: a dataset has no place in the file");
  stored.checksum = write_values(stored, values, static_cast<int64_t>(address));
  AttributeWriter attribute(dataset.get());
  attribute.list("global_shape", piece.spec.global_shape);
  attribute.list("begin", rank == 1 ? std::vector<int64_t>{box.row} : std::vector<int64_t>{box.row, box.col});
  attribute("xxh3_64", checksum_text(stored.checksum));
  offsets_.push_back(static_cast<int64_t>(address));
  boxes_.push_back(std::move(stored));
}

uint64_t ShardWriter::write_values(const StoredBox& stored, Tensor values, int64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(values.data());
  Checksum checksum;
  for (int64_t at = 0; at < values.bytes(); at += kWriteTransferBytes) {
    const int64_t part = std::min(kWriteTransferBytes, values.bytes() - at);
    try {
      raw_.write(offset + at, bytes + at, part, checksum);
    } catch (const RunTimeError& error) {
      throw RunTimeError(fmt::format("{} ({} of {})", error.what(), stored.kind, stored.tensor));
    }
    progress(part);
  }
  return checksum.value();
}

ShardSummary ShardWriter::commit() {
  const auto reached = [this](SavePoint point) {
    if (hook_) hook_(point);
  };
  TRIAX_H5(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
  reached(SavePoint::Written);
  hsize_t size = 0;
  TRIAX_H5(H5Fget_filesize(file_.get(), &size));
  TRIAX_H5(H5Fclose(file_.release()));
  give_back_rest(path_, size);
  reached(SavePoint::Closed);
  make_durable(path_);
  reached(SavePoint::Durable);

  std::vector<size_t> order(boxes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
  std::vector<FileRange> ranges;
  for (const size_t i : order) {
    ranges.push_back({offsets_[i], boxes_[i].box.numel() * static_cast<int64_t>(size_of(boxes_[i].dtype))});
  }
  const FileChecksums sums = checksums_of_file(path_, ranges, ReadFrom::System);
  for (size_t k = 0; k < order.size(); ++k) {
    const StoredBox& box = boxes_[order[k]];
    if (sums.ranges[k] != box.checksum) {
      throw RunTimeError(
          fmt::format("{}: {} of {} does not read back as it was written: memory or the file system is faulty", path_,
                      box.kind, box.tensor));
    }
  }
  reached(SavePoint::Verified);
  return {path_.substr(path_.rfind('/') + 1), sums.size_bytes, sums.whole, std::move(boxes_)};
}

std::string boxes_checksum(std::map<std::string, uint64_t> checksum_of_dataset) {
  Checksum sum;
  for (const auto& [dataset, checksum] : checksum_of_dataset) {
    const std::string line = dataset + " " + checksum_text(checksum) + "\n";
    sum.add(line.data(), line.size());
  }
  return checksum_text(sum.value());
}

}  // namespace triax::io
