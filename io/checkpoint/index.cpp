#include "io/checkpoint/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "base/error.h"
#include "io/checkpoint/checksum.h"
#include "io/data/atomic_file.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

struct Source {
  const ShardSummary* shard;
  const StoredBox* stored;
};
using Sources = std::vector<Source>;

/// Boxes that lie inside the shape, and whose sizes sum to it, without two that overlap, cover it.
void check_cover(const Sources& sources) {
  const StoredBox& first = *sources[0].stored;
  const std::string name = first.kind + " of " + first.tensor;
  const int64_t rows = first.global_shape[0];
  const int64_t cols = columns_of(first.global_shape);
  int64_t covered = 0;
  for (const Source& source : sources) {
    const Box& box = source.stored->box;
    ensure(source.stored->global_shape == first.global_shape && source.stored->dtype == first.dtype,
           "write_index: shards disagree about shape or type of " + name);
    ensure(intersection(box, {0, 0, rows, cols}) == box, "write_index: a box lies outside of " + name);
    covered += box.numel();
  }
  ensure(covered == rows * cols,
         fmt::format("write_index: {} elements of {} are stored, {} are needed", covered, name, rows * cols));
  std::vector<Box> boxes;
  for (const Source& source : sources) boxes.push_back(source.stored->box);
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.row < b.row; });
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t k = i + 1; k < boxes.size() && boxes[k].row < boxes[i].row + boxes[i].rows; ++k) {
      ensure(intersection(boxes[i], boxes[k]).rows == 0, "write_index: two boxes of " + name + " overlap");
    }
  }
}

/// NaN in the file's type shows what no shard gives.
void fill_with_nan(hid_t creation, DType dtype) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const float narrow = std::numeric_limits<float>::quiet_NaN();
  const uint16_t half = dtype == DType::BFloat16 ? 0x7fc0 : 0x7e00;
  const Hdf5Type type = hdf5_type(dtype);
  const void* value = &half;
  if (dtype == DType::Float64) value = &nan;
  if (dtype == DType::Float32) value = &narrow;
  TRIAX_H5(H5Pset_fill_value(creation, type.get(), value));
}

void write_tensor(hid_t file, const std::string& path, const Sources& sources) {
  const StoredBox& first = *sources[0].stored;
  const size_t rank = first.global_shape.size();
  const auto ndims = static_cast<int>(rank);
  const std::vector<hsize_t> shape = to_dims(first.global_shape[0], columns_of(first.global_shape), rank);
  const Hdf5Space whole(TRIAX_H5(H5Screate_simple(ndims, shape.data(), nullptr)));
  const Hdf5Properties creation(TRIAX_H5(H5Pcreate(H5P_DATASET_CREATE)));
  TRIAX_H5(H5Pset_layout(creation.get(), H5D_VIRTUAL));
  fill_with_nan(creation.get(), first.dtype);
  for (const Source& source : sources) {
    const Box& box = source.stored->box;
    const std::vector<hsize_t> start = to_dims(box.row, box.col, rank);
    const std::vector<hsize_t> count = to_dims(box.rows, box.cols, rank);
    const Hdf5Space from(TRIAX_H5(H5Screate_simple(ndims, count.data(), nullptr)));
    TRIAX_H5(H5Sselect_hyperslab(whole.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
    TRIAX_H5(H5Pset_virtual(creation.get(), whole.get(), source.shard->file.c_str(), source.stored->dataset.c_str(),
                            from.get()));
  }
  TRIAX_H5(H5Sselect_all(whole.get()));
  const Hdf5Type type = hdf5_type(first.dtype);
  const Hdf5Dataset dataset(
      TRIAX_H5(H5Dcreate2(file, path.c_str(), type.get(), whole.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  AttributeWriter attribute(dataset.get());
  attribute("dtype", std::string(name_of(first.dtype)));
  attribute.list("shape", first.global_shape);
}

void make_group(hid_t file, const std::string& name) {
  H5Gclose(TRIAX_H5(H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
}

void write_shard_table(hid_t file, const std::vector<ShardSummary>& shards) {
  make_group(file, "/shards");
  for (const ShardSummary& shard : shards) {
    const hid_t group =
        TRIAX_H5(H5Gcreate2(file, ("/shards/" + shard.file).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    AttributeWriter attribute(group);
    attribute("size_bytes", shard.size_bytes);
    attribute("xxh128", shard.checksum);
    std::map<std::string, uint64_t> boxes;
    for (const StoredBox& box : shard.boxes) boxes[box.dataset] = box.checksum;
    attribute("boxes_xxh3", boxes_checksum(boxes));
    H5Gclose(group);
  }
}

}  // namespace

std::vector<hsize_t> to_dims(int64_t rows, int64_t cols, size_t rank) {
  if (rank == 1) return {static_cast<hsize_t>(rows)};
  return {static_cast<hsize_t>(rows), static_cast<hsize_t>(cols)};
}

std::string shard_name(int writer) { return fmt::format("shard_{:05}.h5", writer); }

void write_index(const std::string& directory, const CheckpointHeader& header, const std::vector<ShardSummary>& shards,
                 const SaveHook& hook) {
  std::map<std::pair<std::string, std::string>, Sources> tensors;
  for (const ShardSummary& shard : shards) {
    for (const StoredBox& box : shard.boxes) tensors[{box.kind, box.tensor}].push_back({&shard, &box});
  }
  const std::string path = directory + "/" + kIndexFile;
  Hdf5File file = create_file(path);
  write_checkpoint_header(file.get(), header);
  write_shard_table(file.get(), shards);
  std::string kind;
  size_t done = 0;
  for (const auto& [key, sources] : tensors) {
    check_cover(sources);
    if (key.first != kind) make_group(file.get(), "/" + key.first);
    kind = key.first;
    write_tensor(file.get(), fmt::format("/{}/{}", key.first, key.second), sources);
    if (++done == (tensors.size() + 1) / 2 && hook) hook(SavePoint::IndexHalf);
  }
  TRIAX_H5(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  TRIAX_H5(H5Fclose(file.release()));
  make_durable(path);
  std::string lines;
  for (const ShardSummary& shard : shards) lines += fmt::format("{}  {}\n", shard.checksum, shard.file);
  lines += fmt::format("{}  {}\n", checksums_of_file(path, {}, ReadFrom::System).whole, kIndexFile);
  AtomicFile sums(directory + "/" + kChecksumFile);
  sums.write(lines.data(), lines.size());
  sums.commit();
  make_durable(directory);
  if (hook) hook(SavePoint::IndexDone);
}

std::vector<FileChecksumLine> read_checksum_file(const std::string& directory) {
  const std::string path = directory + "/" + kChecksumFile;
  std::ifstream file(path);
  if (!file) throw RunTimeError(fmt::format("{} is missing: the checkpoint is not complete", path));
  std::vector<FileChecksumLine> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 35 || line[32] != ' ' || line[33] != ' ' || line.find('/') != std::string::npos) {
      throw RunTimeError(fmt::format("{}: damaged line {}: {}", path, lines.size() + 1, line));
    }
    lines.push_back({line.substr(0, 32), line.substr(34)});
  }
  return lines;
}

}  // namespace triax::io
