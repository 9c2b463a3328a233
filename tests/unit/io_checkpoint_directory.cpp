// The directory of --save: which step is loaded, in what order names change, what is kept and removed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "io/checkpoint/directory.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SaveDirectory : public testing::Test {
 protected:
  void add(int64_t iteration, const std::string& content = "x") {
    begin_step(path, iteration);
    for (const char* file : {"/index.h5", "/checksums.xxh128"}) {
      std::ofstream(unfinished_path(path, iteration) + file) << content;
    }
  }
  void track(const std::string& text) { std::ofstream(path + "/" + kTrackerFile) << text; }
  test::TemporaryDirectory directory;
  std::string path = directory.path();
};

TEST_F(SaveDirectory, a_step_shows_when_published_and_the_tracker_follows) {
  EXPECT_EQ(latest_step(path), std::nullopt);
  add(3);
  EXPECT_EQ(latest_step(path), std::nullopt);
  std::vector<SavePoint> points;
  publish_step(path, 3, [&](SavePoint point) {
    points.push_back(point);
    EXPECT_EQ(latest_step(path), 3);
  });
  EXPECT_THAT(points, ElementsAre(SavePoint::Renamed, SavePoint::TrackerWritten, SavePoint::Tracked));
  EXPECT_EQ(tracked_step(path), 3);
  EXPECT_EQ(resolve_checkpoint(path), path + "/iter_0000003");
}

TEST_F(SaveDirectory, the_tracker_decides_unless_its_step_is_gone) {
  for (const int64_t step : {5, 12345678}) {
    add(step);
    publish_step(path, step);
  }
  EXPECT_THAT(complete_steps(path), ElementsAre(5, 12345678));
  track("5\n");
  EXPECT_EQ(latest_step(path), 5);
  track("6\n");
  EXPECT_EQ(latest_step(path), 12345678);
  track("release\n");
  EXPECT_THROW(latest_step(path), RunTimeError);
  EXPECT_EQ(resolve_checkpoint(path, 5), path + "/iter_0000005");
  EXPECT_EQ(resolve_checkpoint(path, 6), "");
}

TEST_F(SaveDirectory, a_tracker_of_anything_but_one_number_is_damaged) {
  for (const int64_t step : {6, 7}) {
    add(step);
    publish_step(path, step);
  }
  for (const char* good : {"6", "6\n", " 6 \r\n", "0000006"}) {
    track(good);
    EXPECT_EQ(tracked_step(path), 6) << good;
  }
  const std::string long_one(100, '6');
  const std::string spaces = "6" + std::string(100, ' ') + "7";
  for (const std::string& bad : {std::string(), std::string("\n"), std::string("6 7"), std::string("6\n7\n"),
                                 std::string("6x"), std::string("-6"), std::string("6\0", 2), long_one, spaces}) {
    track(bad);
    EXPECT_THROW(latest_step(path), DamagedTracker) << bad;
  }
  track("\x1b[2J");
  try {
    latest_step(path);
    ADD_FAILURE();
  } catch (const DamagedTracker& error) {
    EXPECT_THAT(error.what(), HasSubstr("'?[2J' is no iteration: write the number of one of its iter_ directories"));
  }
  EXPECT_THAT(complete_steps(path), ElementsAre(6, 7));
}

TEST_F(SaveDirectory, a_tracker_without_end_is_not_read_to_it) {
  add(6);
  publish_step(path, 6);
  std::filesystem::remove(path + "/" + kTrackerFile);
  std::filesystem::create_symlink("/dev/zero", path + "/" + kTrackerFile);
  EXPECT_THROW(tracked_step(path), DamagedTracker);
  EXPECT_EQ(resolve_checkpoint(path, 6), path + "/iter_0000006");
}

TEST_F(SaveDirectory, a_step_saved_again_replaces_the_old_one) {
  add(5, "old");
  publish_step(path, 5);
  add(5, "new");
  publish_step(path, 5);
  std::string content;
  std::ifstream(path + "/iter_0000005/index.h5") >> content;
  EXPECT_EQ(content, "new");
  EXPECT_FALSE(std::filesystem::exists(path + "/iter_0000005.old"));
  EXPECT_FALSE(std::filesystem::exists(path + "/iter_0000005.tmp"));
}

TEST_F(SaveDirectory, leftovers_go_and_steps_stay) {
  add(1);
  publish_step(path, 1);
  add(2);
  std::filesystem::create_directory(path + "/iter_0000009.old");
  std::filesystem::create_directory(path + "/other.tmp");
  remove_unfinished(path);
  EXPECT_THAT(complete_steps(path), ElementsAre(1));
  EXPECT_FALSE(std::filesystem::exists(path + "/iter_0000002.tmp"));
  EXPECT_FALSE(std::filesystem::exists(path + "/iter_0000009.old"));
  EXPECT_TRUE(std::filesystem::exists(path + "/other.tmp"));
}

TEST_F(SaveDirectory, a_save_killed_between_its_two_renames_is_completed) {
  add(5, "old");
  std::filesystem::rename(unfinished_path(path, 5), step_path(path, 5) + ".old");
  add(5, "new");
  remove_unfinished(path);
  EXPECT_EQ(latest_step(path), 5);
  std::string content;
  std::ifstream(path + "/iter_0000005/index.h5") >> content;
  EXPECT_EQ(content, "new");
  EXPECT_FALSE(std::filesystem::exists(path + "/iter_0000005.old"));
  // Not complete, or of a step that was never published: it goes.
  add(7);
  std::filesystem::create_directory(path + "/iter_0000009.old");
  begin_step(path, 9);
  remove_unfinished(path);
  EXPECT_THAT(complete_steps(path), ElementsAre(5));
}

/// What a user without rights sees; root sees everything.
TEST_F(SaveDirectory, what_may_not_be_read_is_not_taken_for_nothing) {
  add(3);
  publish_step(path, 3);
  const auto faulty = [&](const std::string& hidden) {
    const auto before = std::filesystem::status(hidden).permissions();
    std::filesystem::permissions(hidden, std::filesystem::perms::none);
    const pid_t child = fork();
    if (child == 0) {
      constexpr uid_t kNobody = 65534;
      if (geteuid() == 0 && seteuid(kNobody) != 0) _exit(3);
      try {
        resolve_checkpoint(path);
        _exit(1);
      } catch (const RunTimeError& error) {
        _exit(std::string(error.what()).find("cannot be read: Permission denied") == std::string::npos ? 2 : 0);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::filesystem::permissions(hidden, before);
    return WEXITSTATUS(status);
  };
  std::filesystem::permissions(path, std::filesystem::perms::others_exec | std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(faulty(path), 0) << "the directory";
  EXPECT_EQ(faulty(path + "/" + kTrackerFile), 0) << "the tracker";
  EXPECT_EQ(faulty(path + "/iter_0000003"), 0) << "a step";
}

TEST_F(SaveDirectory, retention_keeps_the_newest_and_the_multiples) {
  const std::vector<int64_t> steps{10, 15, 20, 25, 30};
  EXPECT_THAT(expired_steps(steps, {}), ElementsAre());
  EXPECT_THAT(expired_steps(steps, {2, 0}), ElementsAre(10, 15, 20));
  EXPECT_THAT(expired_steps(steps, {1, 10}), ElementsAre(15, 25));
  EXPECT_THAT(expired_steps(steps, {9, 0}), ElementsAre());
  for (const int64_t step : steps) {
    add(step);
    publish_step(path, step);
  }
  remove_steps(path, {10, 20});
  EXPECT_THAT(complete_steps(path), ElementsAre(15, 25, 30));
}

TEST_F(SaveDirectory, two_runs_cannot_save_into_one_directory) {
  const DirectoryLock mine(path);
  const pid_t child = fork();
  if (child == 0) {
    try {
      const DirectoryLock other(path);
      _exit(1);
    } catch (const ConfigError& error) {
      _exit(std::string(error.what()).find(fmt::format("process {} on ", getppid())) == std::string::npos ? 2 : 0);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SaveDirectory, the_weights_file_of_an_earlier_version_is_found) {
  std::ofstream(path + "/weights.h5") << "x";
  EXPECT_EQ(resolve_checkpoint(path), path + "/weights.h5");
  EXPECT_EQ(resolve_checkpoint(path + "/nowhere"), "");
}

}  // namespace
}  // namespace triax::io
