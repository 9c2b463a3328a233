// AtomicFile: files appear whole, links stay links, devices and pipes are written to and never replaced.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/data/atomic_file.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("triax_atomic_" + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string path(const char* name) const { return (directory_ / name).string(); }
  static void write(const std::string& path, const std::string& text) {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  fs::path directory_;
};

TEST_F(AtomicFileTest, is_not_there_before_commit_and_leaves_nothing_else) {
  {
    AtomicFile file(path("a"));
    file.write("half", 4);
    EXPECT_FALSE(fs::exists(path("a")));
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  write(path("a"), "whole");
  EXPECT_EQ(text_of(path("a")), "whole");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(AtomicFileTest, a_link_stays_one_and_its_target_is_replaced) {
  fs::create_directory(path("elsewhere"));
  write(path("elsewhere/a"), "old");
  fs::create_symlink("elsewhere/a", path("link"));
  write(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text_of(path("elsewhere/a")), "new");
}

TEST_F(AtomicFileTest, a_pipe_is_written_to_and_stays) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write(path("pipe"), "through");
  char read[16] = {};
  EXPECT_EQ(::read(reader, read, sizeof read), 7);
  EXPECT_STREQ(read, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

// Through a link, so that a version which renames replaces the link and not the machine's device.
TEST_F(AtomicFileTest, a_full_device_is_an_error) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  fs::create_symlink("/dev/full", path("full"));
  EXPECT_THROW(write(path("full"), "text"), RunTimeError);
  EXPECT_TRUE(fs::is_symlink(path("full")));
}

}  // namespace
}  // namespace triax::io
