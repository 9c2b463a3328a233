#include "io/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <stdexcept>

#include "base/error.h"
#include "base/handle.h"

namespace triax::io {
namespace {

struct CodePolicy {
  using type = pcre2_code*;
  static type null() noexcept { return nullptr; }
  static void destroy(type code) noexcept { pcre2_code_free(code); }
};
struct MatchDataPolicy {
  using type = pcre2_match_data*;
  static type null() noexcept { return nullptr; }
  static void destroy(type data) noexcept { pcre2_match_data_free(data); }
};
struct CompileContextPolicy {
  using type = pcre2_compile_context*;
  static type null() noexcept { return nullptr; }
  static void destroy(type context) noexcept { pcre2_compile_context_free(context); }
};

// White_Space of Unicode and its complement, as the inside of a class. PCRE2's own \s adds U+180E.
constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{D7FF}\x{E000}-\x{10FFFF})";

std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' || escaped == 'S') {
        const auto set = escaped == 's' ? kSpace : kNotSpace;
        out += in_class ? std::string(set) : "[" + std::string(set) + "]";
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    }
    out += c;
  }
  return out;
}

std::string pcre2_words(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

std::string_view llama3_pattern() {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
         R"(|\s+(?!\S)|\s+)";
}

std::string_view qwen2_pattern() {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
         R"(|\s+(?!\S)|\s+)";
}

std::string_view tiktoken_v1_pattern() {
  return R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
}

std::string_view tiktoken_v2_pattern() {
  return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
         R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
         R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

struct Splitter::Compiled {
  Handle<CodePolicy> code;
};

Splitter::Splitter(std::vector<SplitStage> stages) : stages_(std::move(stages)) {
  Handle<CompileContextPolicy> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  for (const auto& stage : stages_) {
    const std::string pattern = with_unicode_spaces(stage.pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    Handle<CodePolicy> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, context.get()));
    if (!code.get()) {
      throw std::invalid_argument(fmt::format("split pattern '{}': {}", stage.pattern, pcre2_words(error)));
    }
    // Without JIT (a kernel that forbids it) PCRE2 interprets: slower, same matches.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    compiled_.push_back(std::make_unique<Compiled>(Compiled{std::move(code)}));
  }
}

Splitter::~Splitter() = default;

struct Splitter::Cursor::Level {
  Handle<MatchDataPolicy> match;
  std::string_view part;   // what is being cut
  size_t at = 0;           // everything before is handed out
  size_t match_begin = 0;  // the match found last, not yet handed out when match_end > at
  size_t match_end = 0;
};

Splitter::Cursor::Cursor(const Splitter& splitter, std::string_view text) : splitter_(splitter), whole_(text) {
  for (size_t i = 0; i < splitter.stages_.size(); ++i) {
    levels_.push_back({Handle<MatchDataPolicy>(pcre2_match_data_create(1, nullptr)), {}, 0, 0, 0});
  }
}

Splitter::Cursor::~Cursor() = default;

bool Splitter::Cursor::next(std::string_view& word) { return next_of(levels_.size(), word); }

// Depth 0 yields the text, depth d the parts that pass d makes of the parts of depth d - 1.
bool Splitter::Cursor::next_of(size_t depth, std::string_view& part) {
  if (depth == 0) {
    if (whole_given_ || whole_.empty()) return false;
    whole_given_ = true;
    part = whole_;
    return true;
  }
  Level& level = levels_[depth - 1];
  const Gaps gaps = splitter_.stages_[depth - 1].gaps;
  while (true) {
    if (level.match_end > level.at) {  // a pending match, perhaps after a gap
      const size_t begin = level.at < level.match_begin ? level.at : level.match_begin;
      const size_t end = level.at < level.match_begin ? level.match_begin : level.match_end;
      const bool is_gap = begin < level.match_begin;
      level.at = end;
      if (is_gap && gaps == Gaps::Drop) continue;
      part = level.part.substr(begin, end - begin);
      return true;
    }
    if (level.at >= level.part.size()) {
      if (!next_of(depth - 1, level.part)) return false;
      level.at = level.match_begin = level.match_end = 0;
    }
    const auto* code = splitter_.compiled_[depth - 1]->code.get();
    const auto subject = reinterpret_cast<PCRE2_SPTR>(level.part.data());
    const uint32_t checked = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int found = pcre2_match(code, subject, level.part.size(), level.at, checked, level.match.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // a pattern that nests deeply; the interpreter's stack is the heap
      found =
          pcre2_match(code, subject, level.part.size(), level.at, checked | PCRE2_NO_JIT, level.match.get(), nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) {  // the rest is one gap
      part = level.part.substr(level.at);
      level.at = level.part.size();
      if (gaps == Gaps::Drop) continue;
      return true;
    }
    if (found < 0) throw RunTimeError("PCRE2 cannot split the text: " + pcre2_words(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(level.match.get());
    level.match_begin = range[0];
    level.match_end = range[1];
  }
}

}  // namespace triax::io
