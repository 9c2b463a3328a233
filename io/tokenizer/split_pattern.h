// Regular expressions that cut a text into the words that byte-pair encoding never merges across.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace triax::io {

/// Contractions, " word", " 123", " ?!", blanks; the pattern of GPT-2.
std::string_view gpt2_pattern();
/// As cl100k: any-case contractions, digits in groups of at most three, newlines apart; the pattern of Llama 3.
std::string_view llama3_pattern();
/// As llama3_pattern, but every digit is a word; the pattern of Qwen 2, 2.5 and 3.
std::string_view qwen2_pattern();
/// Megatron's --tiktoken-pattern v1 and v2.
std::string_view tiktoken_v1_pattern();
std::string_view tiktoken_v2_pattern();

/// What one pass over the text does with the parts between matches.
enum class Gaps {
  Keep,  ///< they are words too ("Isolated")
  Drop,  ///< they vanish ("Removed" of an inverted split)
};

/// One pass: every match of the pattern in a part is a part of its own.
struct SplitStage {
  std::string pattern;
  Gaps gaps = Gaps::Keep;
};

/// Passes applied in turn to valid UTF-8. Pattern syntax is Oniguruma's as far as tokenizer files use it: \s and \S
/// mean the 25 characters of White_Space, ^ and $ match at line ends. Immutable; for_each_word() may be called from
/// many threads.
class Splitter {
 public:
  /// Throws std::invalid_argument with PCRE2's words for a pattern that does not compile.
  explicit Splitter(std::vector<SplitStage> stages);
  ~Splitter();

  /// Calls visit(word) for each non-empty word, in order.
  template <class Visit>
  void for_each_word(std::string_view text, const Visit& visit) const {
    Cursor cursor(*this, text);
    for (std::string_view word; cursor.next(word);) visit(word);
  }

  const std::vector<SplitStage>& stages() const { return stages_; }

 private:
  struct Compiled;
  /// Walks one text; each level holds the part that its pass is cutting.
  class Cursor {
   public:
    Cursor(const Splitter& splitter, std::string_view text);
    ~Cursor();
    bool next(std::string_view& word);

   private:
    struct Level;
    bool next_of(size_t depth, std::string_view& part);

    const Splitter& splitter_;
    std::string_view whole_;  // handed out by the level below the first, once
    bool whole_given_ = false;
    std::vector<Level> levels_;
  };

  std::vector<SplitStage> stages_;
  std::vector<std::unique_ptr<Compiled>> compiled_;
};

}  // namespace triax::io
