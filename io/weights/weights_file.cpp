#include "io/weights/weights_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "io/data/atomic_file.h"

namespace triax::io {
namespace {

constexpr int64_t kSlabReadBytes = int64_t{256} << 20;

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// Memory and file selection of a slab.
struct Selection {
  Hdf5Space memory, file;
};

Selection select(hid_t dataset, const Slab& slab, const std::vector<int64_t>& shape) {
  std::array<hsize_t, 2> start{static_cast<hsize_t>(slab.first), 0};
  std::array<hsize_t, 2> count{static_cast<hsize_t>(slab.last - slab.first),
                               shape.size() == 2 ? static_cast<hsize_t>(shape[1]) : 1};
  if (slab.cut_dim == 1) {
    start[1] = static_cast<hsize_t>(slab.begin);
    count[1] = static_cast<hsize_t>(slab.count);
  } else {
    start[0] += static_cast<hsize_t>(slab.begin);
  }
  const hsize_t numel = count[0] * count[1];
  Selection s;
  s.memory = Hdf5Space(TRIAX_H5(H5Screate_simple(1, &numel, nullptr)));
  s.file = Hdf5Space(TRIAX_H5(H5Dget_space(dataset)));
  TRIAX_H5(H5Sselect_hyperslab(s.file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
  return s;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

int64_t numel_of(const Slab& slab, const std::vector<int64_t>& global_shape) {
  const int64_t rows = slab.last - slab.first;
  if (global_shape.size() == 1) return rows;
  return rows * (slab.cut_dim == 1 ? slab.count : global_shape[1]);
}

std::vector<Slab> slabs_of(const parallel::ShardSpec& spec, DType dtype, int64_t limit_bytes) {
  Slab slab;
  if (spec.cut_dim < 0) {
    slab = {0, 0, spec.global_shape[0], 0, 0};
  } else {
    slab = {spec.cut_dim, spec.begin, spec.count, 0, 0};
  }
  if (slab.count == 0) return {};
  const int64_t rows = slab.cut_dim == 1 ? spec.global_shape[0] : slab.count;
  slab.last = 1;
  const int64_t row_bytes = numel_of(slab, spec.global_shape) * static_cast<int64_t>(size_of(dtype));
  const int64_t step = std::max<int64_t>(1, limit_bytes / row_bytes);
  std::vector<Slab> slabs;
  for (int64_t row = 0; row < rows; row += step) {
    slab.first = row;
    slab.last = std::min(row + step, rows);
    slabs.push_back(slab);
  }
  return slabs;
}

WeightsWriter::WeightsWriter(const std::string& path, const WeightsHeader& header)
    : path_(path),
      temporary_(fmt::format("{}.tmp.{}.{}", path, host_name(), ::getpid())),
      type_(hdf5_type(header.dtype)),
      dtype_(header.dtype) {
  quiet_hdf5();
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!directory.empty()) std::filesystem::create_directories(directory, error);
  if (error) throw RunTimeError(fmt::format("cannot create {}: {}", directory.string(), error.message()));
  errno = 0;
  file_ = Hdf5File(H5Fcreate(temporary_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  if (!file_) throw RunTimeError(fmt::format("cannot write {}: {}", temporary_, std::strerror(errno)));
  write_header(file_.get(), header);
}

WeightsWriter::~WeightsWriter() {
  if (temporary_.empty()) return;
  datasets_.clear();
  file_.reset();
  std::remove(temporary_.c_str());
}

void WeightsWriter::create(const std::string& name, const std::vector<int64_t>& shape) {
  std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Hdf5Space space(TRIAX_H5(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  // Every element will be written: no fill, space at once.
  const Hdf5Properties properties(TRIAX_H5(H5Pcreate(H5P_DATASET_CREATE)));
  TRIAX_H5(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER));
  Dataset dataset;
  dataset.id = Hdf5Dataset(TRIAX_H5(
      H5Dcreate2(file_.get(), name.c_str(), type_.get(), space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT)));
  dataset.shape = shape;
  dataset.missing = elements_of(shape);
  ensure(datasets_.emplace(name, std::move(dataset)).second, "WeightsWriter: tensor created twice: " + name);
}

void WeightsWriter::write(const std::string& name, const Slab& slab, Tensor values) {
  const auto found = datasets_.find(name);
  ensure(found != datasets_.end(), "WeightsWriter: tensor not created: " + name);
  Dataset& dataset = found->second;
  ensure(values.dtype() == dtype_ && values.contiguous() && values.numel() == numel_of(slab, dataset.shape),
         "WeightsWriter: values do not fit the slab of " + name);
  const Selection s = select(dataset.id.get(), slab, dataset.shape);
  TRIAX_H5(H5Dwrite(dataset.id.get(), type_.get(), s.memory.get(), s.file.get(), H5P_DEFAULT, values.data()));
  dataset.missing -= values.numel();
}

void WeightsWriter::commit() {
  for (const auto& [name, dataset] : datasets_) {
    ensure(dataset.missing == 0, fmt::format("WeightsWriter: {} lacks {} elements", name, dataset.missing));
  }
  datasets_.clear();
  TRIAX_H5(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
  TRIAX_H5(H5Fclose(file_.release()));
  make_durable(temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw RunTimeError(fmt::format("cannot rename {} to {}: {}", temporary_, path_, std::strerror(errno)));
  }
  temporary_.clear();
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  make_durable(directory.empty() ? "." : directory);
}

WeightsReader::WeightsReader(const std::string& path) : path_(path) {
  quiet_hdf5();
  if (!std::filesystem::exists(path)) throw RunTimeError(fmt::format("--load: there is no weights file {}", path));
  file_ = Hdf5File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  if (!file_) {
    throw RunTimeError(
        fmt::format("--load: HDF5 cannot open {}: it is damaged or no HDF5 file, may not be read, or another process "
                    "holds a lock on it (then wait for that one, or on a file system without locks set "
                    "HDF5_USE_FILE_LOCKING=FALSE)",
                    path));
  }
  header_ = read_header(file_.get(), path);
}

void WeightsReader::read(const parallel::Parameter& p, Tensor out) const {
  if (TRIAX_H5(H5Lexists(file_.get(), p.name.c_str(), H5P_DEFAULT)) <= 0) {
    throw RunTimeError(fmt::format("{}: tensor {} is missing", path_, p.name));
  }
  const Hdf5Dataset dataset(TRIAX_H5(H5Dopen2(file_.get(), p.name.c_str(), H5P_DEFAULT)));
  const Hdf5Space space(TRIAX_H5(H5Dget_space(dataset.get())));
  std::vector<hsize_t> dims(static_cast<size_t>(TRIAX_H5(H5Sget_simple_extent_ndims(space.get()))));
  TRIAX_H5(H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr));
  const std::vector<int64_t> shape(dims.begin(), dims.end());
  if (shape != p.spec.global_shape) {
    throw RunTimeError(fmt::format("{}: tensor {} has shape {}, the model wants {}", path_, p.name, shape_text(shape),
                                   shape_text(p.spec.global_shape)));
  }
  const Hdf5Type stored(TRIAX_H5(H5Dget_type(dataset.get())));
  const DType stored_dtype = dtype_of(stored.get(), path_ + ": tensor " + p.name);
  ensure(out.numel() == p.true_numel(), "WeightsReader: out must have the true elements of " + p.name);
  ensure(out.dtype() == stored_dtype || size_of(out.dtype()) >= 4, "WeightsReader: would round " + p.name);
  const Hdf5Type memory = hdf5_type(out.dtype());
  int64_t done = 0;
  for (const Slab& slab : slabs_of(p.spec, out.dtype(), kSlabReadBytes)) {
    const int64_t numel = numel_of(slab, shape);
    const Selection s = select(dataset.get(), slab, shape);
    TRIAX_H5(H5Dread(dataset.get(), memory.get(), s.memory.get(), s.file.get(), H5P_DEFAULT,
                     out.range(done, done + numel).data()));
    done += numel;
  }
}

}  // namespace triax::io
