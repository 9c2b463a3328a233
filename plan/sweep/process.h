// A child process with its output in files, a time limit, and an end that follows ours.
#pragma once

#include <string>
#include <vector>

namespace triax::plan {

struct ProcessRequest {
  std::vector<std::string> command;  ///< the program is looked for in PATH
  std::string stdout_path, stderr_path;
  std::string directory;  ///< where it runs; empty: here
  double timeout_s = 0;   ///< 0: none; then SIGTERM, and SIGKILL 10 s later
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 where a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool interrupted = false;  ///< this process was told to stop (SIGINT, SIGTERM), and the child with it
  double wall_s = 0;
};

/// Runs and waits. The child has a process group of its own, gets SIGTERM when this process dies, and is stopped when
/// this process gets SIGINT or SIGTERM (StopSignals). A program that cannot be started throws RunTimeError.
ProcessResult run_process(const ProcessRequest& request);

/// While it lives, SIGINT and SIGTERM are remembered instead of ending the process.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  StopSignals(StopSignals&&) = delete;
  StopSignals& operator=(StopSignals&&) = delete;
  ~StopSignals();
  /// The signal, 0 for none.
  static int received();
};

/// Words of a command line as a shell would split them: blanks, quotes of both kinds, backslash.
/// Throws ConfigError on an open quote.
std::vector<std::string> split_command(const std::string& text);

/// Absolute path of `name` in PATH; empty when there is none.
std::string find_program(const std::string& name);

/// Path of the running binary.
std::string own_binary();

}  // namespace triax::plan
