// A directory that all ranks of a test use: made before any of them goes on, removed when all have left it.
#pragma once

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/mpi/mpi_world.h"

namespace triax::test {

class SharedDirectory {
 public:
  /// Collective; `name` tells apart the directories of different tests.
  explicit SharedDirectory(std::string_view name)
      : path_(std::filesystem::temp_directory_path() / fmt::format("triax-{}-{}", name, ::getppid())) {
    if (session().rank() == 0) std::filesystem::create_directories(path_);
    meet();
  }
  ~SharedDirectory() {
    meet();
    if (session().rank() == 0) std::filesystem::remove_all(path_);
    meet();
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  SharedDirectory(SharedDirectory&&) = delete;
  SharedDirectory& operator=(SharedDirectory&&) = delete;
  std::string path(const std::string& name = "") const { return path_ / name; }

 private:
  static void meet() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    int done = 0;
    while (done == 0) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0) ::usleep(200);
    }
  }

  std::filesystem::path path_;
};

}  // namespace triax::test
