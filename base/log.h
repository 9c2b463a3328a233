// Log lines go to stderr; results go to stdout by other ways.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace triax {

/// Sends spdlog's default logger to stderr as "[time] level rank: text"; level is "debug", "info", "warn" or "error".
/// `who` is empty or for example "rank 3 (host, tp 1 pp 0 dp 1)".
void init_log(const std::string& level, const std::string& who);

/// Throws RunTimeError when something written to stdout has not arrived: a full disk or a closed pipe must not look
/// like success.
void ensure_stdout_written();

}  // namespace triax
