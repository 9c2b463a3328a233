#include "io/safetensors/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace triax::io {
namespace {

nlohmann::json read_index_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw RunTimeError(fmt::format("{}: cannot be read", path));
  try {
    return nlohmann::json::parse(text.view());
  } catch (const nlohmann::json::exception& error) {
    throw RunTimeError(fmt::format("{}: not JSON ({})", path, error.what()));
  }
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors_header({file_.data(), file_.size()}, path)) {}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return {file_.data() + header_.data_begin + entry.begin, static_cast<size_t>(entry.end - entry.begin)};
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& path) : path_(path) {
  namespace fs = std::filesystem;
  const fs::path directory(path);
  const bool single = fs::exists(directory / kSafetensorsFile);
  const bool indexed = fs::exists(directory / kSafetensorsIndex);
  if (single && indexed) {
    throw RunTimeError(fmt::format("{}: both {} and {} are there: remove the one that is out of date", path,
                                   kSafetensorsFile, kSafetensorsIndex));
  }
  if (fs::is_regular_file(directory)) {
    add(path);
  } else if (single) {
    add((directory / kSafetensorsFile).string());
  } else if (indexed) {
    read_index((directory / kSafetensorsIndex).string());
  } else {
    fail_empty(path);
  }
}

void SafetensorsDirectory::fail_empty(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path directory(path);
  const bool pickled =
      fs::exists(directory / "pytorch_model.bin") || fs::exists(directory / "pytorch_model.bin.index.json");
  throw RunTimeError(fmt::format("{}: holds neither {} nor {}{}", path, kSafetensorsFile, kSafetensorsIndex,
                                 pickled ? "; pytorch_model.bin is not read: save the model with "
                                           "safe_serialization=True"
                                         : ""));
}

void SafetensorsDirectory::add(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const SafetensorsEntry& entry : files_.back()->header().entries) {
    if (!items_.emplace(entry.name, Item{&entry, files_.back().get()}).second) {
      throw RunTimeError(fmt::format("{}: tensor '{}' is in another file, too", path, entry.name));
    }
  }
}

void SafetensorsDirectory::read_index(const std::string& path) {
  const nlohmann::json index = read_index_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw RunTimeError(fmt::format("{}: has no object weight_map", path));
  }
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::map<std::string, std::string> file_of;
  std::vector<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      throw RunTimeError(
          fmt::format("{}: tensor '{}' has {}, not the name of a file beside it", path, name, file.dump()));
    }
    file_of[name] = file.get<std::string>();
    files.push_back(file_of[name]);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string& file : files) {
    const std::string whole = (directory / file).string();
    if (!std::filesystem::exists(whole)) {
      throw RunTimeError(fmt::format("{}: names {}, which is missing", path, file));
    }
    add(whole);
  }
  for (const auto& [name, file] : file_of) {
    const Item item = find(name);
    if (item.entry == nullptr || std::filesystem::path(item.file->path()).filename() != file) {
      throw RunTimeError(fmt::format("{}: tensor '{}' is not in {}", path, name, file));
    }
  }
  for (const auto& [name, item] : items_) {
    if (file_of.contains(name)) continue;
    throw RunTimeError(fmt::format("{}: tensor '{}' is not in the index", item.file->path(), name));
  }
}

SafetensorsDirectory::Item SafetensorsDirectory::find(const std::string& name) const {
  const auto found = items_.find(name);
  return found == items_.end() ? Item{} : found->second;
}

SafetensorsWriter::SafetensorsWriter(const std::string& directory, SafetensorsPlan plan, int64_t most_file_bytes)
    : directory_(directory) {
  ensure(most_file_bytes > 0 && !plan.tensors.empty(), "SafetensorsWriter: nothing to write, or no room");
  for (SafetensorsEntry& tensor : plan.tensors) {
    const std::optional<DType> dtype = dtype_of_safetensors(tensor.type);
    ensure(dtype.has_value(), "SafetensorsWriter: type " + tensor.type);
    const int64_t bytes = tensor.numel() * static_cast<int64_t>(size_of(*dtype));
    if (files_.empty() || files_.back().bytes + bytes > most_file_bytes) {
      files_.emplace_back();
      files_.back().header.metadata = plan.metadata;
    }
    File& file = files_.back();
    tensor.begin = file.bytes;
    tensor.end = file.bytes += bytes;
    total_ += bytes;
    file.header.entries.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    names_.push_back(files_.size() == 1 ? kSafetensorsFile
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_.size()));
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunTimeError(fmt::format("cannot create {}: {}", directory, error.message()));
}

void SafetensorsWriter::open_next() {
  ensure(next_ < files_.size(), "SafetensorsWriter: more bytes than planned");
  const std::string path = (std::filesystem::path(directory_) / names_[next_]).string();
  file_ = std::make_unique<AtomicFile>(path);
  const std::string header = safetensors_header_bytes(files_[next_].header);
  file_->write(header.data(), header.size());
  left_ = files_[next_].bytes;
  ++next_;
}

void SafetensorsWriter::close() {
  ensure(left_ == 0, "SafetensorsWriter: bytes are missing");
  file_->commit();
  file_.reset();
}

void SafetensorsWriter::write(const void* data, size_t size_bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (size_bytes > 0) {
    if (file_ != nullptr && left_ == 0) close();
    if (file_ == nullptr) open_next();
    const size_t now = std::min(size_bytes, static_cast<size_t>(left_));
    file_->write(from, now);
    from += now;
    size_bytes -= now;
    left_ -= static_cast<int64_t>(now);
  }
}

void SafetensorsWriter::commit() {
  if (file_ != nullptr) close();
  ensure(next_ == files_.size(), "SafetensorsWriter: tensors are missing");
  if (files_.size() > 1) write_index();
}

void SafetensorsWriter::write_index() {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total_;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const SafetensorsEntry& entry : files_[i].header.entries) index["weight_map"][entry.name] = names_[i];
  }
  const std::string text = index.dump(2) + "\n";
  AtomicFile file((std::filesystem::path(directory_) / kSafetensorsIndex).string());
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace triax::io
