// GPT2BPETokenizer: vocab.json and merges.txt (Radford et al. 2019).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

std::vector<std::pair<int32_t, int32_t>> read_merges(const std::string& path, const nlohmann::json& vocab) {
  const std::string text = read_whole_file("--merge-file", path, "a merges.txt: one merge, two tokens, a line");
  const MergeReader reader(vocab);
  std::vector<std::pair<int32_t, int32_t>> merges;
  int64_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    // Only the first line may be a comment: "# #" is a merge.
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    try {
      merges.push_back(reader.read(line));
    } catch (const std::invalid_argument& error) {
      refuse("--merge-file", path, fmt::format("line {}: {}", line_number, error.what()),
             "give the merges.txt that belongs to --vocab-file");
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<Tokenizer> make_gpt2_bpe_tokenizer(const TokenizerOptions& options) {
  if (options.vocab_file.empty() || options.merge_file.empty()) {
    const bool both = options.vocab_file.empty() && options.merge_file.empty();
    throw ConfigError(
        fmt::format("--tokenizer-type GPT2BPETokenizer needs {}: give --vocab-file vocab.json and "
                    "--merge-file merges.txt",
                    both                         ? "--vocab-file and --merge-file"
                    : options.vocab_file.empty() ? "--vocab-file"
                                                 : "--merge-file"));
  }
  const auto vocab = read_json_file("--vocab-file", options.vocab_file, "a vocab.json: {\"token\": id, ...}");
  BpeSpec spec;
  spec.type = options.type;
  try {
    spec.vocabulary.tokens = read_vocabulary(vocab);
  } catch (const std::invalid_argument& error) {
    refuse("--vocab-file", options.vocab_file, error.what(), "give a byte-level vocab.json such as GPT-2's");
  }
  spec.vocabulary.merges = read_merges(options.merge_file, vocab);
  spec.stages = {{std::string(gpt2_pattern()), Gaps::Keep}};
  if (const auto it = vocab.find(kEndOfText); it != vocab.end()) {
    spec.eod = spec.bos = it->get<int32_t>();
    spec.added.push_back({kEndOfText, *spec.eod, false});
  }
  return make_bpe(std::move(spec), "--vocab-file", options.vocab_file);
}

}  // namespace triax::io
