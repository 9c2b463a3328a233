// `triax data train-tokenizer`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "apps/data_options.h"
#include "base/error.h"
#include "io/tokenizer/train.h"

namespace triax::apps {

int data_train_tokenizer(const std::vector<std::string>& args) {
  io::TrainTokenizerOptions options;
  DataSyntax syntax{"train-tokenizer", "Trains a tokenizer from plain text; the same text gives the same files.",
                    po::options_description("Options", 110, 60), "input"};
  auto add = syntax.options.add_options();
  add("input", po::value(&options.inputs)->multitoken()->value_name("FILE..."), "plain text files");
  add("output-prefix", po::value(&options.output_prefix)->value_name("PREFIX"), "of the files written");
  add("tokenizer-type", po::value(&options.type)->value_name("TYPE"),
      "GPT2BPETokenizer (default), HuggingFaceTokenizer or SentencePieceTokenizer");
  add("vocab-size", po::value(&options.vocab_size)->value_name("N"), "ids, specials included; default 2048");
  add("model-type", po::value(&options.model_type)->value_name("bpe|unigram"), "SentencePiece; default bpe");
  add("pattern", po::value(&options.pattern)->value_name("gpt2|llama3|qwen2"), "BPE's word pattern; default gpt2");
  if (!parse(syntax, args)) return 0;
  if (options.inputs.empty()) throw ConfigError("--input: is required: plain text files");
  if (options.output_prefix.empty()) throw ConfigError("--output-prefix: is required");
  const io::TrainedTokenizer trained = io::train_tokenizer(options);
  const auto tokenizer = io::make_tokenizer(trained.open);
  std::string open = fmt::format("--tokenizer-type {}", trained.open.type);
  if (!trained.open.model.empty()) open += fmt::format(" --tokenizer-model {}", trained.open.model);
  if (!trained.open.vocab_file.empty()) open += fmt::format(" --vocab-file {}", trained.open.vocab_file);
  if (!trained.open.merge_file.empty()) open += fmt::format(" --merge-file {}", trained.open.merge_file);
  std::cout << fmt::format("wrote          {}\nids            {}\nhash           {}\nuse            {}\n",
                           fmt::join(trained.files, ", "), trained.vocab_size, tokenizer->hash(), open);
  return 0;
}

}  // namespace triax::apps
