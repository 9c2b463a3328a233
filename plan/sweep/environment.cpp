#include "plan/sweep/environment.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>

#include "base/version.h"

namespace triax::plan {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

HostFacts host_facts() {
  HostFacts facts;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) facts.name = name.data();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) facts.cores = CPU_COUNT(&allowed);
  facts.processor = processor_name();
  return facts;
}

std::vector<std::string> provenance(const std::vector<std::string>& command_line) {
  const BuildInfo build = build_info();
  const HostFacts host = host_facts();
  std::string command;
  for (const std::string& word : command_line) {
    const bool plain = word.find_first_of(" \t\"'{};&|*?$") == std::string::npos && !word.empty();
    command += (command.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return {fmt::format("triax: {} ({})", build.version, build.commit),
          fmt::format("built: {}, {}", build.compiler, build.mpi),
          fmt::format("host: {}, {}, {} cores", host.name, host.processor, host.cores),
          fmt::format("date: {:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          fmt::format("command: {}", command)};
}

}  // namespace triax::plan
