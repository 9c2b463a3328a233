// The machine that a sweep runs on, for the head of its results.
#pragma once

#include <string>
#include <vector>

namespace triax::plan {

struct HostFacts {
  std::string name;
  std::string processor;  ///< model name; "unknown"
  int cores = 0;          ///< that this process may use
};
HostFacts host_facts();

/// Lines "key: value" for the head of a file: version, commit, compiler, MPI, host, processor, cores, date, command.
std::vector<std::string> provenance(const std::vector<std::string>& command_line);

}  // namespace triax::plan
