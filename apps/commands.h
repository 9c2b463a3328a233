// One function per subcommand of `triax`. Each gets the words after its name, prints results on stdout, and returns the
// exit code; it throws ConfigError for a wrong request and RunTimeError for a failure, which main turns into 2 and 5.
#pragma once

#include <string>
#include <vector>

#include "io/options/man.h"

namespace triax::apps {

/// Those that are in this version.
std::vector<io::CommandSummary> command_summaries();

int bench_command(const std::vector<std::string>& args);
int ckpt_command(const std::vector<std::string>& args);
int data_command(const std::vector<std::string>& args);
int doctor_command(const std::vector<std::string>& args);
int mem_command(const std::vector<std::string>& args);
int options_command(const std::vector<std::string>& args);
int plan_command(const std::vector<std::string>& args);
int program_command(const std::vector<std::string>& args);
int report_command(const std::vector<std::string>& args);
int sample_command(const std::vector<std::string>& args);
int sim_command(const std::vector<std::string>& args);
int sweep_command(const std::vector<std::string>& args);
int topo_command(const std::vector<std::string>& args);
int trace_command(const std::vector<std::string>& args);
int train_command(const std::vector<std::string>& args);

}  // namespace triax::apps
