#include "base/error.h"
#include "io/data/blend.h"
#include "io/options/fault_list.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

void check_blend(const char* option, const std::vector<std::string>& words, FaultList& faults) {
  if (words.empty()) return;
  try {
    parse_blend(option, words);
  } catch (const ConfigError& error) {
    faults.text(error.what());
  }
}

// Files that a tokenizer type cannot do without.
void check_tokenizer_options(const DataOptions& data, FaultList& faults) {
  const std::string& type = data.tokenizer_type;
  const auto needs = [&](const std::string& file, const char* option) {
    if (file.empty())
      faults.add("tokenizer-type", type, fmt::format("needs --{}", option), fmt::format("--{} FILE", option));
  };
  if (type == "GPT2BPETokenizer") {
    needs(data.vocab_file, "vocab-file");
    needs(data.merge_file, "merge-file");
  }
  if (type == "SentencePieceTokenizer" || type == "Llama2Tokenizer" || type == "HuggingFaceTokenizer" ||
      type == "TikTokenizer") {
    needs(data.tokenizer_model, "tokenizer-model");
  }
}

void check_data(const RunOptions& options, FaultList& faults) {
  const DataOptions& data = options.data;
  const bool per_split = !data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty();
  if (data.mock_data) {
    if (!data.data_path.empty() || per_split) {
      faults.text("--mock-data excludes --data-path and its kind; use one of the two");
    }
    if (options.model.vocab_size <= 0) {
      faults.missing("vocab-size", "mock data has no description that names one");
    }
    return;
  }
  if (data.data_path.empty() && !per_split) {
    faults.missing("data-path",
                   "prefixes of .bin/.idx data made by `triax data build`; or --mock-data for made-up tokens");
  }
  if (!data.data_path.empty() && per_split) {
    faults.text(
        fmt::format("--data-path {}: excludes --train-data-path, --valid-data-path and --test-data-path; use one "
                    "or the others",
                    join(data.data_path)));
  }
  check_blend("--data-path", data.data_path, faults);
  check_blend("--train-data-path", data.train_data_path, faults);
  check_blend("--valid-data-path", data.valid_data_path, faults);
  check_blend("--test-data-path", data.test_data_path, faults);
  if (per_split && data.train_data_path.empty() && !options.control.skip_train) {
    faults.missing("train-data-path", "the other splits are named one by one");
  }
}

// Of Megatron-LM's names only those that would have to do something are faults without a directory.
void check_checkpoints(const RunControl& control, FaultList& faults) {
  const auto needs = [&faults](bool given, const char* option, const std::string& directory, const char* other) {
    if (given && directory.empty()) faults.missing(other, fmt::format("--{} is about it", option));
  };
  needs(control.ckpt_step > 0, "ckpt-step", control.load, "load");
  needs(control.use_checkpoint_args, "use-checkpoint-args", control.load, "load");
  if (!control.skip_train) {
    needs(control.async_save, "async-save", control.save, "save");
    needs(control.save_interval > 0, "save-interval", control.save, "save");
    needs(control.keep_latest > 0, "keep-latest", control.save, "save");
    needs(control.save_retain_interval > 0, "save-retain-interval", control.save, "save");
    needs(control.ckpt_writers_per_node > 0, "ckpt-writers-per-node", control.save, "save");
  }
  if (control.override_scheduler && control.use_checkpoint_scheduler) {
    faults.text("--override-opt_param-scheduler excludes --use-checkpoint-opt_param-scheduler; use one of the two");
  }
}

void check_profile(const RunOptions& options, FaultList& faults) {
  const RunControl& control = options.control;
  if (!control.profile) return;
  if (control.profile_step_end <= control.profile_step_start) {
    faults.add("profile-step-end", control.profile_step_end,
               fmt::format("must be more than --profile-step-start {}", control.profile_step_start),
               std::to_string(control.profile_step_start + 1));
  } else if (options.batch.train_iters > 0 && control.profile_step_end > options.batch.train_iters) {
    faults.add("profile-step-end", control.profile_step_end,
               fmt::format("the run ends with iteration {}", options.batch.train_iters),
               fmt::format("at most {}, with a smaller --profile-step-start", options.batch.train_iters));
  }
  if (control.skip_train) faults.text("--profile: --skip-train makes no steps; leave one of them out");
  const int world = options.parallel.grid.world();
  for (const std::string& word : control.profile_ranks) {
    const std::optional<int64_t> rank = parse_integer(word);
    if (rank && *rank >= 0 && *rank < world) continue;
    faults.add("profile-ranks", word, "must be ranks of the run", fmt::format("0 to {}", world - 1));
  }
}

}  // namespace

void check_run(const RunOptions& options, FaultList& faults) {
  check_data(options, faults);
  check_profile(options, faults);
  check_tokenizer_options(options.data, faults);
  const RunControl& control = options.control;
  check_checkpoints(control, faults);
  if (control.skip_train && control.load.empty()) {
    faults.missing("load", "--skip-train evaluates saved weights");
  }
  if (control.skip_train && control.eval_iters == 0) {
    faults.add("eval-iters", 0, "--skip-train would do nothing", "1 or more");
  }
}

}  // namespace triax::io
