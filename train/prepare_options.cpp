// Completes the options of a run from its data and, where they say so, from its checkpoint.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>

#include "io/options/validate.h"
#include "train/collective_task.h"
#include "train/resume.h"
#include "train/training_run.h"
#include "train/watched_task.h"

namespace triax::train {
namespace {

/// What `read` returns; throws Stalled, naming `what`, when a disk or file system does not answer within the deadline.
/// A reader that has stalled is left behind, so it must own what it uses.
template <class T>
T read_in_time(const std::string& what, const io::RunOptions& options, std::function<T()> read) {
  const auto result = std::make_shared<T>();
  WatchedTask task([result, read = std::move(read)] { *result = read(); }, deadline_s(options));
  try {
    while (!task.beat()) {
    }
  } catch (const Stalled& error) {
    throw Stalled(fmt::format("{}: {}", what, error.what()));
  }
  task.get();
  return std::move(*result);
}

struct Found {
  LoadRequest load;
  io::CheckpointHeader header;  ///< of load.path, when there is one
};

/// The checkpoint that --load names; without one `load.path` is empty.
Found find_and_read(const io::RunOptions& options) {
  if (options.control.load.empty()) return {};
  return read_in_time<Found>("--load " + options.control.load, options, [control = options.control] {
    Found found;
    found.load = find_checkpoint(control);
    const std::string& path = found.load.path;
    if (!path.empty()) read_or_name_others(path, control, [&] { found.header = read_header_of(path); });
    return found;
  });
}

/// The model of the checkpoint that --load names.
void take_model(io::ParsedOptions& parsed) {
  io::RunOptions& options = parsed.options;
  const Found found = find_and_read(options);
  if (found.load.path.empty()) return;  // a fresh start: the dimensions must be given
  const int64_t seq_length = options.model.seq_length;
  options.model = found.header.weights.model;
  if (parsed.given("seq-length")) options.model.seq_length = seq_length;
}

void compare_with_checkpoint(io::ParsedOptions& parsed, int world_size) {
  const Found found = find_and_read(parsed.options);
  if (found.load.path.empty()) return;
  if (!found.load.note.empty()) parsed.notes.push_back(found.load.note);
  const auto changed = apply_resume_rules(parsed.options, found.header, found.load);
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
    facts = read_in_time<DataFacts>("the data", options, [options] { return inspect_data(options); });
    options.model.vocab_size = facts.vocab_size;
  }
  io::resolve(options, world_size);
  compare_with_checkpoint(request.parsed, world_size);
  return facts;
}

}  // namespace triax::train
