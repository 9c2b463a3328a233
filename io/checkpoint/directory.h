// The directory of --save: one subdirectory per step, a tracker file, and the order in which they change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/checkpoint/shard.h"

namespace triax::io {

inline constexpr const char* kTrackerFile = "latest_checkpointed_iteration.txt";

/// "iter_0000100".
std::string step_name(int64_t iteration);
std::string step_path(const std::string& directory, int64_t iteration);
/// Where a step is written before it is complete: "iter_0000100.tmp".
std::string unfinished_path(const std::string& directory, int64_t iteration);

/// Iterations of the complete steps (index and checksum file are there), ascending. Empty for no directory. Throws
/// RunTimeError, as the next ones do, when something may not be read.
std::vector<int64_t> complete_steps(const std::string& directory);
/// The tracker holds no iteration.
class DamagedTracker : public RunTimeError {
 public:
  using RunTimeError::RunTimeError;
};
/// What the tracker says; nullopt without one. Throws DamagedTracker when it is anything but one number.
std::optional<int64_t> tracked_step(const std::string& directory);
/// The step to load: the tracker's; when there is no tracker, or it names a step that is gone, the newest complete one.
/// nullopt: there is none.
std::optional<int64_t> latest_step(const std::string& directory);

/// Removes what killed saves left (*.tmp, *.old, the tracker's temporary file); a step saved again whose last rename
/// was still to come gets it. For one process, while nobody saves.
void remove_unfinished(const std::string& directory);
/// An empty unfinished directory of the step. For one process.
void begin_step(const std::string& directory, int64_t iteration);
/// Rename to the final name (an older complete one of the same step is exchanged with it in one operation where the
/// file system can), fsync of the directory, then the tracker. For one process.
void publish_step(const std::string& directory, int64_t iteration, const SaveHook& hook = {});

/// Which complete steps stay.
struct Retention {
  int64_t keep_latest = 0;      ///< newest N; 0: all
  int64_t retain_interval = 0;  ///< and multiples of it (0: none)
};
/// Steps that are to go, ascending; never the newest.
std::vector<int64_t> expired_steps(const std::vector<int64_t>& steps, const Retention& retention);
/// Each becomes invisible (renamed) before its files go. For one process.
void remove_steps(const std::string& directory, const std::vector<int64_t>& steps, const SaveHook& hook = {});

/// Bytes of a step's files; free bytes of the file system for this user.
int64_t step_bytes(const std::string& directory, int64_t iteration);
int64_t free_bytes(const std::string& directory);

/// Held by the one run that saves into a directory; where the file system has no locks it protects nothing.
class DirectoryLock {
 public:
  /// Throws ConfigError naming the holder when another run holds it.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// A step's directory or file from what a user names: DIR of --save (its latest step, or `iteration` when not 0), a
/// step's own directory, or an HDF5 file; in a directory of an earlier version, its weights.h5. Empty: there is none.
std::string resolve_checkpoint(const std::string& path, int64_t iteration = 0);

}  // namespace triax::io
