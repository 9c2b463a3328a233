// Saving and loading.
#include "io/options/entries.h"

namespace triax::io {
namespace {

constexpr OptionGroup kCheckpointGroup = OptionGroup::Checkpoint;

std::vector<OptionEntry> save_entries() {
  return {
      text_option(
          "save", kCheckpointGroup, "DIR", [](auto& o) -> auto& { return o.control.save; },
          "save checkpoints there: at the end, when stopped, and at --save-interval"),
      integer_option(
          "save-interval", kCheckpointGroup, {1}, [](auto& o) -> auto& { return o.control.save_interval; },
          "iterations between saves; default every 30 minutes"),
      switch_option(
          "save-optim", kCheckpointGroup, [](auto& o) -> auto& { return o.control.save_optim; },
          "--no-save-optim: weights only"),
      integer_option(
          "keep-latest", kCheckpointGroup, {1}, [](auto& o) -> auto& { return o.control.keep_latest; },
          "checkpoints that are kept; default all"),
      integer_option(
          "save-retain-interval", kCheckpointGroup, {1},
          [](auto& o) -> auto& { return o.control.save_retain_interval; },
          "checkpoints of iterations that this divides are kept too; without --keep-latest that is 1"),
      switch_option(
          "async-save", kCheckpointGroup, [](auto& o) -> auto& { return o.control.async_save; },
          "copy, then write while training goes on"),
      choice_option<AsyncBusy>(
          "async-save-busy", kCheckpointGroup, {{"wait", AsyncBusy::Wait}, {"skip", AsyncBusy::Skip}},
          [](auto& o) -> auto& { return o.control.async_save_busy; },
          "what a save does while the one before is being written"),
      integer_option(
          "ckpt-writers-per-node", kCheckpointGroup, {1, 4096},
          [](auto& o) -> auto& { return o.control.ckpt_writers_per_node; },
          "ranks of a node that write files; default every rank"),
  };
}

std::vector<OptionEntry> load_entries() {
  return {
      text_option(
          "load", kCheckpointGroup, "DIR", [](auto& o) -> auto& { return o.control.load; },
          "go on from the latest checkpoint there, in any layout; none is a fresh start only when it equals --save"),
      integer_option(
          "ckpt-step", kCheckpointGroup, {1}, [](auto& o) -> auto& { return o.control.ckpt_step; },
          "iteration to load; default the latest"),
      switch_option(
          "finetune", kCheckpointGroup, [](auto& o) -> auto& { return o.control.finetune; },
          "a new run from the weights of --load: iteration 0, no optimizer state"),
      switch_option(
          "load-optim", kCheckpointGroup, [](auto& o) -> auto& { return o.control.load_optim; },
          "--no-load-optim: moments and learning-rate schedule start anew"),
      switch_option(
          "exit-on-missing-checkpoint", kCheckpointGroup,
          [](auto& o) -> auto& { return o.control.exit_on_missing_checkpoint; },
          "no fresh start when --load has no checkpoint"),
      switch_option(
          "use-checkpoint-args", kCheckpointGroup, [](auto& o) -> auto& { return o.control.use_checkpoint_args; },
          "dimensions of the model from the checkpoint"),
      aliased(switch_option(
                  "override-opt_param-scheduler", kCheckpointGroup,
                  [](auto& o) -> auto& { return o.control.override_scheduler; },
                  "this run's learning-rate schedule and weight decay instead of the checkpoint's"),
              {"override-opt-param-scheduler"}),
      aliased(switch_option(
                  "use-checkpoint-opt_param-scheduler", kCheckpointGroup,
                  [](auto& o) -> auto& { return o.control.use_checkpoint_scheduler; },
                  "the checkpoint's schedule and weight decay instead of this run's"),
              {"use-checkpoint-opt-param-scheduler"}),
      switch_option(
          "verify-integrity", kCheckpointGroup, [](auto& o) -> auto& { return o.control.verify_integrity; },
          "check every file of the checkpoint before it is loaded"),
  };
}

}  // namespace

std::vector<OptionEntry> checkpoint_entries() {
  std::vector<OptionEntry> all = save_entries();
  for (OptionEntry& entry : load_entries()) all.push_back(std::move(entry));
  return all;
}

}  // namespace triax::io
