#include "io/checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "io/checkpoint/checksum.h"
#include "io/checkpoint/convert.h"
#include "io/checkpoint/index.h"
#include "io/weights/attributes.h"

namespace triax::io {
namespace {

constexpr int64_t kCompareTileBytes = int64_t{64} << 20;
constexpr size_t kShownTensors = 8;

/// f(first row, last row) over tiles of about kCompareTileBytes.
template <class F>
void for_each_tile(const TensorInfo& t, F f) {
  const int64_t row_bytes = columns_of(t.shape) * static_cast<int64_t>(size_of(t.dtype));
  const int64_t step = std::max<int64_t>(1, kCompareTileBytes / row_bytes);
  for (int64_t row = 0; row < t.shape[0]; row += step) f(row, std::min(row + step, t.shape[0]));
}

std::string list_of(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == kShownTensors) return text + fmt::format(" and {} more", names.size() - kShownTensors);
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

/// "weight of a.b" of all parts of the index that lie in a shard.
std::set<std::string> tensors_in(CheckpointReader& reader, const std::string& shard) {
  std::set<std::string> names;
  for (const TensorInfo& t : reader.tensors()) {
    for (const auto& part : reader.parts(t)) {
      if (part.file == shard) names.insert(t.kind + " of " + t.name);
    }
  }
  return names;
}

/// Those of them whose values do not have the checksum that was written.
std::set<std::string> damaged_tensors(CheckpointReader& reader, const std::string& directory,
                                      const std::string& shard) {
  std::set<std::string> damaged;
  const Hdf5File file = open_file(directory + "/" + shard, shard);
  std::vector<std::byte> values;
  for (const TensorInfo& t : reader.tensors()) {
    for (const auto& part : reader.parts(t)) {
      if (part.file != shard) continue;
      const std::string name = t.kind + " of " + t.name;
      try {
        const Hdf5Dataset dataset(TRIAX_H5(H5Dopen2(file.get(), part.dataset.c_str(), H5P_DEFAULT)));
        const Hdf5Type type = hdf5_type(t.dtype);
        values.resize(static_cast<size_t>(part.box.numel()) * size_of(t.dtype));
        TRIAX_H5(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
        std::string stored;
        AttributeReader read(dataset.get(), shard);
        read("xxh3_64", stored);
        if (stored != checksum_text(checksum_of(values.data(), values.size()))) damaged.insert(name);
      } catch (const RunTimeError&) {
        damaged.insert(name);
      }
    }
  }
  return damaged;
}

std::string fault_of_file(const std::string& directory, const FileChecksumLine& line, CheckpointReader* reader) {
  const std::string path = directory + "/" + line.file;
  const auto hit = [&](const std::set<std::string>& names) {
    return names.empty() ? std::string() : ": it holds " + list_of(names);
  };
  const bool is_shard = reader != nullptr && line.file != kIndexFile;
  if (!std::filesystem::exists(path)) {
    return fmt::format("{} is missing{}", path, is_shard ? hit(tensors_in(*reader, line.file)) : "");
  }
  std::string found;
  try {
    found = checksums_of_file(path, {}, ReadFrom::Disk).whole;
  } catch (const RunTimeError& error) {
    return error.what();
  }
  if (found == line.checksum) return {};
  std::string text = fmt::format("{} is damaged (checksum {}, {} was written)", path, found, line.checksum);
  if (!is_shard) return text;
  try {
    const std::set<std::string> damaged = damaged_tensors(*reader, directory, line.file);
    if (damaged.empty()) return text + ": all values are as written, something beside them has changed";
    return text + ": values of " + list_of(damaged);
  } catch (const RunTimeError&) {
    return text + hit(tensors_in(*reader, line.file));
  }
}

/// Files of the checkpoint that the checksum file says nothing about: nothing could be found in them.
std::vector<std::string> unlisted_files(const std::string& path, const std::vector<FileChecksumLine>& lines,
                                        CheckpointReader* reader) {
  std::set<std::string> files{kIndexFile};
  if (reader != nullptr) {
    for (const TensorInfo& t : reader->tensors()) {
      for (const auto& part : reader->parts(t)) files.insert(part.file);
    }
  }
  for (const FileChecksumLine& line : lines) files.erase(line.file);
  std::vector<std::string> faults;
  for (const std::string& file : files) {
    faults.push_back(fmt::format("{}/{} is damaged: it has no checksum of {}", path, kChecksumFile, file));
  }
  return faults;
}

std::vector<std::string> faults_of(const std::string& path, int index, int count) {
  std::optional<CheckpointReader> reader;
  std::vector<std::string> faults;
  std::string unreadable;
  try {
    reader.emplace(path);
  } catch (const RunTimeError& error) {
    unreadable = error.what();
  }
  if (!std::filesystem::is_directory(path)) {
    if (!unreadable.empty()) return {unreadable};
    return {};
  }
  const std::vector<FileChecksumLine> lines = read_checksum_file(path);
  if (index == 0) faults = unlisted_files(path, lines, reader ? &*reader : nullptr);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (static_cast<int>(i) % count != index) continue;
    const std::string fault = fault_of_file(path, lines[i], reader ? &*reader : nullptr);
    if (!fault.empty()) faults.push_back(fault);
  }
  if (faults.empty() && !unreadable.empty()) faults.push_back(unreadable);
  return faults;
}

struct Tile {
  std::vector<std::byte> bytes;
  Tensor view;
  void read(CheckpointReader& reader, const TensorInfo& t, int64_t begin, int64_t end, DType dtype) {
    const int64_t numel = (end - begin) * columns_of(t.shape);
    bytes.resize(static_cast<size_t>(numel) * size_of(dtype));
    view = Tensor(bytes.data(), dtype, {numel});
    reader.read_rows(t, begin, end, view);
  }
};

TensorDifference compare_tensors(CheckpointReader& a, CheckpointReader& b, const TensorInfo& ta, const TensorInfo& tb,
                                 const Tolerance& tolerance) {
  TensorDifference d{ta.kind, ta.name, {}, 0, 0};
  const bool bitwise = ta.dtype == tb.dtype && tolerance.absolute == 0 && tolerance.relative == 0;
  Tile x, y;
  for_each_tile(ta, [&](int64_t begin, int64_t end) {
    if (bitwise) {
      x.read(a, ta, begin, end, ta.dtype);
      y.read(b, tb, begin, end, tb.dtype);
      if (x.bytes == y.bytes) return;
    }
    const Tile raw_x = bitwise ? x : Tile();
    const Tile raw_y = bitwise ? y : Tile();
    x.read(a, ta, begin, end, DType::Float64);
    y.read(b, tb, begin, end, DType::Float64);
    const size_t element = size_of(ta.dtype);
    for (size_t i = 0; i < static_cast<size_t>(x.view.numel()); ++i) {
      const double u = x.view.as<double>()[i];
      const double v = y.view.as<double>()[i];
      const double distance = std::abs(u - v);
      const bool same = bitwise ? std::memcmp(&raw_x.bytes[i * element], &raw_y.bytes[i * element], element) == 0
                                : distance <= tolerance.absolute + tolerance.relative * std::abs(v) ||
                                      (std::isnan(u) && std::isnan(v)) || u == v;
      if (!same) ++d.differing;
      if (distance > d.largest || (std::isnan(distance) && !same)) d.largest = distance;
    }
  });
  return d;
}

}  // namespace

std::vector<std::string> verify(const std::string& path) { return faults_of(path, 0, 1); }

void verify_share(const std::string& path, int index, int count) {
  const std::vector<std::string> faults = faults_of(path, index, count);
  if (!faults.empty()) throw RunTimeError(fmt::format("{}", fmt::join(faults, "\n")));
}

std::string content_hash(CheckpointReader& reader, const TensorInfo& t) {
  Checksum sum;
  Tile tile;
  for_each_tile(t, [&](int64_t begin, int64_t end) {
    tile.read(reader, t, begin, end, t.dtype);
    sum.add(tile.bytes.data(), tile.bytes.size());
  });
  return checksum_text(sum.value());
}

std::string content_hash(CheckpointReader& reader) {
  Checksum sum;
  for (const TensorInfo& t : reader.tensors()) {
    const std::string line = fmt::format("{}/{} {} [{}] {}\n", t.kind, t.name, name_of(t.dtype),
                                         fmt::join(t.shape, ", "), content_hash(reader, t));
    sum.add(line.data(), line.size());
  }
  return checksum_text(sum.value());
}

std::vector<TensorDifference> differences(CheckpointReader& a, CheckpointReader& b, const Tolerance& tolerance,
                                          const std::vector<std::string>& kinds) {
  const auto asked = [&](const TensorInfo& t) {
    return kinds.empty() || std::find(kinds.begin(), kinds.end(), t.kind) != kinds.end();
  };
  std::vector<TensorDifference> found;
  for (const TensorInfo& ta : a.tensors()) {
    if (!asked(ta)) continue;
    const TensorInfo* tb = b.find(ta.kind, ta.name);
    if (tb == nullptr) {
      found.push_back({ta.kind, ta.name, "only in a", 0, 0});
    } else if (tb->shape != ta.shape) {
      found.push_back({ta.kind, ta.name,
                       fmt::format("shape [{}] and [{}]", fmt::join(ta.shape, ", "), fmt::join(tb->shape, ", ")), 0,
                       0});
    } else {
      const TensorDifference d = compare_tensors(a, b, ta, *tb, tolerance);
      if (d.differing > 0) found.push_back(d);
    }
  }
  for (const TensorInfo& tb : b.tensors()) {
    if (asked(tb) && a.find(tb.kind, tb.name) == nullptr) found.push_back({tb.kind, tb.name, "only in b", 0, 0});
  }
  return found;
}

}  // namespace triax::io
