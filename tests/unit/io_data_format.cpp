// The .bin/.idx format: bytes as Megatron's, every type, 64-bit offsets, damaged files refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "io/data/indexed_dataset.h"
#include "io/data/indexed_writer.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::from_hex;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;
using Tokens = std::vector<int32_t>;

void write_documents(const std::string& prefix, TokenType type, const std::vector<Tokens>& documents) {
  IndexedDatasetWriter writer(prefix, type);
  for (const Tokens& document : documents) writer.add_document(document);
  writer.finish();
}

Tokens read_all(const IndexedDataset& data, int64_t sequence) {
  Tokens tokens(static_cast<size_t>(data.length(sequence)));
  data.read(sequence, 0, tokens);
  return tokens;
}

std::string error_of(const std::string& prefix) {
  try {
    const IndexedDataset data(prefix);
  } catch (const RunTimeError& fault) {
    return fault.what();
  }
  return "no error";
}

const std::vector<Tokens> kThreeDocuments{{10, 11, 12, 0}, {20, 0}, {30, 31, 0}};

TEST(IndexedDatasetWriter, writes_the_golden_bytes) {
  const TemporaryDirectory dir;
  write_documents(dir.file("golden"), TokenType::UInt16, kThreeDocuments);
  EXPECT_EQ(read_file(dir.file("golden.bin")), from_hex("0a000b000c000000140000001e001f000000"));
  EXPECT_EQ(read_file(dir.file("golden.idx")),
            from_hex("4d4d4944494458000001000000000000000803000000000000000400000000000000"
                     "040000000200000003000000"
                     "000000000000000008000000000000000c00000000000000"
                     "0000000000000000010000000000000002000000000000000300000000000000"));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  EXPECT_EQ(files, 2u) << "temporary files remain";
}

TEST(IndexedDatasetWriter, leaves_nothing_without_finish) {
  const TemporaryDirectory dir;
  {
    IndexedDatasetWriter writer(dir.file("cut"), TokenType::Int32);
    writer.add_document(Tokens{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(IndexedDatasetWriter, refuses_a_directory_it_cannot_write) {
  EXPECT_THROW(IndexedDatasetWriter("/nonexistent-directory/x", TokenType::Int32), RunTimeError);
}

TEST(IndexedDataset, reads_every_integer_type) {
  const TemporaryDirectory dir;
  for (const TokenType type :
       {TokenType::UInt8, TokenType::Int8, TokenType::Int16, TokenType::Int32, TokenType::Int64, TokenType::UInt16}) {
    const std::string prefix = dir.file(std::string(name_of(type)));
    write_documents(prefix, type, {{1, 2, 127}, {}, {7}});
    const IndexedDataset data(prefix);
    EXPECT_EQ(data.type(), type);
    EXPECT_EQ(data.sequences(), 2);
    EXPECT_EQ(data.documents(), 3);
    EXPECT_EQ(data.tokens(), 4);
    EXPECT_EQ(data.bin_bytes(), 4 * size_of(type));
    EXPECT_EQ(read_all(data, 0), (Tokens{1, 2, 127}));
    EXPECT_EQ(read_all(data, 1), (Tokens{7}));
    EXPECT_EQ(data.document_of(1), 2) << "the empty document counts";
    Tokens part(2);
    data.read(0, 1, part);
    EXPECT_EQ(part, (Tokens{2, 127}));
    data.check_all(128);
  }
}

TEST(IndexedDataset, names_the_document_of_a_token_outside_the_vocabulary) {
  const TemporaryDirectory dir;
  write_documents(dir.file("d"), TokenType::UInt16, {{1, 2}, {}, {3, 500, 4}});
  const IndexedDataset data(dir.file("d"));
  Tokens tokens(2);
  data.read(1, 1, tokens, 501);
  try {
    data.read(1, 1, tokens, 500);
    FAIL() << "token 500 of a vocabulary of 500 was accepted";
  } catch (const RunTimeError& fault) {
    EXPECT_THAT(fault.what(), testing::HasSubstr("document 2 (sequence 1) has token 500 at position 1"));
  }
  EXPECT_THROW(data.check_all(500), RunTimeError);
}

TEST(IndexedDataset, refuses_negative_tokens) {
  const TemporaryDirectory dir;
  write_documents(dir.file("d"), TokenType::Int32, {{1, 2}});
  write_file(dir.file("d.bin"), from_hex("01000000 ffffffff"));
  const IndexedDataset data(dir.file("d"));
  EXPECT_THROW(read_all(data, 0), RunTimeError);
}

TEST(IndexedDataset, refuses_damaged_files) {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("d");
  write_documents(prefix, TokenType::UInt16, kThreeDocuments);
  const std::string idx = read_file(prefix + ".idx");
  const std::string bin = read_file(prefix + ".bin");
  const auto with = [&idx, &prefix](size_t at, const std::string& bytes) {
    std::string changed = idx;
    changed.replace(at, bytes.size(), bytes);
    write_file(prefix + ".idx", changed);
    return error_of(prefix);
  };
  using testing::HasSubstr;
  EXPECT_EQ(error_of(prefix), "no error");
  EXPECT_THAT(error_of(dir.file("none")), HasSubstr("none.idx: cannot open"));
  EXPECT_THAT(with(0, "X"), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(with(9, "\2"), HasSubstr("version 2 is not 1"));
  EXPECT_THAT(with(17, "\x09"), HasSubstr("type code 9 is not in 1..8"));
  EXPECT_THAT(with(17, "\x06"), HasSubstr("type float64 cannot hold tokens"));
  EXPECT_THAT(with(17, "\x04"), HasSubstr("it has 18"));
  EXPECT_THAT(with(18, "\2"), HasSubstr("has 102 bytes, its header says 90"));
  EXPECT_THAT(with(18, from_hex("ffffffffffffffff")), HasSubstr("too short for 18446744073709551615 sequences"));
  EXPECT_THAT(with(26, from_hex("0000000000000080")), HasSubstr("too short"));
  EXPECT_THAT(with(42, "\4"), HasSubstr("says that " + prefix + ".bin has 20 bytes"));
  EXPECT_THAT(with(94, "\2"), HasSubstr("document bounds do not run from 0 to 3"));
  write_file(prefix + ".idx", idx.substr(0, 33));
  EXPECT_THAT(error_of(prefix), HasSubstr("33 bytes are too short for a header of 34"));
  write_file(prefix + ".idx", idx.substr(0, 101));
  EXPECT_THAT(error_of(prefix), HasSubstr("too short for 3 sequences"));
  write_file(prefix + ".idx", idx + std::string(3, '\0'));
  EXPECT_THAT(error_of(prefix), HasSubstr("multimodal"));
  write_file(prefix + ".idx", idx + "abcdefgh");
  EXPECT_THAT(error_of(prefix), HasSubstr("has 110 bytes, its header says 102"));
  write_file(prefix + ".idx", idx);
  write_file(prefix + ".bin", bin.substr(0, 17));
  EXPECT_THAT(error_of(prefix), HasSubstr("the .bin is cut"));
  write_file(prefix + ".bin", bin + "x");
  EXPECT_THAT(error_of(prefix), HasSubstr("do not belong together"));
}

TEST(IndexedDataset, check_all_finds_what_opening_does_not_read) {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("d");
  write_documents(prefix, TokenType::UInt16, kThreeDocuments);
  const std::string idx = read_file(prefix + ".idx");
  const auto fault_with = [&](size_t at, char byte) -> std::string {
    std::string changed = idx;
    changed[at] = byte;
    write_file(prefix + ".idx", changed);
    try {
      IndexedDataset(prefix).check_all(0);
    } catch (const RunTimeError& fault) {
      return fault.what();
    }
    return "no error";
  };
  using testing::HasSubstr;
  EXPECT_THAT(fault_with(34, 5), HasSubstr("sequence 1 begins at byte 8, the one before ends at 10"));
  EXPECT_THAT(fault_with(41, '\x80'), HasSubstr("sequence 1 has -2147483646 tokens"));
  EXPECT_THAT(fault_with(54, 6), HasSubstr("sequence 1 begins at byte 6, the one before ends at 8"));
  EXPECT_THAT(fault_with(78, 3), HasSubstr("document 1 ends at sequence 2, before its begin 3"));
}

TEST(IndexedDataset, an_empty_dataset_is_one) {
  const TemporaryDirectory dir;
  write_documents(dir.file("none"), TokenType::UInt16, {});
  EXPECT_EQ(IndexedDataset(dir.file("none")).documents(), 0);
  write_documents(dir.file("empty"), TokenType::UInt16, {{}, {}});
  const IndexedDataset data(dir.file("empty"));
  EXPECT_EQ(data.documents(), 2);
  EXPECT_EQ(data.sequences(), 0);
  EXPECT_EQ(data.tokens(), 0);
}

// 2^31 + 1000 tokens of one byte in two documents, the file sparse but for its end.
TEST(IndexedDataset, reads_past_two_to_the_thirty_one) {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("large");
  const std::array<int32_t, 2> lengths{1 << 30, (1 << 30) + 1000};
  std::string idx = from_hex("4d4d4944494458000001000000000000000102000000000000000300000000000000");
  const auto put = [&idx](auto value) { idx.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  put(lengths[0]);
  put(lengths[1]);
  put(int64_t{0});
  put(int64_t{lengths[0]});
  for (int64_t bound = 0; bound < 3; ++bound) put(bound);
  write_file(prefix + ".idx", idx);
  write_file(prefix + ".bin", "");
  const int64_t tokens = (int64_t{1} << 31) + 1000;
  ASSERT_EQ(::truncate((prefix + ".bin").c_str(), tokens), 0);
  {
    std::fstream bin(prefix + ".bin", std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(tokens - 3);
    bin.write("\x11\x22\x33", 3);
  }
  const IndexedDataset data(prefix);
  EXPECT_EQ(data.tokens(), tokens);
  Tokens last(4);
  data.read(1, lengths[1] - 4, last);
  EXPECT_EQ(last, (Tokens{0, 0x11, 0x22, 0x33}));
}

TEST(IndexedDatasetWriter, appends_datasets_as_megatron_merges) {
  const TemporaryDirectory dir;
  write_documents(dir.file("a"), TokenType::UInt16, {{1, 2}, {}, {3}});
  write_documents(dir.file("b"), TokenType::UInt16, {{}, {4, 5, 6}});
  {
    IndexedDatasetWriter writer(dir.file("ab"), TokenType::UInt16);
    writer.append(IndexedDataset(dir.file("a")));
    writer.append(IndexedDataset(dir.file("b")));
    writer.finish();
  }
  write_documents(dir.file("direct"), TokenType::UInt16, {{1, 2}, {}, {3}, {}, {4, 5, 6}});
  EXPECT_EQ(read_file(dir.file("ab.idx")), read_file(dir.file("direct.idx")));
  EXPECT_EQ(read_file(dir.file("ab.bin")), read_file(dir.file("direct.bin")));
}

TEST(TokenType, follows_megatrons_choice) {
  EXPECT_EQ(token_type_for(65499), TokenType::UInt16);
  EXPECT_EQ(token_type_for(65500), TokenType::Int32);
  EXPECT_TRUE(holds_vocabulary(TokenType::UInt16, 65536));
  EXPECT_FALSE(holds_vocabulary(TokenType::UInt16, 65537));
  EXPECT_FALSE(holds_vocabulary(TokenType::UInt8, 257));
  EXPECT_FALSE(holds_vocabulary(TokenType::Float32, 1));
}

}  // namespace
}  // namespace triax::io
