#include "train/save_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace triax::train {
void check_writable(const std::string& save) {
  const std::string probe = save + "/.writable";
  std::error_code error;
  std::filesystem::create_directories(save, error);
  std::ofstream file(probe);
  if (error || !(file << "x" << std::flush)) {
    throw ConfigError(fmt::format("--save {}: cannot be written: {}; name a directory that can be", save,
                                  error ? error.message() : std::strerror(errno)));
  }
  file.close();
  std::filesystem::remove(probe, error);
}

}  // namespace triax::train
