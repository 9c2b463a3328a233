#include "io/tokenizer/train.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/tokenizer/bpe_trainer.h"
#include "io/tokenizer/byte_alphabet.h"
#include "io/tokenizer/makers.h"
#include "io/tokenizer/sentence_piece_trainer.h"
#include "io/tokenizer/split_pattern.h"
#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kPart = 16 << 20;  // bytes of a file read at once

void write_file(const fs::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.close();
  if (!out)
    throw RunTimeError(fmt::format("cannot write '{}': check that its directory exists and has room", path.string()));
}

/// Parts of the files, each ending at a line end where there is one.
TextSource plain_files(const std::vector<std::string>& paths) {
  if (paths.empty()) refuse("--input", "", "no text to train on", "give one or more plain text files");
  for (const auto& path : paths) {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) refuse("--input", path, "there is no such file", "give a plain text file");
  }
  auto in = std::make_shared<std::ifstream>();
  return [paths, in, next = size_t{0}](std::string& text) mutable {
    while (true) {
      if (!in->is_open()) {
        if (next == paths.size()) return false;
        in->open(paths[next++], std::ios::binary);
        if (!*in) throw RunTimeError(fmt::format("cannot read '{}': check its permissions", paths[next - 1]));
      }
      text.resize(kPart);
      in->read(text.data(), static_cast<std::streamsize>(kPart));
      text.resize(static_cast<size_t>(in->gcount()));
      if (!text.empty()) {
        std::string rest;
        std::getline(*in, rest);
        text += rest;
        if (!rest.empty() && !in->eof()) text += '\n';
        return true;
      }
      in->close();
      in->clear();
    }
  };
}

std::string_view pattern_of(const TrainTokenizerOptions& options) {
  if (options.pattern == "gpt2") return gpt2_pattern();
  if (options.type == "GPT2BPETokenizer") {
    refuse("--pattern", options.pattern, "GPT2BPETokenizer always splits with gpt2",
           "give gpt2, or --tokenizer-type HuggingFaceTokenizer");
  }
  if (options.pattern == "llama3") return llama3_pattern();
  if (options.pattern == "qwen2") return qwen2_pattern();
  refuse("--pattern", options.pattern, "there is no such split pattern", "give gpt2, llama3 or qwen2");
}

LearnedBpe learn_bpe(const TrainTokenizerOptions& options, const TextSource& source) {
  if (options.vocab_size < 257 || options.vocab_size > 1 << 24) {
    refuse("--vocab-size", std::to_string(options.vocab_size),
           "must hold the 256 bytes and <|endoftext|>, and be at most 2^24", "give for example 2048");
  }
  const Splitter splitter({{std::string(pattern_of(options)), Gaps::Keep}});
  BpeTrainer trainer;
  bool is_empty = true;
  for (std::string text; source(text);) {
    for (std::string_view rest = text; !rest.empty();) {  // broken bytes teach nothing
      const size_t valid = utf8_valid_prefix(rest);
      splitter.for_each_word(rest.substr(0, valid), [&](std::string_view word) { trainer.add_word(word); });
      is_empty &= valid == 0;
      rest.remove_prefix(std::min(valid + 1, rest.size()));
    }
  }
  if (is_empty) refuse("--input", "", "the files hold no text", "give files with text in UTF-8");
  return trainer.learn(options.vocab_size - 1);
}

ordered_json vocabulary_json(const LearnedBpe& learned) {
  ordered_json vocab = ordered_json::object();
  for (size_t id = 0; id < learned.tokens.size(); ++id) vocab[to_byte_alphabet(learned.tokens[id])] = id;
  return vocab;
}

std::string merge_line(const LearnedBpe& learned, std::pair<int32_t, int32_t> merge) {
  return to_byte_alphabet(learned.tokens[merge.first]) + " " + to_byte_alphabet(learned.tokens[merge.second]);
}

TrainedTokenizer write_gpt2(const TrainTokenizerOptions& options, const LearnedBpe& learned) {
  auto vocab = vocabulary_json(learned);
  vocab[kEndOfText] = learned.tokens.size();
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : learned.merges) merges += merge_line(learned, merge) + "\n";
  TrainedTokenizer trained;
  trained.open.vocab_file = options.output_prefix + "-vocab.json";
  trained.open.merge_file = options.output_prefix + "-merges.txt";
  write_file(trained.open.vocab_file, vocab.dump());
  write_file(trained.open.merge_file, merges);
  trained.files = {trained.open.vocab_file, trained.open.merge_file};
  return trained;
}

ordered_json tokenizer_json(const TrainTokenizerOptions& options, const LearnedBpe& learned) {
  ordered_json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", options.pattern == "gpt2"}};
  ordered_json pre_tokenizer = byte_level;
  if (options.pattern != "gpt2") {
    const ordered_json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern_of(options)}}}, {"behavior", "Isolated"}, {"invert", false}};
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level})}};
  }
  ordered_json merges = ordered_json::array();
  for (const auto& merge : learned.merges) merges.push_back(merge_line(learned, merge));
  const ordered_json end_of_text = {{"id", learned.tokens.size()},
                                    {"content", kEndOfText},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}};
  auto vocab = vocabulary_json(learned);
  vocab[kEndOfText] = learned.tokens.size();
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", ordered_json::array({end_of_text})},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

TrainedTokenizer write_hugging_face(const TrainTokenizerOptions& options, const LearnedBpe& learned) {
  const fs::path folder = options.output_prefix;
  std::error_code failed;
  fs::create_directories(folder, failed);
  const ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"eos_token", kEndOfText},
                               {"bos_token", kEndOfText},
                               {"unk_token", kEndOfText}};
  write_file(folder / "tokenizer.json", tokenizer_json(options, learned).dump(1));
  write_file(folder / "tokenizer_config.json", config.dump(1) + "\n");
  TrainedTokenizer trained;
  trained.open.model = folder.string();
  trained.files = {(folder / "tokenizer.json").string(), (folder / "tokenizer_config.json").string()};
  return trained;
}

}  // namespace

TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options) {
  return train_tokenizer(options, plain_files(options.inputs));
}

TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options, const TextSource& source) {
  if (options.output_prefix.empty()) {
    refuse("--output-prefix", "", "is missing", "give the path that the tokenizer's files begin with");
  }
  TrainedTokenizer trained;
  if (options.type == "GPT2BPETokenizer") {
    trained = write_gpt2(options, learn_bpe(options, source));
  } else if (options.type == "HuggingFaceTokenizer") {
    trained = write_hugging_face(options, learn_bpe(options, source));
  } else if (options.type == "SentencePieceTokenizer") {
    trained.open.model = options.output_prefix + ".model";
    write_file(trained.open.model, train_sentence_piece(options, source));
    trained.files = {trained.open.model};
  } else {
    refuse("--tokenizer-type", options.type, "is not a type that can be trained here",
           "give GPT2BPETokenizer, HuggingFaceTokenizer or SentencePieceTokenizer");
  }
  trained.open.type = options.type;
  trained.vocab_size = make_tokenizer(trained.open)->vocab_size();
  return trained;
}

}  // namespace triax::io
