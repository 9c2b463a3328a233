// Ids equal those of the Hugging Face tokenizers and tiktoken libraries on odd texts (tests/fixtures/tokenizer/
// make_fixtures.py), bytes survive the round trip, and hashes name the content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "io/tokenizer/tokenizer.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using nlohmann::json;
using test::TemporaryDirectory;

const std::string kFixtures = TRIAX_SOURCE_DIR "/tests/fixtures/tokenizer/";

const json& cases() {
  static const json parsed = json::parse(test::read_file(kFixtures + "cases.json"));
  return parsed;
}

std::unique_ptr<Tokenizer> gpt2() {
  return make_tokenizer(
      {.type = "GPT2BPETokenizer", .vocab_file = kFixtures + "vocab.json", .merge_file = kFixtures + "merges.txt"});
}

/// tokenizer.json of the fixtures with a merge patch.
std::unique_ptr<Tokenizer> hugging_face(const TemporaryDirectory& folder, const json& patch) {
  json root = json::parse(test::read_file(kFixtures + "tokenizer.json"));
  root.merge_patch(patch);
  test::write_file(folder.file("tokenizer.json"), root.dump());
  return make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder.path()});
}

std::unique_ptr<Tokenizer> tik(const std::string& pattern, int64_t vocab_size = 0) {
  return make_tokenizer({.type = "TikTokenizer",
                         .model = kFixtures + "ranks.tiktoken",
                         .vocab_size = vocab_size,
                         .tiktoken_pattern = pattern});
}

/// Every byte, valid and broken UTF-8 mixed.
std::vector<std::string> broken_texts() {
  std::vector<std::string> texts = {"\xFF", "a\x80z", "\xE4\xB8", "ok \xC3\xA9 \xC3 caf\xC3", std::string("\0\0", 2)};
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 256 : 'a' + random() % 4);
    texts.push_back(text);
  }
  return texts;
}

TEST(HuggingFaceTokenizer, gives_the_librarys_ids_in_every_variant) {
  const TemporaryDirectory folder;
  ASSERT_EQ(cases()["variants"].size(), 9u);
  ASSERT_EQ(cases()["texts"].size(), 99u);
  for (const auto& [name, variant] : cases()["variants"].items()) {
    const auto tokenizer = hugging_face(folder, variant["patch"]);
    for (size_t i = 0; i < cases()["texts"].size(); ++i) {
      const auto text = cases()["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), variant["ids"][i].get<std::vector<int32_t>>()) << name << ": " << text;
    }
  }
}

TEST(GPT2BPETokenizer, gives_the_librarys_ids) {
  const auto tokenizer = gpt2();
  EXPECT_EQ(tokenizer->type(), "GPT2BPETokenizer");
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  EXPECT_EQ(tokenizer->eod(), 511);
  for (size_t i = 0; i < cases()["texts"].size(); ++i) {
    const auto text = cases()["texts"][i].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), cases()["variants"]["gpt2"]["ids"][i].get<std::vector<int32_t>>()) << text;
  }
}

TEST(TikTokenizer, gives_the_librarys_ids) {
  for (const std::string pattern : {"v1", "v2"}) {
    const auto tokenizer = tik(pattern);
    EXPECT_EQ(tokenizer->vocab_size(), 1000 + 511);
    EXPECT_EQ(tokenizer->bos(), 1);
    EXPECT_EQ(tokenizer->eod(), 2);
    for (size_t i = 0; i < cases()["texts"].size(); ++i) {
      const auto text = cases()["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), cases()["tiktoken"][pattern][i].get<std::vector<int32_t>>()) << text;
    }
  }
}

TEST(TikTokenizer, reads_megatrons_json_and_cuts_to_vocab_size) {
  const TemporaryDirectory folder;
  test::write_file(folder.file("ranks.json"), [] {
    std::istringstream lines(test::read_file(kFixtures + "ranks.tiktoken"));
    json list = json::array();
    std::string token;
    for (int64_t rank; lines >> token >> rank;)
      list.push_back({{"rank", rank}, {"token_bytes", token}, {"token_str", ""}});
    return list.dump();
  }());
  const auto from_json = make_tokenizer({.type = "TikTokenizer", .model = folder.file("ranks.json")});
  EXPECT_EQ(from_json->hash(), tik("v2")->hash());
  EXPECT_NE(from_json->hash(), tik("v1")->hash());
  const auto bytes_only = tik("v2", 1000 + 256);
  EXPECT_EQ(bytes_only->vocab_size(), 1256);
  EXPECT_EQ(bytes_only->encode("the</s>"), (std::vector<int32_t>{1000 + 't', 1000 + 'h', 1000 + 'e', 2}));
  EXPECT_EQ(bytes_only->decode(std::vector<int32_t>{1000 + 't', 2, 999}), "t</s><SPECIAL_999>");
}

TEST(BpeTokenizers, bytes_survive_the_round_trip) {
  const TemporaryDirectory folder;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(gpt2());
  for (const char* name : {"llama3", "single digits", "three splits"}) {
    tokenizers.push_back(hugging_face(folder, cases()["variants"][name]["patch"]));
  }
  tokenizers.push_back(tik("v1"));
  tokenizers.push_back(tik("v2"));
  auto texts = broken_texts();
  for (const auto& text : cases()["texts"]) texts.push_back(text.get<std::string>());
  for (const auto& tokenizer : tokenizers) {
    for (const auto& text : texts) ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << tokenizer->type();
  }
}

TEST(BpeTokenizers, ids_outside_the_vocabulary_decode_to_replacement_characters) {
  EXPECT_EQ(gpt2()->decode(std::vector<int32_t>{-1, 512, 511}), "\xEF\xBF\xBD\xEF\xBF\xBD<|endoftext|>");
}

TEST(BpeTokenizers, encode_appends_and_may_run_in_many_threads) {
  const auto tokenizer = gpt2();
  std::vector<int32_t> appended = {7};
  tokenizer->encode("a", appended);
  EXPECT_EQ(appended, (std::vector<int32_t>{7, 64}));
  std::string text;
  for (const auto& one : cases()["texts"]) text += one.get<std::string>();
  const auto alone = tokenizer->encode(text);
  std::vector<std::vector<int32_t>> together(4);
  std::vector<std::thread> threads;
  for (auto& ids : together) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) ids.clear(), tokenizer->encode(text, ids);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& ids : together) EXPECT_EQ(ids, alone);
}

TEST(BpeTokenizers, token_text_is_printable) {
  const auto tokenizer = gpt2();
  EXPECT_EQ(tokenizer->token_text(tokenizer->encode("\n")[0]), "<0x0A>");
  EXPECT_EQ(tokenizer->token_text(tokenizer->encode("\xFF")[0]), "<0xFF>");
  EXPECT_EQ(tokenizer->token_text(tokenizer->encode(" the")[0]), " the");
  EXPECT_EQ(tokenizer->token_text(511), "<|endoftext|>");
}

TEST(TokenizerHash, names_the_content_not_the_file) {
  const TemporaryDirectory folder;
  EXPECT_EQ(gpt2()->hash(), "cb35d0a28c32b1eb");  // fixed: data sets built earlier carry it
  EXPECT_EQ(tik("v2")->hash(), "44181a8f7e2d3bdd");
  EXPECT_EQ(hugging_face(folder, json::object())->hash(), gpt2()->hash());  // one content, two kinds of file

  const std::string merges = test::read_file(kFixtures + "merges.txt");
  const auto hash_with = [&](const std::string& changed) {
    test::write_file(folder.file("merges.txt"), changed);
    return make_tokenizer({.type = "GPT2BPETokenizer",
                           .vocab_file = kFixtures + "vocab.json",
                           .merge_file = folder.file("merges.txt")})
        ->hash();
  };
  const size_t second = merges.find('\n', merges.find('\n') + 1) + 1, third = merges.find('\n', second) + 1;
  const std::string first_line = merges.substr(merges.find('\n') + 1, second - merges.find('\n') - 1);
  const std::string swapped = merges.substr(second, third - second) + first_line + merges.substr(third);
  EXPECT_EQ(hash_with(merges.substr(merges.find('\n') + 1)), gpt2()->hash());  // without the version line
  EXPECT_NE(hash_with(swapped), gpt2()->hash());
  std::vector<std::string> hashes;
  for (const auto& [name, variant] : cases()["variants"].items()) {
    hashes.push_back(hugging_face(folder, variant["patch"])->hash());
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

TEST(HuggingFaceTokenizer, finds_the_end_of_document) {
  const TemporaryDirectory folder;
  const auto eod_with = [&](const std::string& file, const std::string& content) {
    test::write_file(folder.file(file), content);
    const auto eod = hugging_face(folder, json::object())->eod();
    std::filesystem::remove(folder.file(file));
    return eod;
  };
  EXPECT_EQ(eod_with("README", ""), 511);  // by its well-known name
  EXPECT_EQ(eod_with("tokenizer_config.json", R"({"eos_token": "he"})"), gpt2()->encode("he")[0]);
  EXPECT_EQ(eod_with("tokenizer_config.json", R"({"eos_token": {"content": "<|endoftext|>"}, "bos_token": null})"),
            511);
  EXPECT_EQ(eod_with("special_tokens_map.json", R"({"eos_token": "!"})"), 0);
  EXPECT_THROW(eod_with("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"), ConfigError);
}

}  // namespace
}  // namespace triax::io
