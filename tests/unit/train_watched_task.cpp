// A task that gets on is waited for, one that does nothing is not.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "train/watched_task.h"

namespace triax::train {
namespace {

using std::chrono::milliseconds;

TEST(WatchedTask, one_that_does_nothing_is_told_and_left_behind) {
  // As a read of a file system that does not answer: the thread sleeps in the kernel. It lives on after the task
  // object.
  static std::promise<void> never;
  static std::shared_future<void> answer = never.get_future().share();
  std::string words;
  try {
    WatchedTask task([] { answer.wait(); }, 0.6);
    while (!task.beat()) {
    }
  } catch (const Stalled& error) {
    words = error.what();
  }
  EXPECT_EQ(words.substr(0, words.find(" for ")), "the disk or file system has not answered");
  EXPECT_NE(words.find("(--distributed-timeout-minutes 0.01)"), std::string::npos) << words;
}

TEST(WatchedTask, one_that_gets_on_slowly_may_take_longer_than_the_deadline) {
  WatchedTask task(
      [] {
        for (int i = 0; i < 60; ++i) std::this_thread::sleep_for(milliseconds(50));
      },
      2);
  int beats = 1;
  while (!task.beat()) ++beats;
  EXPECT_GE(beats, 4);  // half a second each at most
  EXPECT_NO_THROW(task.get());
}

TEST(WatchedTask, what_it_throws_is_its_end) {
  WatchedTask task([] { throw ConfigError("no such file"); }, 600);
  while (!task.beat()) {
  }
  EXPECT_THROW(task.get(), ConfigError);
}

}  // namespace
}  // namespace triax::train
