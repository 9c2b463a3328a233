// Ranks prepare and open datasets together: one builds, all read the same, an error reaches all.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/process_grid.h"
#include "io/data/batch_loader.h"
#include "io/data/indexed_writer.h"
#include "tests/mpi/mpi_world.h"
#include "tests/unit/temporary_directory.h"
#include "train/data_setup.h"

namespace triax::train {
namespace {

class DataSetup : public testing::Test {
 protected:
  DataSetup() {
    make_grid(0);
    if (rank() == 0) {
      own_ = std::make_unique<test::TemporaryDirectory>();
      io::IndexedDatasetWriter writer(own_->file("d"), io::TokenType::UInt16);
      for (int32_t d = 0; d < 100; ++d) writer.add_document(std::vector<int32_t>(static_cast<size_t>(d), d));
      writer.finish();
    }
    // All ranks learn rank 0's directory.
    std::array<uint8_t, 256> name{};
    if (rank() == 0) own_->path().copy(reinterpret_cast<char*>(name.data()), name.size() - 1);
    grid_->world().broadcast(Tensor(name.data(), DType::UInt8, {256}), 0).wait();
    directory_ = reinterpret_cast<const char*>(name.data());
    options_.data.data_path = {directory_ + "/d"};
    options_.data.split = "1,0,0";
    options_.batch.train_iters = 6;
    options_.batch.global_batch_size = 16;
    options_.control.eval_iters = 0;
    options_.model.seq_length = 20;
    options_.model.vocab_size = 100;
  }
  ~DataSetup() override { grid_->world().barrier(); }
  int rank() const { return test::session().rank(); }
  void make_grid(int fake_nodes) {
    comm::GridOptions options;
    options.shape.data = test::session().size();
    options.timeout_s = 60;
    options.fake_nodes = fake_nodes;
    grid_.reset();
    grid_ = std::make_unique<comm::ProcessGrid>(test::session(), options);
  }
  io::Datasets open() { return open_data(options_, directory_ + "/run", true, *grid_); }

  std::unique_ptr<test::TemporaryDirectory> own_;
  std::unique_ptr<comm::ProcessGrid> grid_;
  std::string directory_;
  io::RunOptions options_;
};

// The token sums of a step, added over ranks, equal those of the global batch read by one.
TEST_F(DataSetup, ranks_share_one_index_and_part_the_batch) {
  options_.data.data_cache_path = directory_ + "/shared";
  const io::Datasets data = open();
  const int64_t world = test::session().size();
  io::BatchLoader loader(*data.train, {.shape = {2, world, 16 / (2 * world)}, .dp_rank = rank(), .seq_length = 20}, 0);
  std::vector<int32_t> sample(21);
  for (int64_t step = 0; step < 6; ++step) {
    std::array<int64_t, 2> sums{0, 0};
    for (const io::MicroBatch& batch : loader.next_step()) {
      for (const int32_t token : batch.tokens) sums[0] += token;
      for (const int64_t id : batch.sample_ids) sums[1] += id * id;
    }
    grid_->world().all_reduce(Tensor(sums.data(), DType::Int64, {2}), comm::ReduceOp::Sum).wait();
    std::array<int64_t, 2> expected{0, 0};
    for (int64_t id = 16 * step; id < 16 * (step + 1); ++id) {
      data.train->sample(id, sample);
      for (size_t i = 0; i < 20; ++i) expected[0] += sample[i];
      expected[1] += id * id;
    }
    EXPECT_EQ(sums, expected) << "step " << step;
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(options_.data.data_cache_path)) ++files;
  EXPECT_EQ(files, 4u) << "three arrays and a description, built once";
}

// As on nodes whose cache directories are their own: each leader builds in its own.
TEST_F(DataSetup, leaders_build_where_the_directory_is_not_shared) {
  make_grid(test::session().size());
  options_.data.data_cache_path = directory_ + "/node" + std::to_string(rank());
  const io::Datasets data = open();
  std::vector<int32_t> sample(21);
  data.train->sample(95, sample);
  EXPECT_TRUE(std::filesystem::exists(options_.data.data_cache_path));
}

TEST_F(DataSetup, an_error_of_one_rank_ends_all) {
  // A directory below a file cannot be made.
  options_.data.data_cache_path = directory_ + (rank() == 0 ? "/d.bin/cache" : "/good");
  try {
    open();
    FAIL() << "no error";
  } catch (const RunTimeError& fault) {
    const std::string text = fault.what();
    EXPECT_NE(text.find("rank 0: "), std::string::npos) << text;
    EXPECT_NE(text.find("--data-cache-path"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace triax::train
