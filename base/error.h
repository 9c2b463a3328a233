// The three kinds of error: a wrong request (ConfigError), a foreign call that failed (ApiError), a bug (ensure).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace triax {

/// Process exit codes (README "Exit codes").
enum class ExitCode { Done = 0, Usage = 2, Infeasible = 3, ValidationFailed = 4, RunTime = 5, Interrupted = 75 };

/// The user asked for something that cannot be done. The text names the option, its value, the rule and a legal value.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file, a peer or a device failed at run time (exit code 5).
class RunTimeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Another rank failed and told all of it: this rank fails with the same words, but is not at fault.
class ToldError : public RunTimeError {
 public:
  using RunTimeError::RunTimeError;
};

/// A call into a foreign library failed: call text, the library's name and words, file and line.
class ApiError : public RunTimeError {
 public:
  ApiError(std::string_view library, std::string_view call, int code, std::string_view words, const char* file,
           int line);
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Always-on check at a border; throws std::logic_error, since a failure is a bug of ours.
void ensure(bool condition, std::string_view what);

}  // namespace triax
