// `triax data`: makes, shows, checks and merges datasets; trains tokenizers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "apps/commands.h"
#include "apps/data_options.h"
#include "base/error.h"

namespace triax::apps {

namespace {

struct DataCommand {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

constexpr std::array<DataCommand, 5> kDataCommands{{
    {"build", "text or JSONL to Megatron .bin/.idx", data_build},
    {"show", "header, counts and tokens of a dataset", data_show},
    {"verify", "check every entry and token of datasets", data_verify},
    {"merge", "several datasets into one", data_merge},
    {"train-tokenizer", "a BPE or SentencePiece tokenizer from text", data_train_tokenizer},
}};

std::string data_usage() {
  std::string text = "usage: triax data COMMAND [options]\n\n";
  for (const DataCommand& command : kDataCommands) text += fmt::format("  {:<16} {}\n", command.name, command.summary);
  return text + "\n'triax data COMMAND --help' lists the options of a command.\n";
}

// A value that is written with its option ("--x=1") or in the words after it.
po::parsed_options parse_words(const DataSyntax& syntax, const std::vector<std::string>& args) {
  namespace style = po::command_line_style;
  po::positional_options_description bare;
  if (!syntax.positional.empty()) bare.add(syntax.positional.c_str(), -1);
  return po::command_line_parser(args)
      .options(syntax.options)
      .positional(bare)
      .style(style::unix_style & ~style::allow_guessing & ~style::allow_short)
      .run();
}

// Boost refuses a repeated option; here the last one wins, but every occurrence of a list adds to it.
void keep_last(po::parsed_options& parsed, const po::options_description& options) {
  std::vector<po::option> kept;
  for (auto at = parsed.options.rbegin(); at != parsed.options.rend(); ++at) {
    const po::option_description* known = options.find_nothrow(at->string_key, false);
    const bool list = known != nullptr && known->semantic()->max_tokens() > 1;
    const bool later = std::any_of(kept.begin(), kept.end(),
                                   [&at](const po::option& option) { return option.string_key == at->string_key; });
    if (list || !later) kept.push_back(*at);
  }
  std::reverse(kept.begin(), kept.end());
  parsed.options = std::move(kept);
}

}  // namespace

std::optional<po::variables_map> parse(const DataSyntax& syntax, const std::vector<std::string>& args) {
  DataSyntax full = syntax;
  full.options.add_options()("help", "this text");
  po::variables_map values;
  try {
    po::parsed_options parsed = parse_words(full, args);
    keep_last(parsed, full.options);
    po::store(parsed, values);
    if (values.contains("help")) {
      std::cout << fmt::format("usage: triax data {} [options]\n{}\n", full.name, full.summary) << full.options;
      return std::nullopt;
    }
    po::notify(values);
  } catch (const po::error& fault) {
    throw ConfigError(
        fmt::format("triax data {}: {}; 'triax data {} --help' lists the options", full.name, fault.what(), full.name));
  }
  return values;
}

void add_tokenizer_options(po::options_description& description, io::TokenizerOptions& options) {
  std::string types;
  for (const std::string_view type : io::tokenizer_types()) {
    types += (types.empty() ? "" : ", ");
    types += type;
  }
  auto add = description.add_options();
  add("tokenizer-type", po::value(&options.type)->value_name("TYPE"), types.c_str());
  add("tokenizer-model", po::value(&options.model)->value_name("FILE"),
      "SentencePiece .model, tokenizer.json or its directory, tiktoken ranks");
  add("vocab-file", po::value(&options.vocab_file)->value_name("FILE"), "vocab.json of GPT2BPETokenizer");
  add("merge-file", po::value(&options.merge_file)->value_name("FILE"), "merges.txt of GPT2BPETokenizer");
  add("vocab-size", po::value(&options.vocab_size)->value_name("N"), "ids of NullTokenizer; bound of TikTokenizer");
  add("tiktoken-pattern", po::value(&options.tiktoken_pattern)->value_name("v1|v2"), "default v2");
  add("tiktoken-num-special-tokens", po::value(&options.tiktoken_num_special_tokens)->value_name("N"), "default 1000");
  add("tiktoken-special-tokens", po::value(&options.tiktoken_special_tokens)->multitoken()->value_name("TOKEN..."),
      "default Megatron's ten");
}

int data_command(const std::vector<std::string>& args) {
  if (args.empty()) throw ConfigError(data_usage());
  if (args[0] == "--help" || args[0] == "help") {
    std::cout << data_usage();
    return 0;
  }
  for (const DataCommand& command : kDataCommands) {
    if (args[0] == command.name) return command.run({args.begin() + 1, args.end()});
  }
  throw ConfigError(fmt::format("triax data {}: there is no such command\n{}", args[0], data_usage()));
}

}  // namespace triax::apps
