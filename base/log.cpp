#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdio>

#include "base/error.h"

namespace triax {

void init_log(const std::string& level, const std::string& who) {
  // stderr_color_mt colours only when stderr is a terminal.
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("triax", sink);
  logger->set_pattern(who.empty() ? "[%H:%M:%S] %^%l%$: %v" : "[%H:%M:%S] %^%l%$ " + who + ": %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

void ensure_stdout_written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw RunTimeError("standard output cannot be written");
}

}  // namespace triax
