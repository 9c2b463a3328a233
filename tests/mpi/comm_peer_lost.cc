// A rank that stops answering ends the job within the deadline, with words that name it. Each case is a job of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/clock.h"

namespace {

struct Job {
  int exit_code = -1;
  std::string output;
  double seconds = 0;
};

Job run(const std::string& arguments) {
  const std::string command = std::string(TRIAX_MPIEXEC) + " -n 2 " + TRIAX_CHILD + " " + arguments + " 2>&1";
  const triax::Stopwatch watch;
  Job job;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return job;
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) job.output += text.data();
  const int status = pclose(pipe);
  job.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  job.seconds = watch.elapsed_s();
  return job;
}

class PeerLost : public testing::TestWithParam<const char*> {};

TEST_P(PeerLost, ends_the_job_and_names_the_rank) {
  const std::string arguments = GetParam();
  const Job job = run(arguments);
  SCOPED_TRACE(job.output);
  EXPECT_NE(job.exit_code, 0);
  EXPECT_LT(job.seconds, 60);  // the deadline is 1 s; the rest is for a machine under load
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string operation = arguments.substr(arguments.find(' ') + 1);
  operation = operation.substr(0, operation.find(' '));
  const std::string group = operation == "data" ? "dp" : (operation == "all_reduce" ? "tp" : "world");
  if (operation == "data") operation = "all_reduce";
  for (const std::string& words : {"PeerLost: peer lost: " + operation + " #", "of group " + group,
                                   std::string("waited "), group + " rank 0 (world rank 0 on " + host.data() + ")",
                                   "no answer from " + group + " rank 1 (world rank 1 on " + host.data() + ")"}) {
    EXPECT_NE(job.output.find(words), std::string::npos) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PeerLost,
                         testing::Values("shared all_reduce stop", "shared data stop", "shared recv stop",
                                         "shared send stop", "messages all_reduce stop", "messages data stop",
                                         "messages recv stop", "messages send stop", "shared all_reduce idle",
                                         "messages recv idle"));

}  // namespace
