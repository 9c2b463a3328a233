#include "train/save_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "io/weights/transfer.h"

namespace triax::train {
namespace {

bool same_directory(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(b);
}

}  // namespace

std::string weights_to_load(const io::RunControl& control) {
  if (control.load.empty()) return "";
  const std::string path = io::weights_path(control.load);
  const bool exists = std::filesystem::exists(path);
  if (same_directory(control.load, control.save)) {
    if (!exists) return "";
    throw ConfigError(
        fmt::format("--load {}: equals --save, which asks to go on with optimizer state, but {} holds "
                    "weights only: name another --save directory to start a new run from them",
                    control.load, path));
  }
  if (!exists) throw ConfigError(fmt::format("--load {}: there is no {}", control.load, path));
  return path;
}

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
