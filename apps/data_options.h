// What the `triax data` subcommands share: parsing, tokenizer options.
#pragma once

#include <boost/program_options.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer/tokenizer.h"

namespace triax::apps {

namespace po = boost::program_options;

/// A subcommand of `triax data`: its name, what it does in a line, its options, and the one that bare words go to.
struct DataSyntax {
  std::string name;
  std::string summary;
  po::options_description options;
  std::string positional;
};

/// Parsed options, or nullopt when --help was given (it is printed). Abbreviations are off, the last occurrence wins.
/// Throws ConfigError, which names the subcommand's --help.
std::optional<po::variables_map> parse(const DataSyntax& syntax, const std::vector<std::string>& args);

/// Adds --tokenizer-type and its companions, writing into `options`.
void add_tokenizer_options(po::options_description& description, io::TokenizerOptions& options);

// Subcommands; see data_command.
int data_build(const std::vector<std::string>& args);
int data_show(const std::vector<std::string>& args);
int data_verify(const std::vector<std::string>& args);
int data_merge(const std::vector<std::string>& args);
int data_train_tokenizer(const std::vector<std::string>& args);

}  // namespace triax::apps
