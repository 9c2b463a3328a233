// The parts of byte-level BPE: UTF-8, the byte alphabet, split patterns, special tokens, merging.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

#include "io/tokenizer/bpe_model.h"
#include "io/tokenizer/byte_alphabet.h"
#include "io/tokenizer/normalizer.h"
#include "io/tokenizer/special_tokens.h"
#include "io/tokenizer/split_pattern.h"
#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> split(std::vector<SplitStage> stages, std::string_view text) {
  std::vector<std::string> words;
  Splitter(std::move(stages)).for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::vector<std::string> split(std::string_view pattern, std::string_view text) {
  return split({{std::string(pattern), Gaps::Keep}}, text);
}

TEST(Utf8, accepts_exactly_the_well_formed_sequences) {
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("\xC3\xA9"), 2u);
  EXPECT_EQ(utf8_length("\xE4\xB8\xAD"), 3u);
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4u);
  for (const char* broken : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                             "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE4\xB8", "\xC3"}) {
    EXPECT_EQ(utf8_length(broken), 0u) << broken;
  }
  int64_t well_formed = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    std::string bytes;
    utf8_append(code, bytes);
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(utf8_length(bytes), is_surrogate ? 0 : bytes.size()) << static_cast<uint32_t>(code);
    if (is_surrogate) continue;
    ASSERT_EQ(utf8_decode(bytes, bytes.size()), code);
    ++well_formed;
  }
  EXPECT_EQ(well_formed, 0x110000 - 0x800);
}

TEST(Utf8, shows_broken_bytes_as_replacement_characters) {
  EXPECT_EQ(utf8_valid_prefix("eight bytes and \xC3\xA9 then \xFF"), 24u);
  EXPECT_EQ(valid_utf8("a\xFF\xE4\xB8z\xC3\xA9"), "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\xC3\xA9");
}

TEST(ByteAlphabet, is_gpt2s) {
  EXPECT_EQ(to_byte_alphabet(" the\n"), "ĠtheĊ");
  EXPECT_EQ(byte_to_char(0x00), 0x100u);
  EXPECT_EQ(byte_to_char(0x7F), 0x121u);
  EXPECT_EQ(byte_to_char(0xAD), 0x143u);
  EXPECT_EQ(byte_to_char(0xFF), 0xFFu);
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(from_byte_alphabet("▁the"), std::nullopt);
  const auto order = bytes_in_alphabet_order();
  EXPECT_EQ(order[0], '!');     // id 0 of GPT-2
  EXPECT_EQ(order[220], ' ');   // id 220
  EXPECT_EQ(order[198], '\n');  // id 198
}

TEST(Splitter, gpt2) {
  EXPECT_THAT(split(gpt2_pattern(), "I've 12345 café's  !?  \n\n x's"),
              ElementsAre("I", "'ve", " 12345", " café", "'s", " ", " !?", "  \n\n", " x", "'s"));
  EXPECT_THAT(split(gpt2_pattern(), "DON'T  "), ElementsAre("DON", "'", "T", "  "));
  EXPECT_THAT(split(gpt2_pattern(), "a\r\nb"), ElementsAre("a", "\r", "\n", "b"));
  EXPECT_THAT(split(gpt2_pattern(), "中文 ½٣e\u0301"), ElementsAre("中文", " ½٣", "e", "\u0301"));
}

TEST(Splitter, llama3) {
  EXPECT_THAT(split(llama3_pattern(), "DON'T 1234567\t\tx"),
              ElementsAre("DON", "'T", " ", "123", "456", "7", "\t", "\tx"));
  EXPECT_THAT(split(llama3_pattern(), "a.\r\n\r\n  b \n c   "),
              ElementsAre("a", ".\r\n\r\n", " ", " b", " \n", " c", "   "));
  EXPECT_THAT(split(llama3_pattern(), "x'ſ (word)"), ElementsAre("x", "'ſ", " (", "word", ")"));
}

TEST(Splitter, qwen2_takes_digits_one_by_one) {
  EXPECT_THAT(split(qwen2_pattern(), "12 a34"), ElementsAre("1", "2", " a", "3", "4"));
}

TEST(Splitter, tiktoken_v1_and_v2) {
  EXPECT_THAT(split(tiktoken_v1_pattern(), "CamelCase don't\n\n7/8"),
              ElementsAre("CamelCase", " don", "'t", "\n\n", "7", "/", "8"));
  EXPECT_THAT(split(tiktoken_v2_pattern(), "CamelCase HTTPServer don't\n\n7/8/\n"),
              ElementsAre("Camel", "Case", " HTTPServer", " don", "'t", "\n\n", "7", "/", "8", "/\n"));
}

TEST(Splitter, blanks_are_the_25_white_space_characters) {
  const Splitter blank({{R"(\s)", Gaps::Drop}}), blank_in_class({{R"([^\S])", Gaps::Drop}});
  const Splitter other({{R"([^\s])", Gaps::Drop}}), other_outside({{R"(\S)", Gaps::Drop}});
  const auto matches = [](const Splitter& splitter, std::string_view text) {
    bool found = false;
    splitter.for_each_word(text, [&](std::string_view) { found = true; });
    return found;
  };
  std::vector<char32_t> blanks;
  for (char32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    utf8_append(code, text);
    const bool is_blank = matches(blank, text);
    ASSERT_EQ(matches(blank_in_class, text), is_blank) << static_cast<uint32_t>(code);
    ASSERT_EQ(matches(other, text), !is_blank) << static_cast<uint32_t>(code);
    ASSERT_EQ(matches(other_outside, text), !is_blank) << static_cast<uint32_t>(code);
    if (is_blank) blanks.push_back(code);
  }
  EXPECT_THAT(blanks,
              ElementsAre(0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000));
}

TEST(Splitter, passes_cut_each_others_parts) {
  EXPECT_THAT(split({{R"(\p{N})", Gaps::Keep}, {R"([a-c]+)", Gaps::Keep}}, "xab12cy"),
              ElementsAre("x", "ab", "1", "2", "c", "y"));
  EXPECT_THAT(split({{R"([a-z]+)", Gaps::Drop}}, "-ab--c-"), ElementsAre("ab", "c"));
  EXPECT_THAT(split({{R"(z*)", Gaps::Keep}}, "azzb"), ElementsAre("a", "zz", "b"));  // the empty match is no word
  EXPECT_THAT(split(std::vector<SplitStage>{}, "as it is"), ElementsAre("as it is"));
  EXPECT_THAT(split(gpt2_pattern(), ""), ElementsAre());
}

TEST(Splitter, refuses_a_broken_pattern) {
  try {
    Splitter({{"a(b", Gaps::Keep}});
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("split pattern 'a(b': missing closing parenthesis"));
  }
}

TEST(SpecialTokenFinder, finds_leftmost_then_longest) {
  const SpecialTokenFinder finder({{"<|a|>", 1}, {"<|a|>b", 2}, {"中", 3}});
  const auto is = [&](std::string_view text, size_t from, size_t begin, size_t length, int32_t id) {
    const auto found = finder.find(text, from);
    return found.begin == begin && found.length == length && found.id == id;
  };
  EXPECT_TRUE(is("x<|a|>b", 0, 1, 6, 2));
  EXPECT_TRUE(is("x<|a|>c<|a|>b", 0, 1, 5, 1));
  EXPECT_TRUE(is("x<|a|>c<|a|>b", 2, 7, 6, 2));
  EXPECT_TRUE(is("<|<|中", 0, 4, 3, 3));
  EXPECT_TRUE(is("<|a|", 0, 4, 0, -1));
}

TEST(Normalizer, takes_the_form_and_leaves_equal_text_alone) {
  std::string buffer;
  EXPECT_EQ(normalize(NormalForm::Nfc, "cafe\u0301", buffer), "café");
  EXPECT_EQ(normalize(NormalForm::Nfd, "é", buffer), "e\u0301");
  EXPECT_EQ(normalize(NormalForm::Nfkc, "ﬁ²", buffer), "fi2");
  const std::string plain = "already café";
  EXPECT_EQ(normalize(NormalForm::Nfc, plain, buffer).data(), plain.data());
}

// ---- merging

BpeVocabulary with_bytes(std::vector<std::string> more) {
  BpeVocabulary v;
  for (int b = 0; b < 256; ++b) v.tokens.emplace_back(1, static_cast<char>(b));
  for (auto& token : more) v.tokens.push_back(std::move(token));
  return v;
}

/// The definition: merge the pair of smallest rank, leftmost first, until none is left.
std::vector<int32_t> merge_by_definition(const BpeVocabulary& v, std::string_view word) {
  std::map<std::pair<int32_t, int32_t>, size_t> rank;
  for (size_t i = 0; i < v.merges.size(); ++i) rank.emplace(v.merges[i], i);
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best = v.merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = rank.find({ids[i], ids[i + 1]});
      if (it != rank.end() && it->second < best) best = it->second, at = i;
    }
    if (best == v.merges.size()) return ids;
    const std::string whole = v.tokens[ids[at]] + v.tokens[ids[at + 1]];
    ids[at] = static_cast<int32_t>(std::find(v.tokens.begin(), v.tokens.end(), whole) - v.tokens.begin());
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view word) {
  std::vector<int32_t> ids;
  model.encode(word, ids);
  return ids;
}

TEST(BpeModel, merges_by_rank_not_by_length) {
  auto v = with_bytes({"bc", "ab", "abc"});  // 256, 257, 258
  v.merges = {{'b', 'c'}, {'a', 'b'}, {'a', 256}};
  EXPECT_THAT(encode(BpeModel(v), "abc"), ElementsAre(258));
  EXPECT_THAT(encode(BpeModel(v), "abab"), ElementsAre(257, 257));
  v.merges = {{'a', 'b'}, {'b', 'c'}};  // now "abc" is a token that its bytes never merge to
  EXPECT_THAT(encode(BpeModel(v), "abc"), ElementsAre(257, 'c'));
  v.whole_words_first = true;
  EXPECT_THAT(encode(BpeModel(v), "abc"), ElementsAre(258));
  EXPECT_THAT(encode(BpeModel(v), "abca"), ElementsAre(257, 'c', 'a'));
}

TEST(BpeModel, by_rank_any_two_tokens_that_make_a_token_merge) {
  auto v = with_bytes({"ab", "cd", "abcd", "bc"});  // 256..259
  v.order = MergeOrder::Rank;
  EXPECT_THAT(encode(BpeModel(v), "xabcd"), ElementsAre('x', 258));
  EXPECT_THAT(encode(BpeModel(v), "bcd"), ElementsAre('b', 257));
}

TEST(BpeModel, short_and_long_words_follow_the_definition) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    auto v = with_bytes({});
    while (v.merges.size() < 40) {  // random merges over a, b, c and what they made
      const auto pick = [&] {
        const size_t n = v.tokens.size() - 256 + 3;
        const size_t i = random() % n;
        return static_cast<int32_t>(i < 3 ? 'a' + i : 256 + i - 3);
      };
      const std::pair<int32_t, int32_t> merge{pick(), pick()};
      const std::string token = v.tokens[merge.first] + v.tokens[merge.second];
      if (std::find(v.merges.begin(), v.merges.end(), merge) != v.merges.end() || token.size() > 20) continue;
      v.merges.push_back(merge);
      if (std::find(v.tokens.begin(), v.tokens.end(), token) == v.tokens.end()) v.tokens.push_back(token);
    }
    const BpeModel model(v);
    for (const size_t length : {1, 2, 3, 7, 20, 63, 64, 65, 66, 200}) {
      std::string word(length, 'a');
      for (char& c : word) c = static_cast<char>('a' + random() % 3);
      ASSERT_EQ(encode(model, word), merge_by_definition(v, word)) << "round " << round << " word " << word;
    }
  }
}

TEST(BpeModel, a_word_of_a_million_bytes_is_done_in_n_log_n) {
  auto v = with_bytes({"aa", "aaaa", "aaaaaaaa"});
  v.merges = {{'a', 'a'}, {256, 256}, {257, 257}};
  EXPECT_EQ(encode(BpeModel(v), std::string(1 << 20, 'a')), std::vector<int32_t>(1 << 17, 258));
}

TEST(BpeModel, refuses_vocabularies_that_lose_text) {
  const auto why = [](BpeVocabulary v) -> std::string {
    try {
      BpeModel model(std::move(v));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  auto v = with_bytes({});
  v.tokens['\n'] = v.tokens[0x80] = "";
  EXPECT_THAT(why(v), HasSubstr("2 of the 256 bytes have no token"));
  EXPECT_THAT(why(with_bytes({"ab", "ab"})), HasSubstr("ids 256 and 257 are both 'ab'"));
  v = with_bytes({});
  v.merges = {{'a', '\n'}};
  EXPECT_THAT(why(v), HasSubstr("merge 1: 'a' + '\\x0A' is not in the vocabulary"));
}

}  // namespace
}  // namespace triax::io
