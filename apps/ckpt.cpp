// `triax ckpt`: looks at checkpoints, checks, compares and copies them.
#include "apps/ckpt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/commands.h"
#include "base/error.h"
#include "io/checkpoint/directory.h"

namespace triax::apps {
namespace {

struct CkptCommand {
  const char* name;
  const char* usage;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

constexpr CkptCommand kCkptCommands[] = {
    {"ls", "PATH [--step N] [--steps] [--hash] [--format table|json|csv]",
     "tensors of a checkpoint; with --steps the checkpoints of a --save directory", ckpt_ls},
    {"verify", "PATH [--step N] [--all]", "every file against its checksum: names damaged files and tensors",
     ckpt_verify},
    {"diff", "A B [--atol X] [--rtol X] [--kind K]... [--format table|json|csv]",
     "tensor by tensor; bit by bit without tolerances", ckpt_diff},
    {"export",
     "FROM TO --format FORMAT [--step N] [--kind K]...; safetensors: [--dtype fp32|bf16|fp16] [--max-shard-size 5GB] "
     "[--no-tokenizer] [--tokenizer-model F] [--vocab-file F --merge-file F]",
     "a copy in another format", ckpt_export},
    {"import", "FROM TO [--format FORMAT] [--dtype fp32|bf16|fp16] [--no-tokenizer]",
     "a checkpoint of iteration 0, with weights only, in the --save directory TO", ckpt_import},
    {"reshard", "FROM TO --shards N [--step N]", "a copy in N shards, in the --save directory TO", ckpt_reshard},
};

std::string ckpt_usage() {
  std::string text = "usage:\n";
  for (const CkptCommand& s : kCkptCommands) text += fmt::format("  triax ckpt {} {}\n", s.name, s.usage);
  text += "\n";
  for (const CkptCommand& s : kCkptCommands) text += fmt::format("  {:<8} {}\n", s.name, s.summary);
  text += "\nFormats of export:\n";
  for (const CopyFormat& f : export_formats()) text += fmt::format("  {:<12} {}\n", f.name, f.summary);
  text += "Formats of import:\n";
  for (const CopyFormat& f : import_formats()) text += fmt::format("  {:<12} {}\n", f.name, f.summary);
  return text +
         "\nPATH, A, B, FROM: a --save directory (its latest checkpoint, or that of --step), one checkpoint's "
         "directory, or "
         "an\nHDF5 file. Kinds: weight, master, exp_avg, exp_avg_sq, momentum. verify and diff end in 4 when something "
         "is "
         "found.\n";
}

}  // namespace

std::string checkpoint_at(const std::string& command, const std::string& path, int64_t step) {
  std::string found = io::resolve_checkpoint(path, step);
  if (!found.empty()) return found;
  const std::vector<int64_t> steps = io::complete_steps(path);
  throw ConfigError(fmt::format(
      "ckpt {}: {}: there is no checkpoint{}; {}", command, path,
      step > 0 ? fmt::format(" of iteration {}", step) : std::string(),
      steps.empty() ? "name a directory that --save wrote" : fmt::format("there are {}", fmt::join(steps, ", "))));
}

int ckpt_command(const std::vector<std::string>& args) {
  if (args.empty()) throw ConfigError("ckpt: needs a subcommand; 'triax ckpt --help' lists them");
  if (args[0] == "--help" || args[0] == "-h") return fmt::print("{}", ckpt_usage()), 0;
  for (const CkptCommand& s : kCkptCommands) {
    if (args[0] != s.name) continue;
    for (const std::string& word : args) {
      if (word == "--help" || word == "-h") return fmt::print("usage: triax ckpt {} {}\n", s.name, s.usage), 0;
    }
    return s.run({args.begin() + 1, args.end()});
  }
  throw ConfigError(fmt::format("ckpt {}: unknown subcommand; 'triax ckpt --help' lists them", args[0]));
}

}  // namespace triax::apps
