// Tokenizers that need no BPE, and what every type says of options and files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/tokenizer/tokenizer.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using nlohmann::json;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFixtures = TRIAX_SOURCE_DIR "/tests/fixtures/tokenizer/";

std::string refusal(const TokenizerOptions& options) {
  try {
    make_tokenizer(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ByteLevelTokenizer, an_id_is_a_byte) {
  const auto tokenizer = make_tokenizer({.type = "ByteLevelTokenizer"});
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  EXPECT_EQ(tokenizer->eod(), 0);
  EXPECT_THAT(tokenizer->encode("Aé\xFF"), ElementsAre(65, 0xC3, 0xA9, 0xFF));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{65, 0xC3, 0xA9, 300, 66}),
            "Aé\xEF\xBF\xBD"
            "B");
  EXPECT_EQ(tokenizer->token_text(0), "<0x00>");
  EXPECT_EQ(tokenizer->hash(), "2b40cdd4b285f5e1");
  EXPECT_EQ(make_tokenizer({.type = "ByteLevelTokenizer", .vocab_size = 256})->vocab_size(), 256);
  EXPECT_THAT(refusal({.type = "ByteLevelTokenizer", .vocab_size = 255}), HasSubstr("--vocab-size '255'"));
}

TEST(NullTokenizer, an_id_is_a_code_point_modulo_the_vocabulary) {
  const auto tokenizer = make_tokenizer({.type = "NullTokenizer", .vocab_size = 100});
  EXPECT_EQ(tokenizer->vocab_size(), 101);
  EXPECT_EQ(tokenizer->eod(), 100);
  EXPECT_THAT(tokenizer->encode("Az中\xFF"), ElementsAre(65, 22, 0x4E2D % 100, 0xFFFD % 100));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{65, 22, 100}), "65 22 100");
  EXPECT_NE(tokenizer->hash(), make_tokenizer({.type = "NullTokenizer", .vocab_size = 101})->hash());
  EXPECT_THAT(refusal({.type = "NullTokenizer"}), HasSubstr("--vocab-size '0': NullTokenizer needs it"));
}

TEST(MakeTokenizer, names_what_is_missing) {
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("--tokenizer-type ''"), HasSubstr("GPT2BPETokenizer")));
  EXPECT_THAT(refusal({.type = "BertWordPieceCase"}), HasSubstr("--tokenizer-type 'BertWordPieceCase'"));
  EXPECT_THAT(refusal({.type = "GPT2BPETokenizer"}), HasSubstr("needs --vocab-file and --merge-file"));
  EXPECT_THAT(refusal({.type = "GPT2BPETokenizer", .vocab_file = "v"}), HasSubstr("needs --merge-file: give"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer"}), HasSubstr("--tokenizer-model '': is missing"));
  EXPECT_THAT(refusal({.type = "TikTokenizer"}), HasSubstr("--tokenizer-model '': is missing"));
  EXPECT_THAT(refusal({.type = "Llama2Tokenizer"}), HasSubstr("--tokenizer-model '': is missing"));
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = "some-org/some-model"}),
              AllOf(HasSubstr("model hub are not looked up"), HasSubstr("download")));
}

TEST(MakeTokenizer, names_the_fault_of_a_file) {
  const TemporaryDirectory folder;
  const std::string file = folder.file("file");
  const auto gpt2 = [&](const std::string& vocab, const std::string& merges) {
    test::write_file(folder.file("vocab.json"), vocab);
    test::write_file(folder.file("merges.txt"), merges);
    return refusal(
        {.type = "GPT2BPETokenizer", .vocab_file = folder.file("vocab.json"), .merge_file = folder.file("merges.txt")});
  };
  const std::string vocab = test::read_file(kFixtures + "vocab.json");
  EXPECT_EQ(gpt2(vocab, "#version: 0.2\nh e\n\ni n\n"), "accepted");
  EXPECT_THAT(gpt2("", "h e\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(gpt2("{\"a\": 1", "h e\n"), HasSubstr("is not JSON"));
  EXPECT_THAT(gpt2("[1]", "h e\n"), HasSubstr("not an object of tokens and ids"));
  EXPECT_THAT(gpt2("{\"a\": -1}", "h e\n"), HasSubstr("token 'a' has the id -1"));
  EXPECT_THAT(gpt2("{\"a\": 3, \"b\": 3}", "h e\n"), HasSubstr("two tokens have the id 3"));
  EXPECT_THAT(gpt2("{\"a\": 3, \"b\": 4}", "a b\n"), HasSubstr("254 of the 256 bytes have no token"));
  EXPECT_THAT(gpt2(vocab, "h e\nhe\n"), HasSubstr("line 2: 'he' is not two tokens"));
  EXPECT_THAT(gpt2(vocab, "h e\nh QQ\n"),
              HasSubstr("line 2: the merge of 'h' and 'QQ': 'QQ' is not in the vocabulary"));
  EXPECT_THAT(gpt2(vocab, "h e\n# Z\n"), HasSubstr("merge 2: '#' + 'Z' is not in the vocabulary"));

  const auto tik = [&](const std::string& content) {
    test::write_file(file, content);
    return refusal({.type = "TikTokenizer", .model = file});
  };
  EXPECT_THAT(tik("IQ== 0\nIg=="), HasSubstr("line 2 is not a base64 token, a blank and a rank"));
  EXPECT_THAT(tik("IQ== 0\n"), HasSubstr("255 of the 256 bytes have no token"));
  EXPECT_THAT(tik("I*== 0\n"), HasSubstr("is not base64"));
  EXPECT_THAT(tik("IQ== 0\nIg== 0\n"), HasSubstr("rank 0 is given twice"));
  EXPECT_THAT(tik("[{\"rank\": 0}]"), HasSubstr("no list of rank and token_bytes"));
  EXPECT_THAT(refusal({.type = "TikTokenizer", .model = file, .tiktoken_pattern = "v3"}), HasSubstr("give v1 or v2"));
  EXPECT_THAT(refusal({.type = "TikTokenizer", .model = file, .tiktoken_num_special_tokens = 6}),
              HasSubstr("give 7 or more"));
  EXPECT_THAT(refusal({.type = "TikTokenizer", .model = file, .tiktoken_special_tokens = {"<unk>", "<s>"}}),
              HasSubstr("</s> is missing"));
  EXPECT_THAT(refusal({.type = "TikTokenizer", .model = kFixtures + "ranks.tiktoken", .vocab_size = 1512}),
              HasSubstr("give 1256 to 1511"));

  test::write_file(file, "not a protobuf");
  EXPECT_THAT(refusal({.type = "SentencePieceTokenizer", .model = file}), HasSubstr("is no SentencePiece model"));
}

TEST(HuggingFaceTokenizer, refuses_by_name_what_it_does_not_do) {
  const TemporaryDirectory folder;
  const auto with = [&](const json& patch) {
    json root = json::parse(test::read_file(kFixtures + "tokenizer.json"));
    root.merge_patch(patch);
    test::write_file(folder.file("tokenizer.json"), root.dump());
    return refusal({.type = "HuggingFaceTokenizer", .model = folder.file("tokenizer.json")});
  };
  EXPECT_EQ(with(json::object()), "accepted");
  EXPECT_THAT(with({{"model", {{"type", "Unigram"}}}}), HasSubstr("the model type Unigram is not done"));
  EXPECT_THAT(with({{"model", {{"type", "WordPiece"}}}}), HasSubstr("the model type WordPiece is not done"));
  EXPECT_THAT(with({{"model", {{"byte_fallback", true}}}}), HasSubstr("falls back to bytes"));
  EXPECT_THAT(with({{"model", {{"dropout", 0.1}}}}), HasSubstr("dropout 0.1 is not done"));
  EXPECT_THAT(with({{"model", {{"end_of_word_suffix", "</w>"}}}}), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with({{"normalizer", {{"type", "Lowercase"}}}}), HasSubstr("the normalizer Lowercase is not done"));
  EXPECT_THAT(with({{"pre_tokenizer", {{"type", "Metaspace"}}}}), HasSubstr("does not end in ByteLevel"));
  EXPECT_THAT(with({{"pre_tokenizer", nullptr}}), HasSubstr("does not end in ByteLevel"));
  EXPECT_THAT(with({{"post_processor", {{"type", "BertProcessing"}}}}), HasSubstr("the post_processor BertProcessing"));
  EXPECT_THAT(with({{"added_tokens", json::array({{{"id", 511}, {"content", "<mask>"}, {"lstrip", true}}})}}),
              HasSubstr("'<mask>' has lstrip"));
  EXPECT_THAT(with({{"model", {{"merges", json::array({"h e", "he"})}}}}), HasSubstr("'he' is not two tokens"));
  EXPECT_THAT(with({{"model", {{"vocab", nullptr}}}}), HasSubstr("is not laid out as a tokenizer.json"));
  EXPECT_THAT(with({{"model", nullptr}}), HasSubstr("has no \"model\""));
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "a(b"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto split_with = [&](const char* key, const json& value) {
    json changed = split;
    changed[key] = value;
    return with(
        {{"pre_tokenizer",
          {{"type", "Sequence"}, {"pretokenizers", {changed, {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}}}});
  };
  EXPECT_THAT(split_with("behavior", "MergedWithNext"), HasSubstr("behavior 'MergedWithNext'"));
  EXPECT_THAT(split_with("invert", false), HasSubstr("split pattern 'a(b'"));
  EXPECT_EQ(split_with("pattern", {{"String", "a(b"}}), "accepted");
}

TEST(HuggingFaceTokenizer, says_what_else_a_directory_holds) {
  const TemporaryDirectory folder;
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = folder.path()}), HasSubstr("holds no tokenizer.json"));
  test::write_file(folder.file("tokenizer.model"), "");
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = folder.path()}), HasSubstr("SentencePieceTokenizer"));
  test::write_file(folder.file("vocab.json"), "");
  test::write_file(folder.file("merges.txt"), "");
  EXPECT_THAT(refusal({.type = "HuggingFaceTokenizer", .model = folder.path()}), HasSubstr("GPT2BPETokenizer"));
}

}  // namespace
}  // namespace triax::io
