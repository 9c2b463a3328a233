#include "io/tokenizer/sentence_piece_trainer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

/// Non-empty lines of the source's texts.
class SourceLines : public sentencepiece::SentenceIterator {
 public:
  explicit SourceLines(const TextSource& source) : source_(source) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      while (at_ >= text_.size()) {
        at_ = 0;
        if (!source_(text_)) {
          done_ = true;
          return;
        }
      }
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      line_ = text_.substr(at_, end - at_);
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      at_ = end + 1;
    } while (line_.empty());
  }

 private:
  const TextSource& source_;
  std::string text_, line_;
  size_t at_ = 0;
  bool done_ = false;
};

}  // namespace

std::string train_sentence_piece(const TrainTokenizerOptions& options, const TextSource& source) {
  if (options.model_type != "bpe" && options.model_type != "unigram") {
    refuse("--model-type", options.model_type, "there is no such SentencePiece model here", "give bpe or unigram");
  }
  if (options.vocab_size < 260 || options.vocab_size > 1 << 24) {
    refuse("--vocab-size", std::to_string(options.vocab_size),
           "must hold 256 bytes, three control tokens and some pieces, and be at most 2^24", "give for example 2048");
  }
  SourceLines lines(source);
  if (lines.done()) refuse("--input", "", "the files hold no text", "give files with text in UTF-8");
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.model_type},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", "0.9995"},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"max_sentence_length", "1073741824"},
      {"num_threads", "1"},
      {"minloglevel", "2"},
  };
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    refuse("--vocab-size", std::to_string(options.vocab_size), fmt::format("SentencePiece says: {}", status.ToString()),
           "change the vocabulary or give more text");
  }
  return model;
}

}  // namespace triax::io
