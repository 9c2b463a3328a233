// Opening, creating and syncing checkpoint files, with errors that say what a user can do.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/checkpoint/shard.h"

namespace triax::io {
namespace {

constexpr hsize_t kAlignedBytes = 65536;  // datasets from this size on begin with a page

/// "process 4711 (h5dump)" for the holder of a lock on the file in Linux's table of locks; empty when there is none.
std::string lock_holder(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  const std::string file = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, type, advisory, mode, process, id;
    words >> number >> type >> advisory >> mode >> process >> id;
    if (id != file) continue;
    std::string name;
    std::getline(std::ifstream("/proc/" + process + "/comm") >> std::ws, name);
    return fmt::format("process {} ({})", process, name.empty() ? "of another host or container" : name);
  }
  return {};
}

bool has_hdf5_signature(const std::string& path) {
  constexpr char kSignature[] = "\x89HDF\r\n\x1a\n";
  char begin[8] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof(begin));
  return std::memcmp(begin, kSignature, sizeof(begin)) == 0;
}

}  // namespace

Hdf5Properties file_access() {
  Hdf5Properties properties(TRIAX_H5(H5Pcreate(H5P_FILE_ACCESS)));
  TRIAX_H5(H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V110, H5F_LIBVER_V110));
  TRIAX_H5(H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG));
  // Columns are read run by run: no bytes beside them.
  TRIAX_H5(H5Pset_sieve_buf_size(properties.get(), 1));
#if H5_VERSION_GE(1, 10, 7)
  if (std::getenv("HDF5_USE_FILE_LOCKING") == nullptr) {
    TRIAX_H5(H5Pset_file_locking(properties.get(), true, true));
  }
#endif
  return properties;
}

Hdf5File create_file(const std::string& path) {
  quiet_hdf5();
  const Hdf5Properties access = file_access();
  TRIAX_H5(H5Pset_alignment(access.get(), kAlignedBytes, static_cast<hsize_t>(kPageBytes)));
  errno = 0;
  Hdf5File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
  if (!file) throw RunTimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  return file;
}

Hdf5File open_file(const std::string& path, const std::string& what) {
  quiet_hdf5();
  if (!std::filesystem::exists(path)) throw RunTimeError(fmt::format("{}: {} is missing", what, path));
  if (::access(path.c_str(), R_OK) != 0) {
    throw RunTimeError(fmt::format("{}: {} may not be read: {}", what, path, std::strerror(errno)));
  }
  const Hdf5Properties access = file_access();
  Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (file) return file;
  const std::string holder = lock_holder(path);
  if (!holder.empty()) {
    throw RunTimeError(
        fmt::format("{}: {} is locked by {}: wait for it, or, when it only reads, set HDF5_USE_FILE_LOCKING=FALSE",
                    what, path, holder));
  }
  if (!has_hdf5_signature(path)) throw RunTimeError(fmt::format("{}: {} is damaged or no HDF5 file", what, path));
  throw RunTimeError(
      fmt::format("{}: {} is damaged (cut short or changed), or locked by a process of another host (then wait for it, "
                  "or set HDF5_USE_FILE_LOCKING=FALSE)",
                  what, path));
}

}  // namespace triax::io
