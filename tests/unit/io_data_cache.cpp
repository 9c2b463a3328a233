// The index cache: readable files, races between processes, stale and damaged entries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <numeric>

#include "base/error.h"
#include "io/data/dataset_builder.h"
#include "io/data/index_cache.h"
#include "io/data/indexed_writer.h"
#include "io/data/npy.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::from_hex;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = read_file(entry.path().string());
  }
  return files;
}

// The header is laid out as in numpy's format version 1.0.
TEST(Npy, writes_what_numpy_reads) {
  const TemporaryDirectory dir;
  const std::vector<int32_t> values{1, 2, 3, 4, 5, -1};
  write_npy<int32_t>(dir.file("a.npy"), values, std::array<int64_t, 2>{3, 2});
  const std::string file = read_file(dir.file("a.npy"));
  EXPECT_EQ(file.substr(0, 10), from_hex("934e554d505901007600"));
  EXPECT_EQ(file.substr(10, 59), "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }");
  EXPECT_EQ(file.substr(69, 59), std::string(58, ' ') + "\n");
  EXPECT_EQ(file.substr(128), from_hex("01000000 02000000 03000000 04000000 05000000 ffffffff"));
  const NpyFile back(dir.file("a.npy"));
  EXPECT_EQ(back.type(), "<i4");
  EXPECT_THAT(back.shape(), ElementsAre(3, 2));
  EXPECT_THAT(back.values<int32_t>(), ElementsAre(1, 2, 3, 4, 5, -1));
  write_npy<int64_t>(dir.file("b.npy"), std::array<int64_t, 1>{7}, std::array<int64_t, 1>{1});
  EXPECT_THAT(read_file(dir.file("b.npy")), HasSubstr("'shape': (1,), }"));
}

// numpy 1.24 wrote these bytes: np.save of np.array([258, 70000], dtype=np.uint32).
TEST(Npy, reads_what_numpy_writes) {
  const TemporaryDirectory dir;
  const std::string header = "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }";
  write_file(dir.file("n.npy"), from_hex("934e554d505901007600") + header + std::string(117 - header.size(), ' ') +
                                    "\n" + from_hex("02010000 70110100"));
  const NpyFile file(dir.file("n.npy"));
  EXPECT_THAT(file.shape(), ElementsAre(2));
  EXPECT_THAT(file.values<uint32_t>(), ElementsAre(258u, 70000u));
  EXPECT_THROW(file.values<int32_t>(), std::logic_error);
}

TEST(Npy, refuses_damaged_files) {
  const TemporaryDirectory dir;
  write_npy<int16_t>(dir.file("a.npy"), std::vector<int16_t>(10), std::array<int64_t, 1>{10});
  const std::string good = read_file(dir.file("a.npy"));
  for (const std::string& bad : {std::string(), good.substr(0, 9), good.substr(0, 60), good.substr(0, good.size() - 1),
                                 good + "x", "x" + good.substr(1)}) {
    write_file(dir.file("a.npy"), bad);
    EXPECT_THROW(NpyFile(dir.file("a.npy")), RunTimeError) << bad.size();
  }
}

IndexCache::Key key_of(const std::string& description) { return {"train", description, {"x"}}; }

std::function<void(const IndexCache::Put&)> put_number(int64_t number, int& builds) {
  return [number, &builds](const IndexCache::Put& put) {
    ++builds;
    const std::array<int64_t, 1> one{1};
    put("x", "<i8", std::as_bytes(std::span(&number, 1)), one);
  };
}

TEST(IndexCache, builds_once_per_description) {
  const TemporaryDirectory dir;
  const IndexCache cache(dir.file("deep/er"));
  int builds = 0;
  EXPECT_THAT(cache.get(key_of("a"), put_number(1, builds))[0].values<int64_t>(), ElementsAre(1));
  EXPECT_THAT(cache.get(key_of("a"), put_number(9, builds))[0].values<int64_t>(), ElementsAre(1));
  EXPECT_THAT(cache.get(key_of("b"), put_number(2, builds))[0].values<int64_t>(), ElementsAre(2));
  EXPECT_EQ(builds, 2);
  // A description that does not match (another key of the same hash) and a missing array both build again.
  for (const auto& entry : std::filesystem::directory_iterator(dir.file("deep/er"))) {
    if (entry.path().extension() == ".json") write_file(entry.path().string(), "other");
  }
  EXPECT_THAT(cache.get(key_of("a"), put_number(3, builds))[0].values<int64_t>(), ElementsAre(3));
  for (const auto& entry : std::filesystem::directory_iterator(dir.file("deep/er"))) {
    if (entry.path().extension() == ".npy") std::filesystem::remove(entry.path());
  }
  EXPECT_THAT(cache.get(key_of("a"), put_number(4, builds))[0].values<int64_t>(), ElementsAre(4));
  EXPECT_EQ(builds, 4);
}

class RaceTest : public testing::Test {
 protected:
  RaceTest() {
    IndexedDatasetWriter writer(dir_.file("d"), TokenType::UInt16);
    std::vector<int32_t> tokens(50);
    std::iota(tokens.begin(), tokens.end(), 0);
    for (int document = 0; document < 2000; ++document) writer.add_document(tokens);
    writer.finish();
    request_.data_path = {dir_.file("d")};
    request_.samples = {20000, 100, 10};
    request_.seq_length = 16;
    request_.vocab_size = 50;
  }
  TemporaryDirectory dir_;
  DatasetRequest request_;
};

// Eight processes build the same cache at once; every one reads right samples, and the files are those of a lone
// process.
TEST_F(RaceTest, processes_may_build_at_once) {
  request_.cache_path = dir_.file("alone");
  const Datasets alone = open_datasets(request_);
  std::vector<int32_t> want(17);
  alone.train->sample(19999, want);
  request_.cache_path = dir_.file("race");
  int start[2];
  ASSERT_EQ(::pipe(start), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(start[1]);
      char end = 0;
      [[maybe_unused]] const auto got = ::read(start[0], &end, 1);  // returns when the parent closes the pipe
      int code = 1;
      try {
        const Datasets data = open_datasets(request_);
        std::vector<int32_t> sample(17);
        data.train->sample(19999, sample);
        code = sample == want && data.valid->size() > 0 ? 0 : 2;
      } catch (const std::exception&) {
        code = 3;
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  ::close(start[0]);
  ::close(start[1]);
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(contents(dir_.file("race")), contents(dir_.file("alone"))) << "same names, same bytes, nothing left over";
}

TEST_F(RaceTest, rebuilt_data_gets_a_new_index) {
  request_.cache_path = dir_.file("cache");
  open_datasets(request_);
  const size_t before = contents(dir_.file("cache")).size();
  open_datasets(request_);
  EXPECT_EQ(contents(dir_.file("cache")).size(), before);
  {
    // As many documents and tokens as before, but two lengths changed.
    IndexedDatasetWriter writer(dir_.file("d"), TokenType::UInt16);
    for (int document = 0; document < 2000; ++document) {
      writer.add_document(std::vector<int32_t>(static_cast<size_t>(document == 7 ? 49 : document == 8 ? 51 : 50), 3));
    }
    writer.finish();
  }
  open_datasets(request_);
  EXPECT_EQ(contents(dir_.file("cache")).size(), 2 * before);
  request_.seed = 5;
  open_datasets(request_);
  EXPECT_EQ(contents(dir_.file("cache")).size(), 3 * before);
}

TEST_F(RaceTest, an_index_of_another_size_is_refused) {
  request_.cache_path = dir_.file("cache");
  open_datasets(request_);
  for (const auto& entry : std::filesystem::directory_iterator(request_.cache_path)) {
    const std::string path = entry.path().string();
    if (path.ends_with("train-shuffle_index.npy")) {
      write_npy<uint32_t>(path, std::vector<uint32_t>(3), std::array<int64_t, 1>{3});
    }
  }
  try {
    open_datasets(request_);
    FAIL();
  } catch (const RunTimeError& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("train-shuffle_index.npy: does not fit"));
  }
}

}  // namespace
}  // namespace triax::io
