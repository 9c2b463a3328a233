// `triax data train-tokenizer`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/data_options.h"
#include "base/error.h"
#include "io/data/document_reader.h"
#include "io/tokenizer/train.h"

namespace triax::apps {

namespace {

// The texts of any input that `build` reads: plain, JSONL, compressed, stdin.
class Texts {
 public:
  Texts(const std::vector<std::string>& inputs, std::string json_key)
      : reader_(
            std::make_unique<io::DocumentReader>(io::DocumentReader::Options{inputs, io::InputFormat::Auto, "", 1})),
        json_key_(std::move(json_key)) {}

  // One document at a time.
  bool next(std::string& text) {
    const auto batch = reader_->next();
    if (!batch) return false;
    text = batch->document(0);
    if (batch->format != io::InputFormat::Jsonl) return true;
    const auto line = nlohmann::json::parse(text, nullptr, false);
    const auto value = line.is_object() ? line.find(json_key_) : line.end();
    if (value == line.end() || !value->is_string()) {
      throw RunTimeError(
          fmt::format("{} line {}: is no JSON object with a string \"{}\"; mend the line, or choose the key "
                      "with --json-key",
                      batch->source, batch->lines[0], json_key_));
    }
    text = value->get<std::string>();
    return true;
  }

 private:
  std::unique_ptr<io::DocumentReader> reader_;
  std::string json_key_;
};

}  // namespace

int data_train_tokenizer(const std::vector<std::string>& args) {
  io::TrainTokenizerOptions options;
  std::string json_key = "text";
  DataSyntax syntax{"train-tokenizer", "Trains a tokenizer from text; the same text gives the same files.",
                    po::options_description("Options", 110, 60), "input"};
  auto add = syntax.options.add_options();
  add("input", po::value(&options.inputs)->multitoken()->value_name("FILE..."),
      "text or JSONL, plain, .gz, .zst, or - for stdin");
  add("output-prefix", po::value(&options.output_prefix)->value_name("PREFIX"), "of the files written");
  add("tokenizer-type", po::value(&options.type)->value_name("TYPE"),
      "GPT2BPETokenizer (default), HuggingFaceTokenizer or SentencePieceTokenizer");
  add("vocab-size", po::value(&options.vocab_size)->value_name("N"), "ids, specials included; default 2048");
  add("model-type", po::value(&options.model_type)->value_name("bpe|unigram"), "SentencePiece; default bpe");
  add("pattern", po::value(&options.pattern)->value_name("gpt2|llama3|qwen2"), "BPE's word pattern; default gpt2");
  add("json-key", po::value(&json_key)->value_name("KEY"), "key of the text in JSONL; default text");
  if (!parse(syntax, args)) return 0;
  if (options.inputs.empty()) throw ConfigError("--input: is required: text files, or - for stdin");
  if (options.output_prefix.empty()) throw ConfigError("--output-prefix: is required");
  Texts texts(options.inputs, json_key);
  const io::TrainedTokenizer trained =
      io::train_tokenizer(options, [&texts](std::string& text) { return texts.next(text); });
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
