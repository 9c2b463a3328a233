// Document, sample and shuffle index against values from Megatron-LM and numpy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "io/data/gpt_dataset.h"
#include "io/data/gpt_index.h"
#include "io/data/indexed_writer.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using Tokens = std::vector<int32_t>;

// numpy 1.24: RandomState(1234) shuffles arange(70000), then arange(20) on the same stream.
TEST(NumpyRandom, shuffles_as_numpy) {
  NumpyRandom random(1234);
  std::vector<int32_t> large(70000);
  std::iota(large.begin(), large.end(), 0);
  random.shuffle(std::span(large));
  std::vector<uint32_t> small(20);
  std::iota(small.begin(), small.end(), 0u);
  random.shuffle(std::span(small));
  EXPECT_THAT(std::vector<int32_t>(large.begin(), large.begin() + 5),
              testing::ElementsAre(27504, 57935, 40387, 24455, 66362));
  int64_t weighted = 0;
  for (size_t i = 0; i < large.size(); ++i) weighted += large[i] * static_cast<int64_t>(i + 1);
  EXPECT_EQ(weighted, 85728373901393);
  EXPECT_THAT(small, testing::ElementsAre(3, 4, 8, 7, 11, 9, 2, 5, 19, 6, 1, 16, 17, 13, 12, 0, 14, 15, 18, 10));
}

struct Indices {
  EpochPlan plan;
  std::vector<int32_t> document;
  std::vector<int32_t> sample;
  std::vector<uint32_t> shuffle;
};

Indices build(const std::vector<int32_t>& lengths, int64_t num_samples, int64_t seq_length) {
  Indices indices;
  indices.plan = plan_epochs(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), num_samples, seq_length);
  NumpyRandom random(1234);
  indices.document = build_document_index({0, static_cast<int64_t>(lengths.size())}, indices.plan, random);
  indices.sample = build_sample_index<int32_t>(indices.document, lengths, indices.plan, seq_length);
  indices.shuffle = build_shuffle_index<uint32_t>(indices.plan, random);
  EXPECT_THAT(build_sample_index<int64_t>(indices.document, lengths, indices.plan, seq_length),
              testing::ElementsAreArray(indices.sample));
  return indices;
}

const std::vector<int32_t> kLengths{5, 3, 7, 2, 9, 4};

TEST(GptIndex, one_epoch_equals_megatron) {
  const Indices indices = build(kLengths, 7, 4);
  EXPECT_EQ(indices.plan.epochs, 1);
  EXPECT_FALSE(indices.plan.separate_last_epoch);
  EXPECT_THAT(indices.document, testing::ElementsAre(2, 1, 5, 0, 4, 3));
  EXPECT_THAT(indices.sample, testing::ElementsAre(0, 0, 0, 4, 1, 1, 2, 2, 3, 2, 4, 1, 4, 5, 5, 0));
  EXPECT_THAT(indices.shuffle, testing::ElementsAre(5, 0, 3, 4, 2, 6, 1));
}

TEST(GptIndex, separate_last_epoch_equals_megatron) {
  const Indices indices = build(kLengths, 16, 4);
  EXPECT_EQ(indices.plan.epochs, 3);
  EXPECT_TRUE(indices.plan.separate_last_epoch);
  EXPECT_THAT(indices.document, testing::ElementsAre(1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3, 1, 0, 3, 2, 5, 4));
  EXPECT_THAT(indices.sample,
              testing::ElementsAre(0, 0, 1, 1, 1, 5, 2, 2, 3, 2, 3, 6, 5, 1, 5, 5, 6, 0, 7, 1, 8, 0, 8, 4, 8, 8, 9, 3,
                                   10, 3, 12, 0, 13, 1, 14, 0, 15, 2, 15, 6, 16, 3, 17, 3, 17, 7));
  EXPECT_THAT(indices.shuffle,
              testing::ElementsAre(7, 4, 1, 11, 3, 10, 2, 13, 6, 9, 12, 5, 0, 8, 18, 21, 15, 14, 19, 17, 16, 20));
}

TEST(GptIndex, joint_last_epoch_equals_megatron) {
  const Indices indices = build(kLengths, 20, 4);
  EXPECT_EQ(indices.plan.epochs, 3);
  EXPECT_FALSE(indices.plan.separate_last_epoch);
  EXPECT_THAT(indices.document, testing::ElementsAre(5, 3, 5, 4, 1, 2, 0, 2, 4, 1, 1, 3, 2, 4, 0, 5, 0, 3));
  EXPECT_THAT(indices.sample,
              testing::ElementsAre(0, 0, 1, 0, 2, 2, 3, 2, 3, 6, 4, 1, 5, 2, 5, 6, 6, 3, 7, 2, 7, 6, 8, 3, 8, 7, 9, 2,
                                   11, 0, 12, 2, 12, 6, 13, 3, 13, 7, 14, 2, 15, 1, 16, 1, 17, 0));
  EXPECT_THAT(indices.shuffle,
              testing::ElementsAre(8, 17, 21, 1, 4, 20, 19, 13, 14, 9, 0, 11, 7, 3, 10, 6, 2, 5, 12, 16, 18, 15));
}

// 16 tokens at s = 5: (16 E - 1) / 5.
TEST(GptIndex, counts_samples_over_epochs) {
  const std::vector<int32_t> lengths{5, 0, 1, 7, 3};
  EXPECT_EQ(build(lengths, 3, 5).plan.samples, 3);
  EXPECT_EQ(build(lengths, 3, 5).plan.epochs, 1);
  EXPECT_EQ(build(lengths, 4, 5).plan.epochs, 2);
  EXPECT_EQ(build(lengths, 6, 5).plan.samples, 6);
  EXPECT_EQ(build(lengths, 7, 5).plan.epochs, 3);
  EXPECT_EQ(build(lengths, 9, 5).plan.samples, 9);
  EXPECT_EQ(build(lengths, 9, 5).plan.epochs, 3);
  EXPECT_EQ(plan_epochs(16, -1, 5).samples, 3);
  EXPECT_EQ(plan_epochs(0, 10, 5).samples, 0);
}

TEST(GptIndex, plans_in_sixty_four_bits) {
  // 10^12 tokens, three passes and a bit at s = 4096.
  const EpochPlan plan = plan_epochs(1'000'000'000'000, 750'000'000, 4096);
  EXPECT_EQ(plan.epochs, 4);
  EXPECT_EQ(plan.samples, 976'562'499);
  EXPECT_EQ(plan.samples_before_last_epoch, 732'421'874);
  EXPECT_TRUE(plan.separate_last_epoch);
}

// int(round(x * n)) of Python for normalised, cumulated weights.
TEST(GptIndex, splits_with_pythons_rounding) {
  const auto bounds = [](const std::string& split, int64_t n) {
    const auto ranges = split_sequences(split, n);
    return std::vector<int64_t>{ranges[0].begin, ranges[0].end, ranges[1].end, ranges[2].end};
  };
  EXPECT_THAT(bounds("969,30,1", 1), testing::ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(bounds("969,30,1", 1000), testing::ElementsAre(0, 969, 999, 1000));
  EXPECT_THAT(bounds("1,1,0", 5), testing::ElementsAre(0, 2, 5, 5)) << "2.5 rounds to even";
  EXPECT_THAT(bounds("0.9,0.05,0.05", 50), testing::ElementsAre(0, 45, 48, 50));
  EXPECT_THAT(bounds("100", 7), testing::ElementsAre(0, 7, 7, 7));
  EXPECT_THAT(bounds("98,1,1", 123457), testing::ElementsAre(0, 120988, 122222, 123457));
  EXPECT_THAT(bounds("1,0,1", 3), testing::ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(bounds("1,1,1", 1'000'000'000), testing::ElementsAre(0, 333333333, 666666667, 1000000000));
  for (const char* bad : {"", "a", "1,2,3,4", "-1,2", "0,0,0", "1;2", "nan", "1,"}) {
    EXPECT_THROW(split_sequences(bad, 10), ConfigError) << bad;
  }
}

// Every sample equals the piece of the documents laid end to end in document-index order.
TEST(GptDataset, samples_are_pieces_of_the_shuffled_stream) {
  const TemporaryDirectory dir;
  std::vector<Tokens> documents;
  int32_t next = 1;
  // 5,0,1,7,3 as above; then a document that ends exactly where a sample does, and one longer than many samples.
  for (const int length : {5, 0, 1, 7, 3, 6, 40}) {
    documents.emplace_back();
    for (int i = 0; i < length; ++i) documents.back().push_back(next++);
  }
  {
    IndexedDatasetWriter writer(dir.file("d"), TokenType::UInt16);
    // As sequences, so that the empty one takes part in the shuffle.
    for (const Tokens& document : documents) {
      const auto length = static_cast<int32_t>(document.size());
      writer.add_document(document, std::span(&length, 1));
    }
    writer.finish();
  }
  const auto data = std::make_shared<const IndexedDataset>(dir.file("d"));
  const IndexCache cache(dir.file("cache"));
  for (const int64_t num_samples : {1, 12, 25, 100}) {
    for (const int64_t seq : {1, 5, 17, 61}) {
      const GptSplit split{Split::Train, {0, 7}, num_samples, seq, 1234, 1000};
      const GptDataset dataset(data, split, cache);
      const EpochPlan plan = plan_epochs(62, num_samples, seq);
      ASSERT_EQ(dataset.size(), plan.samples);
      ASSERT_GE(dataset.size(), num_samples);
      NumpyRandom random(1234);
      Tokens stream;
      for (const int32_t d : build_document_index({0, 7}, plan, random)) {
        stream.insert(stream.end(), documents[static_cast<size_t>(d)].begin(), documents[static_cast<size_t>(d)].end());
      }
      const auto shuffle = build_shuffle_index<uint32_t>(plan, random);
      Tokens sample(static_cast<size_t>(seq) + 1);
      for (int64_t k = 0; k < dataset.size(); ++k) {
        dataset.sample(k, sample);
        const auto begin = stream.begin() + seq * shuffle[static_cast<size_t>(k)];
        ASSERT_EQ(sample, Tokens(begin, begin + seq + 1)) << "sample " << k << " seq " << seq;
      }
    }
  }
}

TEST(GptDataset, reads_the_last_sample_past_two_to_the_thirty_one_tokens) {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("large");
  const int32_t length = (1 << 30) + 500;
  std::string idx = test::from_hex("4d4d4944494458000001000000000000000102000000000000000300000000000000");
  const auto put = [&idx](auto value) { idx.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  put(length);
  put(length);
  put(int64_t{0});
  put(int64_t{length});
  for (int64_t bound = 0; bound < 3; ++bound) put(bound);
  test::write_file(prefix + ".idx", idx);
  test::write_file(prefix + ".bin", "");
  std::filesystem::resize_file(prefix + ".bin", 2 * static_cast<uintmax_t>(length));
  for (const int64_t end : {int64_t{length}, 2 * int64_t{length}}) {
    std::fstream bin(prefix + ".bin", std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(end - 1);
    bin.put('\x07');
  }
  const int64_t seq = int64_t{1} << 20;
  const auto data = std::make_shared<const IndexedDataset>(prefix);
  const GptDataset dataset(data, {Split::Train, {0, 2}, -1, seq, 1234, 256}, IndexCache(dir.file("cache")));
  const int64_t tokens = (int64_t{1} << 31) + 1000;
  ASSERT_EQ(dataset.size(), (tokens - 1) / seq);
  NumpyRandom random(1234);
  const EpochPlan plan = plan_epochs(tokens, -1, seq);
  build_document_index({0, 2}, plan, random);
  const auto shuffle = build_shuffle_index<uint32_t>(plan, random);
  const auto last = std::find(shuffle.begin(), shuffle.end(), static_cast<uint32_t>(plan.samples - 1));
  Tokens sample(static_cast<size_t>(seq) + 1);
  dataset.sample(last - shuffle.begin(), sample);
  // The stream's last token is number 2^31 + 999; the sample's first is (N - 1) * s.
  const int64_t first = (plan.samples - 1) * seq;
  for (int64_t i = 0; i <= seq; ++i) {
    const int64_t at = first + i;
    ASSERT_EQ(sample[static_cast<size_t>(i)], at == length - 1 || at == tokens - 1 ? 7 : 0) << at;
  }
}

}  // namespace
TEST(CountTokens, refuses_a_negative_length_and_names_its_document) {
  const TemporaryDirectory dir;
  const std::string prefix = dir.file("negative");
  {
    IndexedDatasetWriter writer(prefix, TokenType::UInt16);
    const std::array<int32_t, 2> tokens{1, 2};
    const std::array<int32_t, 1> lengths{2};
    for (int document = 0; document < 3; ++document) writer.add_document(tokens, lengths);
    writer.finish();
  }
  {
    std::fstream file(prefix + ".idx", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(34 + 4);  // length[1], after the header
    file.write("\xfe\xff\xff\xff", 4);
  }
  const IndexedDataset data(prefix);
  try {
    count_tokens(data, {0, 3});
    FAIL() << "must throw";
  } catch (const RunTimeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("document 1 (sequence 1) has -2 tokens"));
  }
}

}  // namespace triax::io
