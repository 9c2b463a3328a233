// Completes the options of a run from its data and, where they say so, from its checkpoint.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/options/validate.h"
#include "train/resume.h"
#include "train/training_run.h"

namespace triax::train {
namespace {

/// The model of the checkpoint that --load names.
void take_model(io::ParsedOptions& parsed) {
  io::RunOptions& options = parsed.options;
  const LoadRequest load = find_checkpoint(options.control);
  if (load.path.empty()) return;  // a fresh start: the dimensions must be given
  const int64_t seq_length = options.model.seq_length;
  read_or_name_others(load.path, options.control,
                      [&] { options.model = read_header_of(load.path).weights.model; });
  if (parsed.given("seq-length")) options.model.seq_length = seq_length;
}

void compare_with_checkpoint(io::ParsedOptions& parsed, int world_size) {
  const LoadRequest load = find_checkpoint(parsed.options.control);
  if (load.path.empty()) return;
  if (!load.note.empty()) parsed.notes.push_back(load.note);
  io::CheckpointHeader header;
  read_or_name_others(load.path, parsed.options.control, [&] { header = read_header_of(load.path); });
  const auto changed = apply_resume_rules(parsed.options, header, load);
  io::resolve(parsed.options, world_size);
  if (changed.empty()) return;
  parsed.notes.push_back(fmt::format("differs from the checkpoint's options:\n  {}", fmt::join(changed, "\n  ")));
}

}  // namespace

DataFacts prepare_options(RunRequest& request, int world_size) {
  io::RunOptions& options = request.parsed.options;
  if (options.control.use_checkpoint_args || (options.control.skip_train && options.model.num_layers == 0)) {
    take_model(request.parsed);
  }
  // Faults of the data are told together with the others only when the rest could be read at all.
  DataFacts facts;
  if (io::faults(options, world_size).empty()) {
    facts = inspect_data(options);
    options.model.vocab_size = facts.vocab_size;
  }
  io::resolve(options, world_size);
  compare_with_checkpoint(request.parsed, world_size);
  return facts;
}

}  // namespace triax::train
