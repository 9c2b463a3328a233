#include "io/data/dataset_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "io/data/blend.h"
#include "io/data/blended_dataset.h"
#include "io/data/gpt_dataset.h"
#include "io/data/mock_dataset.h"

namespace triax::io {

namespace {

namespace fs = std::filesystem;

int64_t samples_of(const DatasetRequest& request, Split split) {
  switch (split) {
    case Split::Train:
      return request.samples.train;
    case Split::Valid:
      return request.samples.valid;
    case Split::Test:
      return request.samples.test;
  }
  return 0;
}

const std::vector<std::string>& path_of(const DatasetRequest& request, Split split) {
  switch (split) {
    case Split::Train:
      return request.train_data_path;
    case Split::Valid:
      return request.valid_data_path;
    case Split::Test:
      break;
  }
  return request.test_data_path;
}

std::string option_of(Split split) { return fmt::format("--{}-data-path", name_of(split)); }

bool per_split(const DatasetRequest& request) {
  return !request.train_data_path.empty() || !request.valid_data_path.empty() || !request.test_data_path.empty();
}

// Opens each prefix once: the splits share the mapping.
class Opened {
 public:
  std::shared_ptr<const IndexedDataset> get(const std::string& prefix) {
    auto& data = opened_[prefix];
    if (!data) {
      data = std::make_shared<const IndexedDataset>(prefix);
      spdlog::debug("{}: {} documents, {} tokens of {}", prefix, data->documents(), data->tokens(),
                    name_of(data->type()));
    }
    return data;
  }

 private:
  std::map<std::string, std::shared_ptr<const IndexedDataset>> opened_;
};

class Builder {
 public:
  explicit Builder(const DatasetRequest& request) : request_(request), cache_(index_cache_directory(request)) {}

  std::unique_ptr<TokenDataset> build(Split split) {
    const int64_t samples = samples_of(request_, split);
    if (samples <= 0) return nullptr;
    if (request_.mock) return mock(split, samples);
    const bool own_path = per_split(request_);
    const std::vector<std::string>& words = own_path ? path_of(request_, split) : request_.data_path;
    if (words.empty()) return nullptr;
    const std::string option = own_path ? option_of(split) : "--data-path";
    const Blend blend = parse_blend(option, words);
    std::unique_ptr<TokenDataset> dataset;
    // Megatron ignores the weight of a single prefix given per split, and honours it in --data-path.
    if (blend.prefixes.size() == 1 && (own_path || blend.weights.empty())) {
      dataset = part(blend.prefixes[0], split, samples);
    } else {
      dataset = mix(blend, split, samples);
    }
    if (dataset != nullptr) check_size(option, blend, split, samples, dataset->size());
    return dataset;
  }

 private:
  std::unique_ptr<TokenDataset> mock(Split split, int64_t samples) const {
    // Splits differ in the upper half of the seed.
    const uint64_t seed = request_.seed + (static_cast<uint64_t>(split) << 32);
    return std::make_unique<MockDataset>(MockDataset::Shape{samples, request_.vocab_size, seed});
  }

  // Null when no token of the prefix falls into the split.
  std::unique_ptr<TokenDataset> part(const std::string& prefix, Split split, int64_t samples) {
    auto data = opened_.get(prefix);
    SequenceRange range{0, data->sequences()};
    if (!per_split(request_)) range = split_sequences(request_.split, data->sequences())[static_cast<size_t>(split)];
    bool empty = true;
    for (int64_t i = range.begin; i < range.end && empty; ++i) empty = data->length(i) == 0;
    if (empty && !has_weight(split)) return nullptr;  // as asked
    if (empty) {
      spdlog::warn("{}: no tokens for the {} split (--split {}, {} sequences)", prefix, name_of(split), request_.split,
                   data->sequences());
      return nullptr;
    }
    const GptSplit gpt{split, range, samples, request_.seq_length, request_.seed, request_.vocab_size};
    return std::make_unique<GptDataset>(std::move(data), gpt, cache_);
  }

  // --split gives this part more than 0: of enough sequences some would be in it.
  bool has_weight(Split split) const {
    if (per_split(request_)) return true;
    const SequenceRange range = split_sequences(request_.split, int64_t{1} << 40)[static_cast<size_t>(split)];
    return range.end > range.begin;
  }

  std::unique_ptr<TokenDataset> mix(const Blend& blend, Split split, int64_t samples) {
    const std::vector<double> shares = blend.weights.empty() ? std::vector<double>() : normalise(blend.weights);
    std::vector<std::unique_ptr<TokenDataset>> parts;
    BlendedDataset::Order order{name_of(split), {}, 0};
    for (size_t d = 0; d < blend.prefixes.size(); ++d) {
      const int64_t ask = shares.empty() ? -1 : blend_request(samples, shares[d]);
      if (ask == 0) continue;  // weight 0: the greedy rule could take it at a tie
      auto dataset = part(blend.prefixes[d], split, ask);
      if (dataset == nullptr || dataset->size() == 0) {
        if (shares.empty()) continue;
        throw ConfigError(
            fmt::format("{}: has weight {} but no tokens for the {} split; take it out of the blend, change "
                        "--split, or give --{}-data-path",
                        blend.prefixes[d], blend.weights[d], name_of(split), name_of(split)));
      }
      order.weights.push_back(shares.empty() ? static_cast<double>(dataset->size()) : shares[d]);
      order.size += shares.empty() ? dataset->size() : blend_target(samples, shares[d]);
      parts.push_back(std::move(dataset));
    }
    if (parts.empty()) return nullptr;
    if (shares.empty()) order.size = std::min(order.size, samples);
    return std::make_unique<BlendedDataset>(std::move(parts), order, cache_);
  }

  static void check_size(const std::string& option, const Blend& blend, Split split, int64_t asked, int64_t size) {
    if (size >= asked) return;
    throw ConfigError(
        fmt::format("{}: {} datasets without weights are read once and give {} {} samples, {} are needed; give weights "
                    "(w1 P1 w2 P2 "
                    "...), which allow several passes, or ask for at most {} samples ({})",
                    option, blend.prefixes.size(), size, name_of(split), asked, size,
                    split == Split::Train ? "--train-iters, --train-samples" : "--eval-iters, --eval-interval"));
  }

  const DatasetRequest& request_;
  IndexCache cache_;
  Opened opened_;
};

bool is_own_directory(const fs::path& directory) {
  struct stat status {};
  const std::string path = directory.empty() ? "." : directory.string();
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         ::access(path.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

void validate(const DatasetRequest& request) {
  std::vector<std::string> faults;
  const auto collect = [&faults](const auto& check) {
    try {
      check();
    } catch (const ConfigError& fault) {
      faults.emplace_back(fault.what());
    }
  };
  const bool shared = !request.data_path.empty();
  if (request.mock && (shared || per_split(request))) {
    faults.emplace_back("--mock-data: excludes --data-path and --train-data-path; give one of them");
  }
  if (!request.mock && !shared && !per_split(request)) {
    faults.emplace_back(
        "no data: give --data-path PREFIX (made by 'triax data build'), or --mock-data to train on made-up "
        "tokens");
  }
  if (shared && per_split(request)) {
    faults.emplace_back(
        "--data-path: excludes --train-data-path, --valid-data-path and --test-data-path; give one form");
  }
  if (shared) {
    collect([&request] { parse_blend("--data-path", request.data_path); });
    collect([&request] { split_sequences(request.split, 1); });
  }
  for (const Split split : {Split::Train, Split::Valid, Split::Test}) {
    const std::vector<std::string>& words = path_of(request, split);
    if (!words.empty()) collect([&words, split] { parse_blend(option_of(split), words); });
  }
  if (request.seq_length <= 0) {
    faults.push_back(fmt::format("--seq-length {}: must be at least 1", request.seq_length));
  }
  if (request.mock && request.vocab_size <= 0) {
    faults.push_back(fmt::format("--vocab-size {}: --mock-data needs the number of token ids", request.vocab_size));
  }
  if (!faults.empty()) throw ConfigError(fmt::format("{}", fmt::join(faults, "\n")));
}

std::string index_cache_directory(const DatasetRequest& request) {
  if (!request.cache_path.empty()) return request.cache_path;
  const std::string fallback = (fs::path(request.run_dir) / "data-cache").string();
  if (request.mock) return fallback;
  for (const auto* words :
       {&request.data_path, &request.train_data_path, &request.valid_data_path, &request.test_data_path}) {
    if (words->empty()) continue;
    const std::string prefix = parse_blend("--data-path", *words).prefixes[0];
    if (is_own_directory(fs::path(prefix).parent_path())) return prefix + ".cache";
    break;
  }
  return fallback;
}

void prepare_datasets(const DatasetRequest& request) { open_datasets(request); }

Datasets open_datasets(const DatasetRequest& request) {
  validate(request);
  Builder builder(request);
  Datasets datasets{builder.build(Split::Train), builder.build(Split::Valid), builder.build(Split::Test)};
  if (request.samples.train > 0 && datasets.train == nullptr) {
    throw ConfigError(
        fmt::format("the training split holds no tokens: --split {}, data {}; give it a weight, or more "
                    "documents",
                    request.split, fmt::join(per_split(request) ? request.train_data_path : request.data_path, " ")));
  }
  return datasets;
}

}  // namespace triax::io
