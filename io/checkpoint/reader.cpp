#include "io/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "io/checkpoint/checksum.h"
#include "io/checkpoint/convert.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/shard.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

constexpr int64_t kReadTransferBytes = int64_t{64} << 20;

herr_t keep_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::vector<std::string> members(hid_t group) {
  std::vector<std::string> names;
  hsize_t index = 0;
  TRIAX_H5(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &index, keep_name, &names));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_group(hid_t file, const std::string& name) {
  const hid_t object = TRIAX_H5(H5Oopen(file, name.c_str(), H5P_DEFAULT));
  const bool group = H5Iget_type(object) == H5I_GROUP;
  H5Oclose(object);
  return group;
}

std::vector<int64_t> shape_of(hid_t dataset) {
  const Hdf5Space space(TRIAX_H5(H5Dget_space(dataset)));
  std::vector<hsize_t> dims(static_cast<size_t>(TRIAX_H5(H5Sget_simple_extent_ndims(space.get()))));
  TRIAX_H5(H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr));
  return {dims.begin(), dims.end()};
}

std::string virtual_text(ssize_t (*get)(hid_t, size_t, char*, size_t), hid_t creation, size_t index) {
  const auto size = static_cast<size_t>(TRIAX_H5(static_cast<int64_t>(get(creation, index, nullptr, 0))));
  std::string text(size, '\0');
  get(creation, index, text.data(), size + 1);
  return text;
}

}  // namespace

struct CheckpointReader::Impl {
  using Part = CheckpointReader::Part;

  std::string path, directory;
  Hdf5File index;
  CheckpointHeader header;
  std::vector<TensorInfo> tensors;
  bool flat = false;  ///< an earlier weights file: tensors lie in the root group
  std::map<std::string, Hdf5File> files;
  std::map<std::pair<std::string, std::string>, std::vector<Part>> parts;
  int64_t bytes_read = 0;
  std::vector<std::byte> buffer;

  std::string dataset_name(const TensorInfo& t) const { return flat ? "/" + t.name : "/" + t.kind + "/" + t.name; }

  void list_tensors() {
    for (const std::string& name : members(index.get())) {
      if (name == "shards") continue;
      if (!is_group(index.get(), name)) {
        flat = true;
        add(kWeight, name, "/" + name);
        continue;
      }
      const hid_t group = TRIAX_H5(H5Gopen2(index.get(), name.c_str(), H5P_DEFAULT));
      const std::vector<std::string> names = members(group);
      H5Gclose(group);
      for (const std::string& tensor : names) add(name, tensor, "/" + name + "/" + tensor);
    }
  }

  void add(const std::string& kind, const std::string& name, const std::string& dataset_path) {
    const Hdf5Dataset dataset(TRIAX_H5(H5Dopen2(index.get(), dataset_path.c_str(), H5P_DEFAULT)));
    const Hdf5Type type(TRIAX_H5(H5Dget_type(dataset.get())));
    tensors.push_back({kind, name, dtype_of(type.get(), path + ": " + dataset_path), shape_of(dataset.get())});
  }

  const std::vector<Part>& parts_of(const TensorInfo& t) {
    const auto [entry, fresh] = parts.try_emplace({t.kind, t.name});
    if (!fresh) return entry->second;
    const Hdf5Dataset dataset(TRIAX_H5(H5Dopen2(index.get(), dataset_name(t).c_str(), H5P_DEFAULT)));
    const Hdf5Properties creation(TRIAX_H5(H5Dget_create_plist(dataset.get())));
    if (TRIAX_H5(H5Pget_layout(creation.get())) != H5D_VIRTUAL) {
      entry->second.push_back({"", dataset_name(t), {0, 0, t.shape[0], columns_of(t.shape)}});
      return entry->second;
    }
    size_t count = 0;
    TRIAX_H5(H5Pget_virtual_count(creation.get(), &count));
    for (size_t i = 0; i < count; ++i) {
      const Hdf5Space space(TRIAX_H5(H5Pget_virtual_vspace(creation.get(), i)));
      std::array<hsize_t, 2> first{0, 0}, last{0, 0};
      TRIAX_H5(H5Sget_select_bounds(space.get(), first.data(), last.data()));
      Box box{static_cast<int64_t>(first[0]), 0, static_cast<int64_t>(last[0] - first[0] + 1), 1};
      if (t.shape.size() == 2) {
        box.col = static_cast<int64_t>(first[1]);
        box.cols = static_cast<int64_t>(last[1] - first[1] + 1);
      }
      entry->second.push_back({virtual_text(H5Pget_virtual_filename, creation.get(), i),
                               virtual_text(H5Pget_virtual_dsetname, creation.get(), i), box});
    }
    return entry->second;
  }

  std::string where(const TensorInfo& t) const { return fmt::format("{}: {} of {}", path, t.kind, t.name); }

  /// The shard holds what this index was written for (an index of an earlier format does not say).
  void check_boxes(hid_t file, const TensorInfo& t, const std::string& name) {
    const std::string entry = "/shards/" + name;
    if (H5Lexists(index.get(), "/shards", H5P_DEFAULT) <= 0 ||
        H5Lexists(index.get(), entry.c_str(), H5P_DEFAULT) <= 0 ||
        H5Aexists_by_name(index.get(), entry.c_str(), "boxes_xxh3", H5P_DEFAULT) <= 0) {
      return;
    }
    const hid_t group = TRIAX_H5(H5Gopen2(index.get(), entry.c_str(), H5P_DEFAULT));
    std::string expected;
    AttributeReader(group, path)("boxes_xxh3", expected);
    H5Gclose(group);
    std::map<std::string, uint64_t> found;
    for (const std::string& kind : members(file)) {
      const hid_t tensors_of_kind = TRIAX_H5(H5Gopen2(file, kind.c_str(), H5P_DEFAULT));
      for (const std::string& tensor : members(tensors_of_kind)) {
        const std::string dataset = "/" + kind + "/" + tensor;
        const Hdf5Dataset open(TRIAX_H5(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT)));
        std::string checksum;
        AttributeReader(open.get(), directory + "/" + name)("xxh3_64", checksum);
        found[dataset] = std::strtoull(checksum.c_str(), nullptr, 16);
      }
      H5Gclose(tensors_of_kind);
    }
    if (boxes_checksum(found) == expected) return;
    throw RunTimeError(fmt::format(
        "{}: {}/{} is a shard of another save: its tensors are not those that the index lists; put the shard of this "
        "save back, or load another step",
        where(t), directory, name));
  }

  hid_t open_part(const TensorInfo& t, const Part& part) {
    if (part.file.empty()) return index.get();
    const auto found = files.find(part.file);
    if (found != files.end()) return found->second.get();
    Hdf5File file = open_file(directory + "/" + part.file, where(t));
    check_boxes(file.get(), t, part.file);
    return files.emplace(part.file, std::move(file)).first->second.get();
  }

  /// Bytes of `count` rows from a dataset, as stored.
  void transfer(hid_t dataset, const TensorInfo& t, const Box& from, void* out) {
    const size_t rank = t.shape.size();
    const std::vector<hsize_t> start = to_dims(from.row, from.col, rank);
    const std::vector<hsize_t> count = to_dims(from.rows, from.cols, rank);
    const Hdf5Space file(TRIAX_H5(H5Dget_space(dataset)));
    TRIAX_H5(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
    const auto numel = static_cast<hsize_t>(from.numel());
    const Hdf5Space memory(TRIAX_H5(H5Screate_simple(1, &numel, nullptr)));
    const Hdf5Type type = hdf5_type(t.dtype);
    if (H5Dread(dataset, type.get(), memory.get(), file.get(), H5P_DEFAULT, out) < 0) {
      throw RunTimeError(fmt::format("{}: cannot be read: the file is cut short or damaged", where(t)));
    }
    bytes_read += from.numel() * static_cast<int64_t>(size_of(t.dtype));
  }

  /// The elements of `wanted` that `part` holds go to their places in `out` (the buffer of wanted.offset).
  int64_t read_part(const TensorInfo& t, const Part& part, const PlacedBox& wanted, Tensor out) {
    const Box shared = intersection(part.box, wanted.box);
    if (shared.rows == 0) return 0;
    const hid_t file = open_part(t, part);
    if (H5Lexists(file, part.dataset.c_str(), H5P_DEFAULT) <= 0) {
      throw RunTimeError(fmt::format("{}: {} has no dataset {}", where(t), part.file, part.dataset));
    }
    const Hdf5Dataset dataset(TRIAX_H5(H5Dopen2(file, part.dataset.c_str(), H5P_DEFAULT)));
    const bool whole = shared == part.box && !part.file.empty();
    Checksum checksum;
    const auto element = static_cast<int64_t>(size_of(t.dtype));
    const int64_t step = std::max<int64_t>(1, kReadTransferBytes / (shared.cols * element));
    const bool direct = out.dtype() == t.dtype && shared.cols == wanted.box.cols;
    for (int64_t row = 0; row < shared.rows; row += step) {
      const int64_t rows = std::min(step, shared.rows - row);
      const Box from{shared.row - part.box.row + row, shared.col - part.box.col, rows, shared.cols};
      const int64_t first =
          wanted.offset + (shared.row + row - wanted.box.row) * wanted.box.cols + shared.col - wanted.box.col;
      if (direct) {
        const Tensor to = out.range(first, first + rows * shared.cols);
        transfer(dataset.get(), t, from, to.data());
        if (whole) checksum.add(to.data(), static_cast<size_t>(to.bytes()));
        continue;
      }
      buffer.resize(static_cast<size_t>(from.numel() * element));
      transfer(dataset.get(), t, from, buffer.data());
      if (whole) checksum.add(buffer.data(), buffer.size());
      const Tensor stored(buffer.data(), t.dtype, {from.numel()});
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t to = first + r * wanted.box.cols;
        convert(stored.range(r * shared.cols, (r + 1) * shared.cols), out.range(to, to + shared.cols));
      }
    }
    if (whole) compare_checksum(dataset.get(), t, part, checksum.value());
    return shared.numel();
  }

  void compare_checksum(hid_t dataset, const TensorInfo& t, const Part& part, uint64_t value) const {
    std::string stored;
    AttributeReader read(dataset, directory + "/" + part.file);
    read("xxh3_64", stored);
    if (stored != checksum_text(value)) {
      throw RunTimeError(fmt::format("{}: {}/{} is damaged: checksum {}, {} was written", where(t), directory,
                                     part.file, checksum_text(value), stored));
    }
  }
};

CheckpointReader::CheckpointReader(const std::string& path) : impl_(std::make_unique<Impl>()) {
  const bool directory = std::filesystem::is_directory(path);
  impl_->path = path;
  impl_->directory = directory ? path : std::filesystem::path(path).parent_path().string();
  impl_->index = open_file(directory ? path + "/" + kIndexFile : path, "checkpoint " + path);
  impl_->header = read_checkpoint_header(impl_->index.get(), path);
  impl_->list_tensors();
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const CheckpointHeader& CheckpointReader::header() const { return impl_->header; }
const std::string& CheckpointReader::path() const { return impl_->path; }
const std::vector<TensorInfo>& CheckpointReader::tensors() const { return impl_->tensors; }
int64_t CheckpointReader::bytes_read() const { return impl_->bytes_read; }
const std::vector<CheckpointReader::Part>& CheckpointReader::parts(const TensorInfo& t) { return impl_->parts_of(t); }

bool CheckpointReader::has_kind(const std::string& kind) const {
  return std::any_of(impl_->tensors.begin(), impl_->tensors.end(), [&](const auto& t) { return t.kind == kind; });
}

const TensorInfo* CheckpointReader::find(const std::string& kind, const std::string& tensor) const {
  const auto found =
      std::lower_bound(impl_->tensors.begin(), impl_->tensors.end(), std::pair(kind, tensor),
                       [](const TensorInfo& t, const auto& key) { return std::pair(t.kind, t.name) < key; });
  if (found == impl_->tensors.end() || found->kind != kind || found->name != tensor) return nullptr;
  return &*found;
}

void CheckpointReader::read(const Piece& piece) {
  const TensorInfo* t = find(piece.kind, piece.tensor);
  if (t == nullptr) {
    throw RunTimeError(fmt::format("checkpoint {}: {} of tensor {} is missing", path(), piece.kind, piece.tensor));
  }
  if (t->shape != piece.spec.global_shape) {
    throw RunTimeError(fmt::format("checkpoint {}: tensor {} has shape [{}], the model wants [{}]", path(),
                                   piece.tensor, fmt::join(t->shape, ", "), fmt::join(piece.spec.global_shape, ", ")));
  }
  ensure(piece.data.numel() == piece.end - piece.begin, "CheckpointReader: data does not fit the piece");
  int64_t found = 0;
  for (const PlacedBox& wanted : boxes_of(piece.spec, piece.begin, piece.end)) {
    for (const Part& part : impl_->parts_of(*t)) found += impl_->read_part(*t, part, wanted, piece.data);
  }
  if (found != piece.data.numel()) {
    throw RunTimeError(fmt::format("checkpoint {}: {} of tensor {}: {} of {} elements are in no shard", path(),
                                   piece.kind, piece.tensor, piece.data.numel() - found, piece.data.numel()));
  }
}

void CheckpointReader::read_rows(const TensorInfo& t, int64_t begin, int64_t end, Tensor out) {
  const int64_t cols = columns_of(t.shape);
  parallel::ShardSpec spec;
  spec.global_shape = t.shape;
  spec.count = t.shape[0];
  read({t.kind, t.name, spec, begin * cols, end * cols, out});
}

void CheckpointReader::read_whole(const TensorInfo& t, Tensor out) { read_rows(t, 0, t.shape[0], out); }

}  // namespace triax::io
