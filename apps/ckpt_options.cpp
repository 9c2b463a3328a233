#include "apps/ckpt_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <map>

#include "base/error.h"

namespace triax::apps {
namespace {

namespace po = boost::program_options;

/// Which options each subcommand has.
const std::map<std::string, std::vector<std::string>>& options_by_command() {
  static const std::map<std::string, std::vector<std::string>> kOptions{
      {"ls", {"step", "steps", "hash", "format"}},
      {"verify", {"step", "all"}},
      {"diff", {"step", "atol", "rtol", "kind", "format"}},
      {"export",
       {"step", "kind", "format", "dtype", "max-shard-size", "no-tokenizer", "tokenizer-model", "vocab-file",
        "merge-file"}},
      {"import", {"format", "dtype", "no-tokenizer"}},
      {"reshard", {"step", "shards"}}};
  return kOptions;
}

void declare(const std::string& name, CkptOptions& o, po::options_description& options) {
  auto add = options.add_options();
  if (name == "step") add("step", po::value(&o.step));
  if (name == "steps") add("steps", po::bool_switch(&o.steps));
  if (name == "all") add("all", po::bool_switch(&o.all));
  if (name == "hash") add("hash", po::bool_switch(&o.hash));
  if (name == "format") add("format", po::value(&o.format));
  if (name == "atol") add("atol", po::value(&o.absolute));
  if (name == "rtol") add("rtol", po::value(&o.relative));
  if (name == "kind") add("kind", po::value(&o.kinds)->composing());
  if (name == "shards") add("shards", po::value(&o.shards));
  if (name == "dtype") add("dtype", po::value(&o.dtype));
  if (name == "max-shard-size") add("max-shard-size", po::value(&o.most_file_size));
  if (name == "no-tokenizer") add("no-tokenizer", po::bool_switch(&o.no_tokenizer));
  if (name == "tokenizer-model") add("tokenizer-model", po::value(&o.tokenizer_model));
  if (name == "vocab-file") add("vocab-file", po::value(&o.vocab_file));
  if (name == "merge-file") add("merge-file", po::value(&o.merge_file));
}

void check(const std::string& command, const CkptOptions& o, size_t paths) {
  const auto refuse = [&](const std::string& text) { throw ConfigError(fmt::format("ckpt {}: {}", command, text)); };
  if (o.paths.size() != paths) {
    refuse(fmt::format("needs {} path{}, not {}; 'triax ckpt {} --help' explains it", paths, paths == 1 ? "" : "s",
                       o.paths.size(), command));
  }
  const bool copies = command == "export" || command == "import";
  if (!copies && o.format != "table" && o.format != "json" && o.format != "csv") {
    refuse(fmt::format("--format {}: must be table, json or csv", o.format));
  }
  if (o.step < 0) refuse("--step must be 1 or more");
  if (!(o.absolute >= 0) || !(o.relative >= 0)) refuse("--atol and --rtol must be 0 or more");
  if (command == "reshard" && (o.shards < 1 || o.shards > 99999)) refuse("--shards must be from 1 to 99999");
}

}  // namespace

CkptOptions parse_ckpt(const std::string& command, const std::vector<std::string>& args, size_t paths) {
  CkptOptions o;
  po::options_description options;
  for (const std::string& name : options_by_command().at(command)) declare(name, o, options);
  options.add_options()("path", po::value(&o.paths));
  po::positional_options_description positional;
  positional.add("path", -1);
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::variables_map values;
    po::store(po::command_line_parser(args).options(options).positional(positional).style(style).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    throw ConfigError(
        fmt::format("ckpt {}: {}; 'triax ckpt {} --help' lists the options", command, error.what(), command));
  }
  check(command, o, paths);
  return o;
}

}  // namespace triax::apps
