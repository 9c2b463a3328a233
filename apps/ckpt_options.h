// The command line of the subcommands of `triax ckpt`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace triax::apps {

struct CkptOptions {
  std::vector<std::string> paths;
  std::vector<std::string> kinds;
  std::string format = "table";
  int64_t step = 0;
  int shards = 0;
  bool hash = false, steps = false, all = false;
  double absolute = 0, relative = 0;
  // Copies in Hugging Face's form.
  std::string dtype;                   ///< empty: as stored
  std::string most_file_size = "5GB";  ///< of one safetensors file
  bool no_tokenizer = false;
  std::string tokenizer_model, vocab_file, merge_file;
};

/// Throws ConfigError naming `command`: an option that it does not have, a wrong value, another number of paths.
CkptOptions parse_ckpt(const std::string& command, const std::vector<std::string>& args, size_t paths);

}  // namespace triax::apps
