#include "io/hugging_face/transfer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "io/checkpoint/convert.h"
#include "io/hugging_face/transpose.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;

/// Values of one tensor; keeps its memory for the next.
class Values {
 public:
  std::span<std::byte> resize(int64_t numel, DType dtype) {
    bytes_.resize(static_cast<size_t>(numel) * size_of(dtype));
    return bytes_;
  }
  std::byte* data() { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw RunTimeError(fmt::format("{}: cannot be read", path.string()));
  return std::move(text).str();
}

/// Parts one after the other, in the source's type, then in the wanted type and order.
void export_tensor(const TensorSource& source, const HubTensor& tensor, DType dtype, Values& ours, Values& theirs,
                   SafetensorsWriter& writer) {
  const std::vector<int64_t> shape = tensor.our_shape();
  const int64_t numel = elements_of(shape);
  const std::span<std::byte> read = ours.resize(numel, source.dtype());
  int64_t done = 0;
  for (const TensorPart& part : tensor.parts) {
    const int64_t count = elements_of(part.shape);
    const auto at = static_cast<size_t>(done) * size_of(source.dtype());
    source.read(part.name, part.shape, Tensor(read.data() + at, source.dtype(), {count}));
    done += count;
  }
  std::span<std::byte> result = theirs.resize(numel, dtype);
  convert(Tensor(read.data(), source.dtype(), {numel}), Tensor(result.data(), dtype, {numel}));
  if (tensor.storage == Storage::Transposed) {
    const std::span<std::byte> turned = ours.resize(numel, dtype);
    transpose_elements(result, shape[0], shape[1], size_of(dtype), turned);
    result = turned;
  }
  writer.write(result.data(), result.size());
}

/// What older versions of transformers stored beside the weights.
bool is_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

void refuse_other_weights(const std::string& directory) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") && name != kSafetensorsIndex) continue;
    throw ConfigError(
        fmt::format("{}: already holds weights ({}); name another directory, or empty this one", directory, name));
  }
}

void export_hub(const TensorSource& source, const model::ModelConfig& config, const std::string& directory,
                const HubExport& options) {
  const HubFamily family = hub_family(config);
  refuse_other_weights(directory);
  const std::vector<HubTensor> tensors = hub_tensors(config, family);
  SafetensorsPlan plan;
  plan.metadata["format"] = "pt";
  for (const HubTensor& tensor : tensors) {
    plan.tensors.push_back({tensor.name, safetensors_type(options.dtype), tensor.stored_shape()});
  }
  SafetensorsWriter writer(directory, std::move(plan), options.most_file_bytes);
  Values ours, theirs;
  for (const HubTensor& tensor : tensors) export_tensor(source, tensor, options.dtype, ours, theirs, writer);
  const std::string text = hub_config_text(config, options.dtype, options.tokens);
  AtomicFile file((fs::path(directory) / "config.json").string());
  file.write(text.data(), text.size());
  file.commit();
  writer.commit();
}

HubModel::HubModel(const std::string& directory)
    : directory_(directory),
      config_(parse_hub_config(read_text(fs::path(directory) / "config.json"),
                               (fs::path(directory) / "config.json").string())),
      tensors_(directory),
      list_(hub_tensors(config_.model, config_.family)) {
  std::vector<std::string> used;
  std::set<DType> types;
  for (const HubTensor& tensor : list_) {
    const SafetensorsDirectory::Item item = find(tensor.name);
    if (item.entry == nullptr) throw RunTimeError(fmt::format("{}: tensor '{}' is missing", directory, tensor.name));
    const std::string& path = item.file->path();
    if (item.entry->shape != tensor.stored_shape()) {
      throw RunTimeError(fmt::format("{}: tensor '{}' has the shape [{}], config.json wants [{}]", path,
                                     item.entry->name, fmt::join(item.entry->shape, ", "),
                                     fmt::join(tensor.stored_shape(), ", ")));
    }
    const std::optional<DType> dtype = dtype_of_safetensors(item.entry->type);
    if (!dtype || !is_floating(*dtype)) {
      throw RunTimeError(fmt::format("{}: tensor '{}' is {}: weights must be F64, F32, F16 or BF16", path,
                                     item.entry->name, item.entry->type));
    }
    types.insert(*dtype);
    used.push_back(item.entry->name);
  }
  if (types.size() == 1) dtype_ = *types.begin();
  check_left_overs(used);
}

SafetensorsDirectory::Item HubModel::find(const std::string& name) const {
  // The published GPT-2 files hold the bare model, whose names lack the prefix.
  constexpr std::string_view kPrefix = "transformer.";
  const SafetensorsDirectory::Item item = tensors_.find(name);
  return item.entry == nullptr && name.starts_with(kPrefix) ? tensors_.find(name.substr(kPrefix.size())) : item;
}

void HubModel::check_left_overs(const std::vector<std::string>& used) const {
  const std::set<std::string> names(used.begin(), used.end());
  for (const auto& [name, item] : tensors_.items()) {
    if (names.contains(name) || is_buffer(name)) continue;
    if (name == "lm_head.weight") {  // the model is tied: else it would be in the list
      const SafetensorsDirectory::Item word = find(list_[0].name);
      const auto a = item.bytes(), b = word.bytes();
      if (item.entry->type == word.entry->type && std::equal(a.begin(), a.end(), b.begin(), b.end())) continue;
      throw RunTimeError(
          fmt::format("{}: lm_head.weight differs from {}, but config.json ties them (tie_word_embeddings)",
                      item.file->path(), word.entry->name));
    }
    throw RunTimeError(
        fmt::format("{}: tensor '{}' has no place in the model of config.json", item.file->path(), name));
  }
}

void HubModel::copy_to(TensorSink& sink, DType dtype) const {
  for (const HubTensor& tensor : list_) {
    for (const TensorPart& part : tensor.parts) sink.create(part.name, part.shape);
  }
  Values values, turned;
  for (const HubTensor& tensor : list_) {
    const SafetensorsDirectory::Item item = find(tensor.name);
    const std::vector<int64_t> shape = tensor.our_shape();
    const int64_t numel = elements_of(shape);
    const DType stored = *dtype_of_safetensors(item.entry->type);
    const std::span<std::byte> aligned = turned.resize(numel, stored);  // a file's tensors lie at any byte
    std::copy(item.bytes().begin(), item.bytes().end(), aligned.begin());
    std::span<std::byte> result = values.resize(numel, dtype);
    convert(Tensor(aligned.data(), stored, {numel}), Tensor(result.data(), dtype, {numel}));
    if (tensor.storage == Storage::Transposed) {
      const std::span<std::byte> ours = turned.resize(numel, dtype);
      transpose_elements(result, shape[1], shape[0], size_of(dtype), ours);
      result = ours;
    }
    int64_t done = 0;
    for (const TensorPart& part : tensor.parts) {
      const int64_t count = elements_of(part.shape);
      sink.write(part.name, part.shape,
                 Tensor(result.data() + static_cast<size_t>(done) * size_of(dtype), dtype, {count}));
      done += count;
    }
  }
}

}  // namespace triax::io
