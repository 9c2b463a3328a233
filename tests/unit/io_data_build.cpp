// From text to .bin/.idx: formats, compression, documents, errors, order with many threads, description.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "io/data/build_dataset.h"
#include "io/data/description.h"
#include "io/data/indexed_dataset.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::read_file;
using test::TemporaryDirectory;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.erase(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class BuildTest : public testing::Test {
 protected:
  BuildTest() {
    request_.tokenizer.type = "ByteLevelTokenizer";
    request_.output_prefix = dir_.file("out");
    request_.log_interval = 0;
    tokenizer_ = make_tokenizer(request_.tokenizer);
  }
  BuildReport build() { return build_dataset(request_, *tokenizer_); }
  // Builds, and gives each document of the first key as text.
  std::vector<std::string> documents() {
    request_.overwrite = true;
    const IndexedDataset data(build().prefixes[0]);
    std::vector<std::string> texts;
    for (int64_t d = 0; d < data.documents(); ++d) {
      std::vector<int32_t> tokens;
      for (int64_t s = data.document_begin(d); s < data.document_begin(d + 1); ++s) {
        std::vector<int32_t> piece(static_cast<size_t>(data.length(s)));
        data.read(s, 0, piece);
        tokens.insert(tokens.end(), piece.begin(), piece.end());
      }
      texts.push_back(tokenizer_->decode(tokens));
    }
    return texts;
  }
  std::string put(const std::string& name, const std::string& text) {
    write_file(dir_.file(name), text);
    return dir_.file(name);
  }
  template <class Fault>
  std::string error() {
    try {
      build();
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "no error";
  }
  TemporaryDirectory dir_;
  BuildRequest request_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(BuildTest, a_text_file_is_a_document) {
  request_.input.inputs = {put("a.txt", "Hello\n\nworld\n"), put("empty.txt", ""), put("b.txt", "x")};
  EXPECT_THAT(documents(), ElementsAre("Hello\n\nworld\n", "", "x"));
}

TEST_F(BuildTest, a_separator_cuts_documents_wherever_blocks_end) {
  std::string text;
  std::vector<std::string> want;
  for (int i = 0; i < 300; ++i) {
    want.push_back(std::string(static_cast<size_t>(i * 37 % 11000 + 1), static_cast<char>('a' + i % 26)));
    text += want.back() + (i % 7 == 0 ? "\n\n\n\n\n\n" : "\n\n\n");
  }
  request_.input.inputs = {put("a.txt", text), put("b.txt", "tail\n\n\n \n\n\n")};
  want.emplace_back("tail");
  request_.input.separator = "\n\n\n";
  request_.input.batch_bytes = 1000;
  EXPECT_EQ(documents(), want);
}

TEST_F(BuildTest, compressed_inputs_are_told_by_content) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i) + " ";
  request_.input.inputs = {put("plain", text), put("g.txt.gz", gzip(text)), put("unnamed", zstd(text)),
                           put("members.gz", gzip("one ") + gzip("two")),
                           put("frames.zst", zstd("one ") + zstd("two"))};
  EXPECT_THAT(documents(), ElementsAre(text, text, text, "one two", "one two"));
  request_.input.inputs = {put("cut.gz", gzip(text).substr(0, 5000))};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("cut.gz: damaged gzip data: ends within"));
  request_.input.inputs = {put("cut.zst", zstd(text).substr(0, 5000))};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("cut.zst: damaged zstd data: ends within"));
  std::string flipped = gzip(text);
  flipped[4000] = static_cast<char>(flipped[4000] ^ 0x55);
  request_.input.inputs = {put("bad.gz", flipped)};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("bad.gz: damaged gzip data"));
}

TEST_F(BuildTest, json_lines_follow_preprocess_data) {
  request_.encoder.append_eod = true;
  request_.encoder.json_keys = {"text", "title"};
  request_.input.inputs = {put("a.jsonl",
                               "{\"text\": \"caf\\u00e9\\n\", \"title\": \"T\", \"id\": 3}\n"
                               "\n"
                               "{\"title\": \"\", \"text\": [\"one\", \"\", \"two\"]}\r\n"
                               "{\"text\": \"\", \"title\": \"last\"}")};
  const BuildReport report = build();
  EXPECT_EQ(report.documents, 3);
  EXPECT_THAT(report.prefixes, ElementsAre(dir_.file("out_text_document"), dir_.file("out_title_document")));
  const IndexedDataset text(report.prefixes[0]);
  const int32_t eod = *tokenizer_->eod();
  EXPECT_EQ(text.documents(), 3);
  EXPECT_EQ(text.sequences(), 3);  // "café\n"; "one", "two"; nothing
  EXPECT_EQ(text.length(0), 7);
  EXPECT_EQ(text.length(1), 3);
  EXPECT_EQ(text.length(2), 4) << "EOD lengthens the last sequence";
  EXPECT_EQ(text.document_begin(2), 3) << "an empty text is a document without sequences and without EOD";
  std::vector<int32_t> tokens(4);
  text.read(2, 0, tokens);
  EXPECT_THAT(tokens, ElementsAre('t', 'w', 'o', eod));
  EXPECT_EQ(IndexedDataset(report.prefixes[1]).tokens(), 2 + 0 + 5);
  EXPECT_EQ(report.tokens, 14 + 7);
}

TEST_F(BuildTest, bad_lines_are_named_or_counted) {
  request_.input.inputs = {put("a.jsonl",
                               "{\"text\": \"good\"}\n\n{\"text\": \"cut\n[1]\n{\"body\": \"x\"}\n{\"text\": 5}\n"
                               "{\"text\": [\"a\", 1]}\n{\"text\": \"\xff\"}\n{\"text\": \"end\"}\n")};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("a.jsonl line 3: no valid JSON"));
  EXPECT_FALSE(std::filesystem::exists(dir_.file("out_text_document.bin")));
  request_.encoder.skip_bad_lines = true;
  EXPECT_THAT(documents(), ElementsAre("good", "end"));
  EXPECT_EQ(build().bad_lines, 6);
  request_.encoder.skip_bad_lines = false;
  for (const auto& [line, what] : {std::pair{"[1]", "is no JSON object"},
                                   {"{\"body\": 1}", "has no key \"text\""},
                                   {"{\"text\": null}", "key \"text\" holds neither a string"}}) {
    request_.input.inputs = {put("b.jsonl", line)};
    EXPECT_THAT(error<RunTimeError>(), HasSubstr(std::string("b.jsonl line 1: ") + what));
  }
}

TEST_F(BuildTest, output_does_not_depend_on_workers) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    lines +=
        "{\"text\": \"" + std::string(static_cast<size_t>(i * 7919 % 500), static_cast<char>('a' + i % 26)) + "\"}\n";
  }
  request_.input.inputs = {put("a.jsonl", lines), put("b.txt", "between"), put("c.jsonl", lines)};
  request_.input.batch_bytes = 3000;
  request_.encoder.append_eod = true;
  std::vector<std::string> files;
  for (const int workers : {1, 2, 7}) {
    request_.workers = workers;
    request_.overwrite = true;
    EXPECT_EQ(build().documents, 6001);
    for (const char* suffix : {".bin", ".idx", ".json"})
      files.push_back(read_file(dir_.file("out_text_document") + suffix));
  }
  for (size_t i = 3; i < files.size(); ++i) EXPECT_EQ(files[i], files[i - 3]) << i;
}

TEST_F(BuildTest, the_first_error_in_order_is_reported_whoever_finds_it) {
  std::string lines;
  for (int i = 1; i <= 2000; ++i) lines += i == 700 || i > 1200 ? "bad\n" : "{\"text\": \"good\"}\n";
  request_.input.inputs = {put("a.jsonl", lines), dir_.file("missing")};
  request_.input.batch_bytes = 200;
  request_.workers = 4;
  for (int round = 0; round < 5; ++round) EXPECT_THAT(error<RunTimeError>(), HasSubstr("a.jsonl line 700:"));
  request_.input.inputs = {dir_.file("missing")};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("missing: cannot open"));
  request_.input.inputs = {dir_.path()};
  EXPECT_THAT(error<RunTimeError>(), HasSubstr("is a directory"));
}

TEST_F(BuildTest, replaces_nothing_unless_told) {
  request_.input.inputs = {put("a.txt", "one")};
  build();
  request_.input.inputs = {put("a.txt", "two!")};
  EXPECT_THAT(error<ConfigError>(), HasSubstr("--overwrite"));
  EXPECT_EQ(read_file(dir_.file("out_text_document.bin")).size(), 6u);
  request_.overwrite = true;
  build();
  EXPECT_EQ(read_file(dir_.file("out_text_document.bin")).size(), 8u);
}

TEST_F(BuildTest, formats_are_told_by_name_or_option) {
  const std::string line = "{\"text\": \"x\"}\n";
  request_.input.inputs = {put("a.json", line), put("b.ndjson", line), put("c.jsonl.gz", gzip(line)),
                           put("d.txt", line)};
  EXPECT_THAT(documents(), ElementsAre("x", "x", "x", line));
  request_.input.format = InputFormat::Jsonl;
  EXPECT_THAT(documents(), ElementsAre("x", "x", "x", "x"));
  request_.input.format = InputFormat::Text;
  EXPECT_THAT(documents(), ElementsAre(line, line, line, line));
  request_.encoder.json_keys = {"text", "title"};
  EXPECT_THAT(error<ConfigError>(), HasSubstr("plain text, which has one output"));
}

TEST_F(BuildTest, the_description_says_what_made_the_data) {
  request_.input.inputs = {put("a.txt", "abc")};
  request_.encoder.append_eod = true;
  const std::string prefix = build().prefixes[0];
  const auto description = read_description(prefix);
  ASSERT_TRUE(description.has_value());
  EXPECT_EQ(description->tokenizer.type, "ByteLevelTokenizer");
  EXPECT_EQ(description->tokenizer_hash, tokenizer_->hash());
  EXPECT_EQ(description->vocab_size, tokenizer_->vocab_size());
  EXPECT_EQ(description->eod, tokenizer_->eod());
  EXPECT_TRUE(description->eod_appended);
  EXPECT_EQ(description->token_type, TokenType::UInt16);
  EXPECT_EQ(description->documents, 1);
  EXPECT_EQ(description->tokens, 4);
  EXPECT_EQ(description->text_bytes, 3);
  EXPECT_THAT(description->sources, ElementsAre(dir_.file("a.txt")));
  check_tokenizer(prefix, *description, *make_tokenizer(description->tokenizer));
  const auto other = make_tokenizer({.type = "NullTokenizer", .vocab_size = 300});
  EXPECT_THROW(check_tokenizer(prefix, *description, *other), ConfigError);
  EXPECT_FALSE(read_description(dir_.file("none")).has_value());
  write_file(dir_.file("bad.json"), "{\"schema\": \"triax-data-1\"}");
  EXPECT_THROW(read_description(dir_.file("bad")), RunTimeError);
}

// Paths in the description are relative to it, so data and tokenizer may move together.
TEST_F(BuildTest, the_description_moves_with_its_tokenizer) {
  std::filesystem::create_directories(dir_.file("old/tok"));
  DatasetDescription description;
  description.tokenizer = {
      .type = "GPT2BPETokenizer", .vocab_file = dir_.file("old/tok/v.json"), .merge_file = dir_.file("old/tok/m.txt")};
  write_description(dir_.file("old/data"), description);
  std::filesystem::rename(dir_.file("old"), dir_.file("new"));
  const auto moved = read_description(dir_.file("new/data"));
  EXPECT_EQ(moved->tokenizer.vocab_file, dir_.file("new/tok/v.json"));
  EXPECT_EQ(moved->tokenizer.merge_file, dir_.file("new/tok/m.txt"));
  EXPECT_EQ(moved->tokenizer.model, "");
}

}  // namespace
}  // namespace triax::io
