// A sweep as one Slurm job array.
#pragma once

#include <string>
#include <vector>

namespace triax::plan {

struct ArrayJob {
  std::string name, directory;  ///< of the sweep
  std::vector<int> points;      ///< 0-based indices that are missing
  int tasks = 1;                ///< ranks of the largest point
  double point_timeout_s = 0;
  std::vector<std::string> sbatch_options;  ///< "partition=debug", "time=01:00:00"
  std::vector<std::string> command;         ///< the sweep's own, without --submit; each task adds --only-point
};

/// The batch script: #SBATCH lines, then the command with --only-point $SLURM_ARRAY_TASK_ID. {ranks} of the default
/// launcher becomes srun -n.
std::string batch_script(const ArrayJob& job);

/// Writes DIRECTORY/sweep.sbatch and gives it to sbatch. Returns sbatch's words. Throws ConfigError where there is no
/// sbatch (the script is kept and named), RunTimeError where it refuses.
std::string submit(const ArrayJob& job);

/// A word as a POSIX shell reads it back.
std::string shell_word(const std::string& word);

}  // namespace triax::plan
