// Parts of `triax ckpt`: one function per subcommand and per format of export and import.
#pragma once

#include <string>
#include <vector>

#include "apps/ckpt_options.h"

namespace triax::apps {

/// "from" and "to" of a copy, and the kinds of tensor it takes (empty: all, or what the format can hold).
struct CopyRequest {
  std::string from;  ///< a step's directory or an HDF5 file, resolved
  std::string to;
  std::vector<std::string> kinds;
  CkptOptions options;  ///< as given
};

/// A format of `ckpt export --format NAME` or `ckpt import --format NAME`.
struct CopyFormat {
  const char* name;
  const char* summary;
  int (*run)(const CopyRequest& request);
};
const std::vector<CopyFormat>& export_formats();
const std::vector<CopyFormat>& import_formats();
int export_to_safetensors(const CopyRequest& request);
int import_from_safetensors(const CopyRequest& request);

/// The step or file that a user names (io::resolve_checkpoint); throws ConfigError naming `command` when there is none.
std::string checkpoint_at(const std::string& command, const std::string& path, int64_t step);

int ckpt_ls(const std::vector<std::string>& args);
int ckpt_verify(const std::vector<std::string>& args);
int ckpt_diff(const std::vector<std::string>& args);
int ckpt_export(const std::vector<std::string>& args);
int ckpt_import(const std::vector<std::string>& args);
int ckpt_reshard(const std::vector<std::string>& args);

}  // namespace triax::apps
