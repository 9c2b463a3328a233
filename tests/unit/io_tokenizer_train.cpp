// Training: merges worked out by hand, the same input gives the same files, and what is written opens and encodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "io/tokenizer/bpe_trainer.h"
#include "io/tokenizer/byte_alphabet.h"
#include "io/tokenizer/train.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> learned_tokens(const LearnedBpe& learned) {
  return {learned.tokens.begin() + 256, learned.tokens.end()};
}

/// A text with words that repeat, in the manner of a story; no two lines alike.
std::string story(int lines) {
  const std::vector<std::string> who = {"The captain", "Her sister", "An old sailor", "Der Müller", "船長"};
  const std::vector<std::string> what = {"didn't know", "had found", "was looking for", "remembered", "sold"};
  const std::vector<std::string> object = {"the harbour", "12 ships", "a café", "the weather", "nothing at all"};
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text +=
        who[i % 5] + " " + what[i / 5 % 5] + " " + object[i / 25 % 5] + ", as of " + std::to_string(1800 + i) + ".\n";
  }
  return text;
}

TEST(BpeTrainer, merges_the_most_frequent_pair_first) {
  BpeTrainer trainer;
  trainer.add_word("low", 5);
  trainer.add_word("lower", 2);
  trainer.add_word("newest", 6);
  trainer.add_word("widest", 3);
  // es 9 and st 9: e comes before s, so es. Then est 9. Then lo 7 and ow 7, so lo; low 7. Then ne 6, ew 6, w+est 6: ew;
  // n+ew 6 before ew+est 6, as n has the smaller id.
  const auto learned = trainer.learn(256 + 6);
  EXPECT_THAT(learned_tokens(learned), ElementsAre("es", "est", "lo", "low", "ew", "new"));
  EXPECT_EQ(learned.merges[1], (std::pair<int32_t, int32_t>{256, 't' - '!'}));
}

TEST(BpeTrainer, runs_of_one_byte_are_counted_as_they_merge) {
  BpeTrainer trainer;
  trainer.add_word("aaaaa", 2);
  // aa aa a: then (aa, a) and (aa, aa) occur twice each, and a has the smaller id.
  EXPECT_THAT(learned_tokens(trainer.learn(300)), ElementsAre("aa", "aaa", "aaaaa"));
}

TEST(BpeTrainer, stops_when_no_pair_occurs_twice) {
  BpeTrainer trainer;
  trainer.add_word("abc");
  trainer.add_word("xbc");
  EXPECT_THAT(learned_tokens(trainer.learn(300)), ElementsAre("bc"));
}

TEST(TrainTokenizer, bpe_files_are_deterministic_and_open_in_both_forms) {
  const TemporaryDirectory folder;
  const std::string text = story(400);
  test::write_file(folder.file("a.txt"), text);
  TrainTokenizerOptions options{
      .inputs = {folder.file("a.txt")}, .output_prefix = folder.file("one"), .vocab_size = 400};
  const auto trained = train_tokenizer(options);
  EXPECT_EQ(trained.vocab_size, 400);
  EXPECT_THAT(trained.files, ElementsAre(folder.file("one-vocab.json"), folder.file("one-merges.txt")));

  // The same text from two files and through a source: the same bytes.
  const size_t cut = text.find('\n', text.size() / 2) + 1;
  test::write_file(folder.file("b.txt"), text.substr(0, cut));
  test::write_file(folder.file("c.txt"), text.substr(cut));
  options.inputs = {folder.file("b.txt"), folder.file("c.txt")};
  options.output_prefix = folder.file("two");
  train_tokenizer(options);
  for (const char* file : {"-vocab.json", "-merges.txt"}) {
    EXPECT_EQ(test::read_file(folder.file(std::string("one") + file)),
              test::read_file(folder.file(std::string("two") + file)));
  }
  const auto tokenizer = make_tokenizer(trained.open);
  EXPECT_EQ(tokenizer->eod(), 399);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode(text).size(), text.size() / 2);
  EXPECT_EQ(tokenizer->encode(" captain").size(), 1u);

  options.type = "HuggingFaceTokenizer";
  options.output_prefix = folder.file("hf");
  const auto as_json = make_tokenizer(train_tokenizer(options).open);
  EXPECT_EQ(as_json->hash(), tokenizer->hash());
  EXPECT_EQ(as_json->eod(), 399);
  options.pattern = "llama3";
  const auto llama3 = make_tokenizer(train_tokenizer(options).open);
  EXPECT_NE(llama3->hash(), tokenizer->hash());
  EXPECT_EQ(llama3->decode(llama3->encode(text)), text);
}

TEST(TrainTokenizer, vocabulary_may_fall_short_of_the_request) {
  const TemporaryDirectory folder;
  bool given = false;
  const auto once = [&](std::string& text) {
    text = "aaa aaa";
    return !std::exchange(given, true);
  };
  // " aaa" and "aaa": aa 4, then aaa 2 by (aa, a); " aaa" occurs once.
  EXPECT_EQ(train_tokenizer({.output_prefix = folder.file("x")}, once).vocab_size, 256 + 2 + 1);
}

TEST(TrainTokenizer, sentencepiece_of_both_kinds) {
  const TemporaryDirectory folder;
  const std::string text = story(400);
  test::write_file(folder.file("a.txt"), text);
  for (const std::string kind : {"bpe", "unigram"}) {
    TrainTokenizerOptions options{.type = "SentencePieceTokenizer",
                                  .inputs = {folder.file("a.txt")},
                                  .output_prefix = folder.file(kind),
                                  .vocab_size = 320,
                                  .model_type = kind};
    const auto trained = train_tokenizer(options);
    EXPECT_EQ(trained.vocab_size, 320);
    const std::string model = test::read_file(folder.file(kind + ".model"));
    options.output_prefix = folder.file("again");
    train_tokenizer(options);
    EXPECT_EQ(test::read_file(folder.file("again.model")), model);

    for (const char* type : {"SentencePieceTokenizer", "Llama2Tokenizer", "GPTSentencePieceTokenizer"}) {
      auto open = trained.open;
      open.type = type;
      const auto tokenizer = make_tokenizer(open);
      EXPECT_EQ(tokenizer->type(), type);
      EXPECT_EQ(tokenizer->bos(), 1);
      EXPECT_EQ(tokenizer->eod(), 2);
      const std::string odd = "Two  blanks,\ttab\n\nlines, 1849, é 船 \U0001F44D end ";
      for (const auto& sample : {text, odd}) EXPECT_EQ(tokenizer->decode(tokenizer->encode(sample)), sample) << kind;
      EXPECT_THAT(tokenizer->encode(text), ::testing::Not(::testing::Contains(1)));  // no begin token
      EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{320}), "\xEF\xBF\xBD");
      EXPECT_EQ(tokenizer->token_text(2), "</s>");
    }
  }
}

TEST(TrainTokenizer, refuses_what_cannot_be_trained) {
  const TemporaryDirectory folder;
  test::write_file(folder.file("empty.txt"), "");
  test::write_file(folder.file("a.txt"), "a few words only\n");
  const auto why = [&](TrainTokenizerOptions options) -> std::string {
    if (options.inputs.empty()) options.inputs = {folder.file("a.txt")};
    options.output_prefix = folder.file("x");
    try {
      train_tokenizer(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(why({.type = "TikTokenizer"}), HasSubstr("--tokenizer-type 'TikTokenizer'"));
  EXPECT_THAT(why({.inputs = {folder.file("none.txt")}}), HasSubstr("there is no such file"));
  EXPECT_THAT(why({.inputs = {folder.file("empty.txt")}}), HasSubstr("the files hold no text"));
  EXPECT_THAT(why({.vocab_size = 256}), HasSubstr("--vocab-size '256'"));
  EXPECT_THAT(why({.pattern = "llama3"}), HasSubstr("HuggingFaceTokenizer"));
  EXPECT_THAT(why({.type = "HuggingFaceTokenizer", .pattern = "x"}), HasSubstr("give gpt2, llama3 or qwen2"));
  EXPECT_THAT(why({.type = "SentencePieceTokenizer", .inputs = {folder.file("empty.txt")}}), HasSubstr("no text"));
  EXPECT_THAT(why({.type = "SentencePieceTokenizer", .model_type = "word"}), HasSubstr("give bpe or unigram"));
  EXPECT_THAT(why({.type = "SentencePieceTokenizer", .vocab_size = 4000, .model_type = "unigram"}),
              HasSubstr("SentencePiece says: "));
  TrainTokenizerOptions nowhere{.inputs = {folder.file("a.txt")}, .output_prefix = folder.file("no/such/place")};
  EXPECT_THROW(train_tokenizer(nowhere), RunTimeError);
}

}  // namespace
}  // namespace triax::io
