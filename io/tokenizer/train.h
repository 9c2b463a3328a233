// Trains a tokenizer from text files: byte-level BPE (own) or SentencePiece. Deterministic: same input, same files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/tokenizer/tokenizer.h"

namespace triax::io {

/// What `triax data train-tokenizer` asks for.
struct TrainTokenizerOptions {
  std::string type = "GPT2BPETokenizer";  ///< GPT2BPETokenizer, HuggingFaceTokenizer or SentencePieceTokenizer
  std::vector<std::string> inputs = {};   ///< plain text files
  std::string output_prefix = {};         ///< see train_tokenizer
  int64_t vocab_size = 2048;              ///< with specials and, for BPE, the 256 bytes
  std::string model_type = "bpe";         ///< SentencePiece only: bpe or unigram
  std::string pattern = "gpt2";  ///< BPE only: gpt2, llama3 or qwen2; others than gpt2 need HuggingFaceTokenizer
};

/// What was written, and how to open it again.
struct TrainedTokenizer {
  TokenizerOptions open;                ///< pass to make_tokenizer
  std::vector<std::string> files = {};  ///< every file written
  int64_t vocab_size = 0;               ///< may fall short of the request when the text has no more pairs
};

/// Yields the next text (a document or a part that ends at a line) or returns false at the end.
using TextSource = std::function<bool(std::string& text)>;

/// Trains on the plain text files `options.inputs` and writes, by type: GPT2BPETokenizer PREFIX-vocab.json and
/// PREFIX-merges.txt; HuggingFaceTokenizer PREFIX/tokenizer.json and tokenizer_config.json; SentencePieceTokenizer
/// PREFIX.model and PREFIX.vocab. The end-of-document token is `<|endoftext|>` (BPE, last id) or `</s>` (SentencePiece,
/// id 2). Throws ConfigError for a bad option and RunTimeError for a file that cannot be read or written.
TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options);

/// The same from any source (JSONL, compressed files); `options.inputs` is not read.
TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options, const TextSource& source);

}  // namespace triax::io
