// Blending rules by hand, and the datasets of a run made from its data options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>

#include "base/error.h"
#include "io/data/blend.h"
#include "io/data/dataset_builder.h"
#include "io/data/indexed_writer.h"
#include "io/data/npy.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

template <class F>
std::string config_error(const F& call) {
  try {
    call();
  } catch (const ConfigError& fault) {
    return fault.what();
  }
  return "no error";
}

TEST(Blend, parses_every_form) {
  EXPECT_EQ(parse_blend("--data-path", Words{"a"}), (Blend{{"a"}, {}}));
  EXPECT_EQ(parse_blend("--data-path", Words{"a", "b"}), (Blend{{"a", "b"}, {}}));
  EXPECT_EQ(parse_blend("--data-path", Words{"a", "b", "c"}), (Blend{{"a", "b", "c"}, {}}));
  EXPECT_EQ(parse_blend("--data-path", Words{"0.3", "a", "7e-1", "b"}), (Blend{{"a", "b"}, {0.3, 0.7}}));
  EXPECT_EQ(parse_blend("--data-path", Words{"1", "a"}), (Blend{{"a"}, {1}}));
  for (const Words& bad : {Words{}, Words{"1", "a", "b", "c"}, Words{"-1", "a", "2", "b"}, Words{"0", "a", "0", "b"},
                           Words{"inf", "a", "1", "b"}}) {
    EXPECT_THROW(parse_blend("--data-path", bad), ConfigError);
  }
}

TEST(Blend, reads_data_args_files) {
  const TemporaryDirectory dir;
  test::write_file(dir.file("args"), "0.5 a\n  0.5\tb\n\n");
  EXPECT_THAT(read_data_args(dir.file("args")), ElementsAre("0.5", "a", "0.5", "b"));
  EXPECT_THROW(read_data_args(dir.file("none")), ConfigError);
}

// w / numpy.sum(w), twice, for w_i = 1 / (i + 3): the bits folded into one word (numpy 1.24).
TEST(Blend, normalises_to_numpys_bits) {
  const auto folded = [](int n) {
    std::vector<double> weights;
    for (int i = 0; i < n; ++i) weights.push_back(1.0 / (i + 3));
    uint64_t word = 0;
    for (const double w : normalise(normalise(weights))) word = word * 1000003 + std::bit_cast<uint64_t>(w);
    return word;
  };
  EXPECT_EQ(folded(3), 0xf6857359bc8c49d9u);
  EXPECT_EQ(folded(9), 0xc6d8e63377ba13d5u);
  EXPECT_EQ(folded(20), 0xfa3dec46160a3e07u);
  EXPECT_EQ(folded(150), 0x26bea6113bd8e02bu);
  EXPECT_EQ(folded(300), 0xa85203e22dcbcecbu);
}

TEST(Blend, asks_for_a_little_more_than_it_uses) {
  EXPECT_EQ(blend_target(1000, 0.3), 300);
  EXPECT_EQ(blend_target(1001, 0.3), 301);
  EXPECT_EQ(blend_request(1001, 0.3), 303);  // 301 * 1.005 = 302.505
  EXPECT_EQ(blend_request(100, 0.001), 2);   // ceil(1 * 1.005)
  EXPECT_EQ(blend_target(100, 0), 0);
}

TEST(Blend, follows_the_greedy_rule) {
  const BlendIndex index = build_blend_index(std::vector<double>{0.5, 0.3, 0.2}, 11);
  EXPECT_THAT(index.dataset, ElementsAre(0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0));
  EXPECT_THAT(index.sample, ElementsAre(0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 5));
}

// The small part is taken at step 1 (its deficit .001 beats -.001), then at the ties of steps 1000 and 2000.
TEST(Blend, follows_the_greedy_rule_for_lopsided_weights) {
  const BlendIndex index = build_blend_index(normalise(std::vector<double>{0.001, 0.999}), 2500);
  std::vector<size_t> small;
  for (size_t i = 0; i < index.dataset.size(); ++i) {
    if (index.dataset[i] == 0) small.push_back(i);
  }
  EXPECT_THAT(small, ElementsAre(1, 1000, 2000));
  EXPECT_EQ(index.sample[2000], 2);
  EXPECT_EQ(index.sample[2499], 2496);
}

// Data whose token says which dataset it is from: `documents` documents of 100 tokens.
void write_data(const std::string& prefix, int32_t token, int documents) {
  IndexedDatasetWriter writer(prefix, TokenType::UInt16);
  for (int d = 0; d < documents; ++d) writer.add_document(std::vector<int32_t>(100, token));
  writer.finish();
}

class BuilderTest : public testing::Test {
 protected:
  BuilderTest() {
    write_data(dir_.file("a"), 1, 40);
    write_data(dir_.file("b"), 2, 20);
    write_data(dir_.file("c"), 3, 1);
    request_.samples = {100, 20, 4};
    request_.seq_length = 10;
    request_.vocab_size = 50;
    request_.cache_path = dir_.file("cache");
    request_.split = "8,1,1";
  }
  // How many of the first n samples come from each of datasets 1, 2, 3.
  static std::vector<int> census(const TokenDataset& data, int64_t n) {
    std::vector<int> counts(4, 0);
    std::vector<int32_t> tokens(11);
    for (int64_t k = 0; k < n; ++k) {
      data.sample(k, tokens);
      ++counts[static_cast<size_t>(tokens[0])];
    }
    return {counts.begin() + 1, counts.end()};
  }
  TemporaryDirectory dir_;
  DatasetRequest request_;
};

TEST_F(BuilderTest, one_prefix_serves_all_splits) {
  request_.data_path = {dir_.file("a")};
  const Datasets data = open_datasets(request_);
  EXPECT_EQ(data.train->size(), 319);  // 32 documents: (3200 - 1) / 10
  EXPECT_EQ(data.valid->size(), 39);
  EXPECT_EQ(data.test->size(), 39);
}

TEST_F(BuilderTest, weights_decide_the_shares) {
  request_.data_path = {"0.5", dir_.file("a"), "0.3", dir_.file("b"), "0.2", dir_.file("b")};
  const Datasets data = open_datasets(request_);
  EXPECT_EQ(data.train->size(), 100);
  EXPECT_THAT(census(*data.train, 100), ElementsAre(50, 50, 0));
  std::vector<int32_t> tokens(11);
  for (const auto& [k, token] : {std::pair{0, 1}, {1, 2}, {2, 2}, {3, 1}, {5, 1}, {6, 2}}) {
    data.train->sample(k, tokens);
    EXPECT_EQ(tokens[0], token) << "sample " << k;
  }
}

TEST_F(BuilderTest, blends_walk_small_data_often_and_skip_weight_zero) {
  request_.split = "1,0,0";
  request_.data_path = {"0", dir_.file("a"), "0.999", dir_.file("b"), "0.001", dir_.file("c")};
  request_.samples = {3000, 0, 0};
  const Datasets data = open_datasets(request_);
  EXPECT_EQ(data.train->size(), 3000);
  EXPECT_THAT(census(*data.train, 3000), ElementsAre(0, 2997, 3));
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.test, nullptr);
}

TEST_F(BuilderTest, lists_without_weights_are_read_once) {
  request_.data_path = {dir_.file("a"), dir_.file("b"), dir_.file("a")};
  request_.samples = {700, 1, 1};
  const Datasets data = open_datasets(request_);
  EXPECT_EQ(data.train->size(), 700);
  // 319 + 159 + 319 samples; the greedy order takes shares of 700 by size.
  EXPECT_THAT(census(*data.train, 700), ElementsAre(560, 140, 0));
  request_.samples.train = 798;
  EXPECT_THAT(config_error([this] { open_datasets(request_); }), HasSubstr("give 797 train samples, 798 are needed"));
}

TEST_F(BuilderTest, splits_may_have_data_of_their_own) {
  request_.train_data_path = {"1", dir_.file("a"), "3", dir_.file("b")};
  request_.valid_data_path = {dir_.file("c")};
  const Datasets data = open_datasets(request_);
  EXPECT_THAT(census(*data.train, 100), ElementsAre(25, 75, 0));
  EXPECT_THAT(census(*data.valid, 20), ElementsAre(0, 0, 20));
  EXPECT_EQ(data.test, nullptr);
}

TEST_F(BuilderTest, an_empty_split_is_null_but_training_needs_tokens) {
  request_.data_path = {dir_.file("c")};
  const Datasets data = open_datasets(request_);  // one document: all of it trains
  EXPECT_NE(data.train, nullptr);
  EXPECT_EQ(data.valid, nullptr);
  EXPECT_EQ(data.test, nullptr);
  request_.split = "0,1,0";
  EXPECT_THAT(config_error([this] { open_datasets(request_); }), HasSubstr("the training split holds no tokens"));
}

TEST_F(BuilderTest, names_all_faults_at_once) {
  DatasetRequest request;
  EXPECT_THAT(config_error([&] { validate(request); }), HasSubstr("--mock-data"));
  request.data_path = {"1", "a", "b", "c"};
  request.valid_data_path = {"-1", "a"};
  request.split = "x";
  request.mock = true;
  const std::string text = config_error([&] { validate(request); });
  for (const char* part : {"--data-path 1 a b c", "weight -1 of a", "--split x", "--seq-length 0", "--vocab-size 0",
                           "--mock-data: excludes", "--data-path: excludes"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(BuilderTest, a_token_outside_the_vocabulary_names_the_document) {
  request_.data_path = {dir_.file("a")};
  request_.vocab_size = 1;
  const Datasets data = open_datasets(request_);
  std::vector<int32_t> tokens(11);
  try {
    data.train->sample(0, tokens);
    FAIL();
  } catch (const RunTimeError& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("a.bin: document "));
  }
}

TEST_F(BuilderTest, indices_stay_with_own_data_or_go_to_the_run) {
  request_.data_path = {"1", dir_.file("a")};
  EXPECT_EQ(index_cache_directory(request_), dir_.file("cache"));
  request_.cache_path.clear();
  request_.run_dir = "runs/x";
  EXPECT_EQ(index_cache_directory(request_), dir_.file("a") + ".cache");
  request_.data_path = {"/proc/1/a"};  // a directory that nobody can write
  EXPECT_EQ(index_cache_directory(request_), "runs/x/data-cache");
}

TEST_F(BuilderTest, a_cache_that_cannot_be_written_names_the_option) {
  request_.data_path = {dir_.file("a")};
  request_.cache_path = dir_.file("a.bin") + "/under-a-file";
  try {
    open_datasets(request_);
    FAIL();
  } catch (const RunTimeError& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("--data-cache-path"));
  }
}

TEST_F(BuilderTest, mock_data_repeats_and_can_be_learnt) {
  request_.mock = true;
  request_.seq_length = 100;
  const Datasets data = open_datasets(request_);
  EXPECT_EQ(data.train->size(), 100);
  EXPECT_EQ(data.valid->size(), 20);
  std::vector<int32_t> tokens(101);
  std::vector<int32_t> again(101);
  int follows = 0;
  for (int64_t k = 0; k < 100; ++k) {
    data.train->sample(k, tokens);
    for (size_t i = 0; i < 100; ++i) {
      ASSERT_LT(static_cast<uint32_t>(tokens[i]), 50u);
      follows += tokens[i + 1] == (5 * tokens[i] + 17) % 50;
    }
  }
  EXPECT_NEAR(follows, 10000 * (7.0 / 8 + 1.0 / 8 / 50), 150);
  open_datasets(request_).train->sample(99, again);
  EXPECT_EQ(tokens, again);
  data.valid->sample(0, again);
  data.train->sample(0, tokens);
  EXPECT_NE(tokens, again);
}

}  // namespace
}  // namespace triax::io
