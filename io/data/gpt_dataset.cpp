#include "io/data/gpt_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace triax::io {

namespace {

constexpr int64_t kLargestInt32 = std::numeric_limits<int32_t>::max();
// 64 GiB of document index: past this the request is a mistake, not a data set.
constexpr int64_t kMaxDocumentIndex = int64_t{1} << 34;

std::string index_description(const IndexedDataset& data, const GptSplit& split) {
  nlohmann::ordered_json text;
  text["format"] = "triax-gpt-index-1";
  text["data"] = std::filesystem::path(data.prefix()).filename().string();
  text["fingerprint"] = fmt::format("{:016x}", data.fingerprint());
  text["split"] = name_of(split.split);
  text["first_sequence"] = split.sequences.begin;
  text["end_sequence"] = split.sequences.end;
  text["num_samples"] = split.num_samples;
  text["seq_length"] = split.seq_length;
  text["seed"] = split.seed;
  return text.dump(2) + "\n";
}

template <class T>
void put(const IndexCache::Put& out, const char* name, const std::vector<T>& values, int64_t columns) {
  const auto count = static_cast<int64_t>(values.size());
  const std::array<int64_t, 2> shape{count / columns, columns};
  out(name, npy_type<T>(), std::as_bytes(std::span(values)), std::span(shape).first(columns == 1 ? 1 : 2));
}

void build(const IndexedDataset& data, const GptSplit& split, const IndexCache::Put& out) {
  const EpochPlan plan = plan_epochs(count_tokens(data, split.sequences), split.num_samples, split.seq_length);
  if (split.sequences.end > kLargestInt32 || plan.epochs > kMaxDocumentIndex / split.sequences.size()) {
    throw ConfigError(fmt::format(
        "{}: {} samples of {} tokens need {} passes over {} documents, the document index holds {} entries of "
        "sequences "
        "below 2^31; ask for fewer samples or give more data",
        data.prefix(), split.num_samples, split.seq_length, plan.epochs, split.sequences.size(), kMaxDocumentIndex));
  }
  NumpyRandom random(split.seed);
  {
    const std::vector<int32_t> documents = build_document_index(split.sequences, plan, random);
    put(out, "document_index", documents, 1);
    // An aligned copy: the walk reads lengths in shuffled order.
    std::vector<int32_t> lengths(static_cast<size_t>(split.sequences.end));
    for (int64_t i = split.sequences.begin; i < split.sequences.end; ++i)
      lengths[static_cast<size_t>(i)] = data.length(i);
    if (static_cast<int64_t>(documents.size()) <= kLargestInt32) {
      put(out, "sample_index", build_sample_index<int32_t>(documents, lengths, plan, split.seq_length), 2);
    } else {
      put(out, "sample_index", build_sample_index<int64_t>(documents, lengths, plan, split.seq_length), 2);
    }
  }
  if (plan.samples >= int64_t{std::numeric_limits<uint32_t>::max()} - 1) {
    put(out, "shuffle_index", build_shuffle_index<int64_t>(plan, random), 1);
  } else {
    put(out, "shuffle_index", build_shuffle_index<uint32_t>(plan, random), 1);
  }
}

}  // namespace

int64_t count_tokens(const IndexedDataset& data, SequenceRange sequences) {
  int64_t tokens = 0;
  for (int64_t i = sequences.begin; i < sequences.end; ++i) {
    const int64_t length = data.length(i);
    if (length < 0) {
      throw RunTimeError(
          fmt::format("{}.idx: document {} (sequence {}) has {} tokens; the index is damaged: build the data again",
                      data.prefix(), data.document_of(i), i, length));
    }
    tokens += length;
  }
  return tokens;
}

GptDataset::GptDataset(std::shared_ptr<const IndexedDataset> data, const GptSplit& split, const IndexCache& cache)
    : data_(std::move(data)), split_(split) {
  ensure(split.sequences.size() > 0, "GptDataset: the split is empty");
  const IndexCache::Key key{
      name_of(split.split), index_description(*data_, split), {"document_index", "sample_index", "shuffle_index"}};
  files_ = cache.get(key, [this](const IndexCache::Put& out) { build(*data_, split_, out); });
  const auto require = [this](bool condition, size_t i) {
    if (condition) return;
    throw RunTimeError(
        fmt::format("{}: does not fit the other index files of its name; remove them, they will be built "
                    "again",
                    files_[i].path()));
  };
  const std::vector<int64_t>& shape = files_[1].shape();
  require(shape.size() == 2 && shape[0] >= 1 && shape[1] == 2, 1);
  samples_ = shape[0] - 1;
  document_ = files_[0].values<int32_t>();
  require(document_.size() % static_cast<size_t>(split.sequences.size()) == 0, 0);
  if (files_[1].type() == npy_type<int32_t>()) {
    position_ = files_[1].values<int32_t>();
  } else {
    position_ = files_[1].values<int64_t>();
  }
  if (files_[2].type() == npy_type<uint32_t>()) {
    shuffle_ = files_[2].values<uint32_t>();
  } else {
    shuffle_ = files_[2].values<int64_t>();
  }
  require(std::visit([](auto values) { return static_cast<int64_t>(values.size()); }, shuffle_) == samples_, 2);
}

SamplePosition GptDataset::position(int64_t j) const {
  return std::visit(
      [j](auto values) {
        const auto at = 2 * static_cast<size_t>(j);
        return SamplePosition{static_cast<int64_t>(values[at]), static_cast<int64_t>(values[at + 1])};
      },
      position_);
}

void GptDataset::sample(int64_t k, std::span<int32_t> out) const {
  ensure(k >= 0 && k < samples_, "GptDataset::sample: no such sample");
  ensure(static_cast<int64_t>(out.size()) == split_.seq_length + 1, "GptDataset::sample: out must hold s + 1 tokens");
  const auto j =
      std::visit([k](auto values) { return static_cast<int64_t>(values[static_cast<size_t>(k)]); }, shuffle_);
  ensure(j >= 0 && j < samples_, "GptDataset::sample: the shuffle index is damaged");
  const SamplePosition begin = position(j);
  const SamplePosition end = position(j + 1);
  size_t filled = 0;
  for (int64_t at = begin.document; at <= end.document; ++at) {
    const int32_t sequence = document_[static_cast<size_t>(at)];
    const int64_t from = at == begin.document ? begin.offset : 0;
    const int64_t to = at == end.document ? end.offset + 1 : data_->length(sequence);
    const auto count = static_cast<size_t>(std::max<int64_t>(to - from, 0));
    ensure(count <= out.size() - filled, "GptDataset::sample: the sample index is damaged");
    data_->read(sequence, from, out.subspan(filled, count), split_.vocab_size);
    filled += count;
  }
  ensure(filled == out.size(), "GptDataset::sample: the sample index is damaged");
}

}  // namespace triax::io
