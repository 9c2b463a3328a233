// Which rank sees which sample, and what the prefetching loader hands out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "base/error.h"
#include "io/data/batch_loader.h"
#include "io/data/sampler.h"

namespace triax::io {
namespace {

using testing::ElementsAre;

// Token i of sample k is 100 k + i; counts its readings, and may fail or stall.
class CountingDataset final : public TokenDataset {
 public:
  int64_t size() const override { return 64; }
  void sample(int64_t k, std::span<int32_t> out) const override {
    if (k == bad) throw RunTimeError("document 7 is bad");
    while (k >= stalled_from.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::this_thread::get_id() == user) ++read_by_user;
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(100 * k) + static_cast<int32_t>(i);
    ++read;
  }
  mutable std::atomic<int> read{0}, read_by_user{0};
  std::atomic<int64_t> stalled_from{1 << 30};  // samples from here on are not read yet
  const std::thread::id user = std::this_thread::get_id();
  int64_t bad = -1;
};

TEST(Sampler, a_global_batch_is_the_same_set_in_every_layout) {
  constexpr int64_t kGlobal = 24;
  for (int64_t step = 0; step < 5; ++step) {
    for (const int64_t dp : {1, 2, 3, 4, 6, 8, 12, 24}) {
      for (int64_t micro = 1; micro * dp <= kGlobal; ++micro) {
        if (kGlobal % (micro * dp) != 0) continue;
        const BatchShape shape{micro, dp, kGlobal / (micro * dp)};
        ASSERT_EQ(shape.global_batch_size(), kGlobal);
        std::multiset<int64_t> ids;
        for (int64_t r = 0; r < dp; ++r) {
          for (int64_t j = 0; j < shape.num_micro_batches; ++j) {
            for (int64_t i = 0; i < micro; ++i) ids.insert(first_sample_of(shape, step * kGlobal, j, r) + i);
          }
        }
        ASSERT_EQ(ids.size(), static_cast<size_t>(kGlobal));
        ASSERT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), static_cast<size_t>(kGlobal));
        ASSERT_EQ(*ids.begin(), step * kGlobal);
        ASSERT_EQ(*ids.rbegin(), step * kGlobal + kGlobal - 1);
      }
    }
  }
}

// Megatron: chunks of micro * DP ids, rank r takes [r micro, (r + 1) micro).
TEST(Sampler, cuts_chunks_as_megatron) {
  const BatchShape shape{2, 3, 2};
  EXPECT_EQ(first_sample_of(shape, 100, 0, 0), 100);
  EXPECT_EQ(first_sample_of(shape, 100, 0, 2), 104);
  EXPECT_EQ(first_sample_of(shape, 100, 1, 0), 106);
  EXPECT_EQ(first_sample_of(shape, 100, 1, 2), 110);
}

TEST(Sampler, counts_samples_as_megatron) {
  EXPECT_EQ(sample_counts({.train_iters = 1000, .global_batch_size = 8, .eval_interval = 300, .eval_iters = 10}),
            (SampleCounts{8000, 4 * 10 * 8, 80}));
  EXPECT_EQ(sample_counts({.train_samples = 8000, .global_batch_size = 8, .eval_interval = 300, .eval_iters = 10}),
            (SampleCounts{8000, 4 * 10 * 8, 80}));
  EXPECT_EQ(sample_counts({.train_iters = 10, .global_batch_size = 4, .eval_iters = 0}), (SampleCounts{40, 0, 0}));
  // Past 2^31 samples.
  EXPECT_EQ(sample_counts({.train_iters = 3'000'000, .global_batch_size = 4096}).train, 12'288'000'000);
}

TEST(BatchLoader, lays_samples_as_positions_by_samples) {
  const CountingDataset dataset;
  const LoaderConfig config{.shape = {2, 2, 2}, .dp_rank = 1, .seq_length = 3};
  BatchLoader loader(dataset, config, 8);
  const std::vector<MicroBatch>& step = loader.next_step();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_THAT(step[0].sample_ids, ElementsAre(10, 11));
  EXPECT_THAT(step[0].tokens, ElementsAre(1000, 1100, 1001, 1101, 1002, 1102));
  EXPECT_THAT(step[0].targets, ElementsAre(1001, 1101, 1002, 1102, 1003, 1103));
  EXPECT_THAT(step[0].positions, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_TRUE(step[0].loss_mask.empty());
  EXPECT_THAT(step[1].sample_ids, ElementsAre(14, 15));
  EXPECT_EQ(loader.consumed_samples(), 16);
  EXPECT_THAT(loader.next_step()[0].sample_ids, ElementsAre(18, 19));
  EXPECT_EQ(loader.consumed_samples(), 24);
}

TEST(BatchLoader, equals_direct_reading_over_many_steps) {
  const CountingDataset dataset;
  for (const int64_t prefetch : {1, 2, 5}) {
    const LoaderConfig config{.shape = {2, 1, 2}, .seq_length = 4, .prefetch_steps = prefetch};
    BatchLoader loader(dataset, config, 0);
    std::vector<int32_t> sample(5);
    for (int64_t step = 0; step < 16; ++step) {
      const std::vector<MicroBatch>& batches = loader.next_step();
      for (size_t j = 0; j < 2; ++j) {
        for (size_t i = 0; i < 2; ++i) {
          const int64_t id = 4 * step + static_cast<int64_t>(2 * j + i);
          ASSERT_EQ(batches[j].sample_ids[i], id);
          dataset.sample(id, sample);
          for (size_t position = 0; position < 4; ++position) {
            ASSERT_EQ(batches[j].tokens[2 * position + i], sample[position]);
            ASSERT_EQ(batches[j].targets[2 * position + i], sample[position + 1]);
          }
        }
      }
    }
    EXPECT_THROW(loader.next_step(), RunTimeError) << "the data has 64 samples";
    EXPECT_THROW(loader.next_step(), RunTimeError);
  }
}

TEST(BatchLoader, masks_rows_whose_input_is_the_end_of_a_document) {
  const CountingDataset dataset;
  const LoaderConfig config{.shape = {1, 1, 1}, .seq_length = 4, .eod_mask = {.enabled = true, .eod = 102}};
  BatchLoader loader(dataset, config, 1);
  EXPECT_THAT(loader.next_step()[0].loss_mask, ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(loader.next_step()[0].loss_mask, ElementsAre(1, 1, 1, 1));
}

TEST(BatchLoader, a_middle_stage_reads_no_tokens) {
  const CountingDataset dataset;
  const LoaderConfig config{.shape = {2, 1, 1}, .seq_length = 2, .tokens = LoaderTokens::IdsOnly};
  BatchLoader loader(dataset, config, 6);
  const MicroBatch& batch = loader.next_step()[0];
  EXPECT_THAT(batch.sample_ids, ElementsAre(6, 7));
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, 1, 1));
  EXPECT_TRUE(batch.tokens.empty() && batch.targets.empty() && batch.loss_mask.empty());
  EXPECT_EQ(dataset.read, 0);
}

TEST(BatchLoader, reads_ahead_and_no_further) {
  const CountingDataset dataset;
  const LoaderConfig config{.shape = {1, 1, 2}, .seq_length = 1, .prefetch_steps = 3};
  BatchLoader loader(dataset, config, 0);
  loader.next_step();
  // The step in use and three more: 8 samples. The thread fills them without being asked.
  while (dataset.read < 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset.read, 8);
}

TEST(BatchLoader, a_step_waits_for_its_own_data_only_and_says_how_long) {
  CountingDataset dataset;
  dataset.stalled_from = 6;
  const LoaderConfig config{.shape = {1, 1, 2}, .seq_length = 1, .prefetch_steps = 1};
  BatchLoader loader(dataset, config, 0);
  // Steps 0 to 2 come while the reading of step 3 stands still: a loader that filled a step more first would hang here.
  for (int64_t step = 0; step < 3; ++step) ASSERT_EQ(loader.next_step()[0].sample_ids[0], 2 * step);
  // Then every step is read 20 ms after it is asked for. Other programs may make a wait longer, or start it late.
  double longest_s = 0;
  for (int64_t step = 3; step < 8; ++step) {
    std::thread opener([&dataset, step] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      dataset.stalled_from = 2 * step + 2;
    });
    EXPECT_EQ(loader.next_step()[0].sample_ids[0], 2 * step);
    opener.join();
    longest_s = std::max(longest_s, loader.wait_s());
  }
  EXPECT_GT(longest_s, 0.01);
  dataset.stalled_from = 1 << 30;  // the loader's thread can end
  EXPECT_EQ(dataset.read_by_user, 0) << "the thread that computes reads no data itself";
}

TEST(BatchLoader, errors_come_at_their_step) {
  CountingDataset dataset;
  dataset.bad = 5;
  const LoaderConfig config{.shape = {1, 1, 2}, .seq_length = 1};
  BatchLoader loader(dataset, config, 0);
  EXPECT_THAT(loader.next_step()[0].sample_ids, ElementsAre(0));
  EXPECT_THAT(loader.next_step()[0].sample_ids, ElementsAre(2));
  for (int again = 0; again < 2; ++again) {
    try {
      loader.next_step();
      FAIL() << "sample 5 is bad";
    } catch (const RunTimeError& fault) {
      EXPECT_STREQ(fault.what(), "document 7 is bad");
    }
  }
  EXPECT_EQ(loader.consumed_samples(), 4);
}

/// Of a file system that does not answer; it outlives every thread that waits for it.
class SilentDataset final : public TokenDataset {
 public:
  int64_t size() const override { return 100; }
  void sample(int64_t, std::span<int32_t>) const override { std::promise<void>().get_future().wait(); }
};

TEST(BatchLoader, data_that_do_not_come_end_the_wait) {
  static const SilentDataset dataset;
  BatchLoader loader(dataset, {.shape = {1, 1, 2}, .seq_length = 1, .deadline_s = 0.3}, 6);
  try {
    loader.next_step();
    FAIL() << "there are no data";
  } catch (const RunTimeError& fault) {
    EXPECT_THAT(fault.what(), testing::StartsWith("the data's file system has not answered for "));
    EXPECT_THAT(fault.what(), testing::EndsWith("samples from 6 on"));
  }
}

}  // namespace
}  // namespace triax::io
