#include "apps/thread_wait.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "apps/supervisor.h"

namespace triax::apps {
namespace {

bool has(const char* name) { return std::getenv(name) != nullptr; }

bool one_thread() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  return threads != nullptr && std::string_view(threads) == "1";
}

}  // namespace

void run_with_short_waits(char** argv) {
  if (has("GOMP_SPINCOUNT") || has("OMP_WAIT_POLICY") || one_thread() || is_traced()) return;
  // The file's own name: "/proc/self/exe" would become the name of the process.
  std::array<char, PATH_MAX> file{};
  if (::readlink("/proc/self/exe", file.data(), file.size() - 1) <= 0) return;
  ::setenv("GOMP_SPINCOUNT", kWaitLooks, 0);
  ::execv(file.data(), argv);
}

}  // namespace triax::apps
