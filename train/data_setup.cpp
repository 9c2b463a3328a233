#include "train/data_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/philox.h"
#include "io/data/blend.h"
#include "io/data/description.h"
#include "train/collective_task.h"

namespace triax::train {
namespace {

std::vector<std::string> prefixes_of(const io::DataOptions& data) {
  std::vector<std::string> prefixes;
  const std::array<std::pair<const char*, const std::vector<std::string>*>, 4> options{
      {{"--data-path", &data.data_path},
       {"--train-data-path", &data.train_data_path},
       {"--valid-data-path", &data.valid_data_path},
       {"--test-data-path", &data.test_data_path}}};
  for (const auto& [option, words] : options) {
    if (words->empty()) continue;
    const io::Blend blend = io::parse_blend(option, *words);
    prefixes.insert(prefixes.end(), blend.prefixes.begin(), blend.prefixes.end());
  }
  return prefixes;
}

io::TokenizerOptions given_tokenizer(const io::DataOptions& data) {
  io::TokenizerOptions t;
  t.type = data.tokenizer_type;
  t.model = data.tokenizer_model;
  t.vocab_file = data.vocab_file;
  t.merge_file = data.merge_file;
  t.vocab_size = data.vocab_size;
  t.tiktoken_pattern = data.tiktoken_pattern;
  t.tiktoken_num_special_tokens = data.tiktoken_num_special_tokens;
  return t;
}

/// The description that all prefixes agree on; nullopt when none has one.
std::optional<io::DatasetDescription> common_description(const std::vector<std::string>& prefixes, DataFacts& facts) {
  std::optional<io::DatasetDescription> common;
  std::string text;
  std::string first;
  for (const std::string& prefix : prefixes) {
    const std::optional<io::DatasetDescription> d = io::read_description(prefix);
    if (!d) continue;
    text += fmt::format("{} {} {} {};", d->tokenizer_hash, d->documents, d->tokens, d->text_bytes);
    if (common && common->tokenizer_hash != d->tokenizer_hash) {
      throw ConfigError(
          fmt::format("--data-path: {} and {} were made with different tokenizers ({}, {}), so their ids "
                      "mean different things: build both with one",
                      first, prefix, common->tokenizer_hash, d->tokenizer_hash));
    }
    if (!common) first = prefix;
    common = d;
  }
  if (!text.empty()) facts.data_hash = fmt::format("{:016x}", stream_of(text));
  return common;
}

void open_tokenizer(const io::DataOptions& data, const std::vector<std::string>& prefixes,
                    const std::optional<io::DatasetDescription>& description, DataFacts& facts) {
  const bool given = !data.tokenizer_type.empty();
  if (!given && !description) return;
  facts.tokenizer_options = given ? given_tokenizer(data) : description->tokenizer;
  facts.tokenizer = io::make_tokenizer(facts.tokenizer_options);
  if (description) io::check_tokenizer(prefixes.front(), *description, *facts.tokenizer);
  facts.tokenizer_hash = facts.tokenizer->hash();
  facts.eod = facts.tokenizer->eod();
}

}  // namespace

DataFacts inspect_data(const io::RunOptions& options) {
  const io::DataOptions& data = options.data;
  DataFacts facts;
  const std::vector<std::string> prefixes = prefixes_of(data);
  if (!data.mock_data) {
    const std::optional<io::DatasetDescription> description = common_description(prefixes, facts);
    open_tokenizer(data, prefixes, description, facts);
    if (!facts.eod && description) facts.eod = description->eod;
  }
  facts.vocab_size = data.vocab_size > 0 ? data.vocab_size : options.model.vocab_size;
  // For these --vocab-size is a parameter of the tokenizer, which adds ids of its own (as in Megatron-LM).
  const bool sized = data.tokenizer_type == "NullTokenizer" || data.tokenizer_type == "TikTokenizer";
  if (sized && facts.tokenizer) facts.vocab_size = facts.tokenizer->vocab_size();
  if (facts.vocab_size == 0 && facts.tokenizer) facts.vocab_size = facts.tokenizer->vocab_size();
  if (facts.vocab_size == 0) {
    throw ConfigError(
        "--data-path: the data have no description (<prefix>.json) that names a vocabulary: give "
        "--vocab-size N or --tokenizer-type, or build the data with triax data build");
  }
  if (facts.tokenizer && facts.vocab_size < facts.tokenizer->vocab_size()) {
    throw ConfigError(fmt::format("--vocab-size {}: the tokenizer has ids up to {}: use {} or more", facts.vocab_size,
                                  facts.tokenizer->vocab_size() - 1, facts.tokenizer->vocab_size()));
  }
  if (data.eod_mask_loss && !facts.eod) {
    throw ConfigError(
        "--eod-mask-loss: neither the data's description nor the tokenizer names an end-of-document token");
  }
  return facts;
}

std::vector<int32_t> token_bytes(const io::Tokenizer& tokenizer, std::optional<int32_t> eod) {
  std::vector<int32_t> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  // Behind another word, so that no decoder takes a leading blank away.
  const std::vector<int32_t> word = tokenizer.encode("a");
  const size_t before = tokenizer.decode(word).size();
  for (size_t id = 0; id < bytes.size(); ++id) {
    std::vector<int32_t> ids = word;
    ids.push_back(static_cast<int32_t>(id));
    const std::string text = tokenizer.token_text(static_cast<int32_t>(id));
    const bool one_byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    bytes[id] = one_byte ? 1 : static_cast<int32_t>(tokenizer.decode(ids).size() - before);
  }
  if (eod && static_cast<size_t>(*eod) < bytes.size()) bytes[static_cast<size_t>(*eod)] = 0;
  return bytes;
}

io::Datasets open_data(const io::RunOptions& options, const std::string& run_dir, bool holds_tokens,
                       comm::ProcessGrid& grid) {
  io::DatasetRequest request;
  request.data_path = options.data.data_path;
  request.train_data_path = options.data.train_data_path;
  request.valid_data_path = options.data.valid_data_path;
  request.test_data_path = options.data.test_data_path;
  request.split = options.data.split;
  request.cache_path = options.data.data_cache_path;
  request.run_dir = run_dir;
  request.mock = options.data.mock_data;
  request.seq_length = options.model.seq_length;
  request.vocab_size = options.model.vocab_size;
  request.seed = static_cast<uint32_t>(options.control.seed);
  io::TrainLength length{options.batch.train_iters, options.batch.train_samples, options.batch.global_batch_size,
                         options.control.eval_interval, options.control.eval_iters};
  if (options.control.skip_train) length.train_iters = length.train_samples = 0;
  request.samples = io::sample_counts(length);

  const std::vector<int>& nodes = grid.nodes();
  const auto me = static_cast<size_t>(grid.world_rank());
  const bool first_of_node = std::find(nodes.begin(), nodes.end(), nodes[me]) - nodes.begin() == grid.world_rank();
  const double deadline = deadline_s(options);
  const auto part = [](bool yes) { return yes ? TakePart::Yes : TakePart::No; };
  run_collectively(grid.world(), part(me == 0), deadline, [&] { io::prepare_datasets(request); });
  run_collectively(grid.world(), part(first_of_node && me != 0), deadline, [&] { io::prepare_datasets(request); });
  io::Datasets datasets;
  run_collectively(grid.world(), part(holds_tokens), deadline, [&] { datasets = io::open_datasets(request); });
  return datasets;
}

Splits splits_of(const io::Datasets& datasets, comm::ProcessGrid& grid) {
  std::array<double, 3> has{datasets.train ? 1.0 : 0.0, datasets.valid ? 1.0 : 0.0, datasets.test ? 1.0 : 0.0};
  grid.world().all_reduce(Tensor(has.data(), DType::Float64, {3}), comm::ReduceOp::Max).wait();
  return {has[0] > 0, has[1] > 0, has[2] > 0};
}

}  // namespace triax::train
