// What `triax program` is asked: options of the layout as everywhere, and its own. No ranks and no model are needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "io/options/options.h"
#include "parallel/schedule.h"
#include "parallel/simulator.h"

namespace triax::apps {

/// Values that mean something only together with others.
struct LayoutWords {
  std::string schedule;
  int64_t num_micro_batches = 0, data_parallel = 0, world = 0;  ///< 0: not given
};

struct ProgramRequest {
  io::ParsedOptions parsed;
  LayoutWords words;
  parallel::ScheduleOptions schedule;
  parallel::Program program;
  int replicas = 1;

  Format format = Format::Table;
  bool all_ops = false;  ///< --ops all
  bool inside = false;   ///< --inside
  bool describe = false;
  std::string out;          ///< --out FILE, empty: stdout
  std::string svg, chrome;  ///< files to write, empty: none
  std::string cost;         ///< as given
  int64_t width = 0;        ///< 0: the terminal's, else 100
  parallel::TimeOptions time;
  int64_t replica = 0;
};

/// Options of `triax program` beside the table's. The entries write into `request`, which must outlive them.
std::vector<io::OptionEntry> program_entries(ProgramRequest& request);

/// Parses, reads a schedule file, makes the program. request.parsed.help is set where only help was asked.
/// Throws ConfigError.
void read_request(const std::vector<std::string>& args, ProgramRequest& request);

/// The hash of a program, 16 hex digits.
std::string hash_text(const parallel::Program& program);

/// Columns of the terminal that stdout is, or 0 where it is none.
int terminal_width();
/// Writes a whole file; throws RunTimeError with path and reason.
void write_file(const std::string& path, const std::string& text);
/// To the file, or to stdout where `path` is empty.
void write_result(const std::string& path, const std::string& text);
/// Reads a whole file; throws RunTimeError with path and reason.
std::string read_file(const std::string& path);

/// `triax program time`; the program has passed check().
int program_time(const ProgramRequest& request);

}  // namespace triax::apps
