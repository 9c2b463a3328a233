// What --load asks for, and Megatron-LM's rules for options that differ from those of the checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/checkpoint/header.h"
#include "io/options/options.h"

namespace triax::train {

enum class LoadMode {
  Fresh,        ///< weights from the seed
  Weights,      ///< --finetune: weights only, iteration 0
  NoOptimizer,  ///< --no-load-optim: weights, iteration and samples; moments and schedule anew
  Resume,       ///< everything
};
struct LoadRequest {
  LoadMode mode = LoadMode::Fresh;
  std::string path;  ///< a step's directory or a file; empty when fresh
  std::string note;  ///< why it is another one than the tracker names; else empty
};

/// Looks into the directory of --load. Throws ConfigError when there is no checkpoint, unless --load equals --save and
/// --exit-on-missing-checkpoint is not given: that is a fresh start.
LoadRequest find_checkpoint(const io::RunControl& control);

/// Attributes of a checkpoint, without its tensors.
io::CheckpointHeader read_header_of(const std::string& path);

/// Runs f, which reads the checkpoint at `path` (empty: finds out which one that is). A file that cannot be read is
/// told with the other iterations that --ckpt-step loads from the directory of --load.
void read_or_name_others(const std::string& path, const io::RunControl& control, const std::function<void()>& f);

/// The options a checkpoint was made with; names that are gone are left out.
io::RunOptions options_of(const io::CheckpointHeader& header);

/// Checks resolved options against those of the checkpoint. Another architecture is an error. Another learning-rate
/// schedule (rates, lengths in samples, styles) or weight decay is one when the optimizer's state is loaded, unless one
/// of --override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler is given; the latter writes the
/// checkpoint's into `options`. Returns one line "name: before -> now" per option that differs. Throws ConfigError.
std::vector<std::string> apply_resume_rules(io::RunOptions& options, const io::CheckpointHeader& header,
                                            const LoadRequest& request);

}  // namespace triax::train
