#include "io/data/index_cache.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/philox.h"
#include "io/data/heartbeat.h"

namespace triax::io {

namespace fs = std::filesystem;

bool IndexCache::complete(const Key& key, const std::string& base) const {
  std::ifstream file(base + "-description.json", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str() != key.description) return false;
  for (const std::string& array : key.arrays) {
    if (!fs::exists(fmt::format("{}-{}.npy", base, array))) return false;
  }
  return true;
}

std::vector<NpyFile> IndexCache::get(const Key& key, const std::function<void(const Put&)>& build) const {
  const std::string base =
      (fs::path(directory_) / fmt::format("{:016x}-{}", stream_of(key.description), key.label)).string();
  if (!complete(key, base)) {
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) {
      throw RunTimeError(
          fmt::format("{}: cannot make the directory for dataset indices: {}; give a writable one with "
                      "--data-cache-path",
                      directory_, error.message()));
    }
    const Stopwatch watch;
    try {
      const Heartbeat heartbeat(fmt::format("building the {} index", key.label));
      build([&base](const std::string& array, const char* type, std::span<const std::byte> data,
                    std::span<const int64_t> shape) {
        write_npy(fmt::format("{}-{}.npy", base, array), type, data, shape);
      });
      AtomicFile description(base + "-description.json");
      description.write(key.description.data(), key.description.size());
      description.commit();
    } catch (const RunTimeError& fault) {
      throw RunTimeError(fmt::format("{}; dataset indices go to {}: give another directory with --data-cache-path",
                                     fault.what(), directory_));
    }
    spdlog::info("built the {} index in {:.1f} s: {}-*", key.label, watch.elapsed_s(), base);
  }
  std::vector<NpyFile> files;
  files.reserve(key.arrays.size());
  for (const std::string& array : key.arrays) files.emplace_back(fmt::format("{}-{}.npy", base, array));
  return files;
}

}  // namespace triax::io
