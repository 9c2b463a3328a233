#include "comm/delay.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "base/philox.h"
#include "base/split.h"

namespace triax::comm {
namespace {

[[noreturn]] void refuse_delay(const std::string& rule) {
  throw ConfigError(
      fmt::format("injected delay '{}': expected GROUP:fixed:TIME or GROUP:uniform:LEAST:MOST[:seed=N] with times such "
                  "as 0, 500us, "
                  "20ms or 1s; for example dp:fixed:20ms or all:uniform:0:2ms:seed=7",
                  rule));
}

template <class T>
const char* parse_number(const std::string& text, size_t from, T& value, const std::string& rule) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + from, end, value);
  if (error != std::errc() || value < 0) refuse_delay(rule);
  return rest;
}

double parse_time(const std::string& text, const std::string& rule) {
  double value = 0;
  const std::string unit = parse_number(text, 0, value, rule);
  if (unit == "us") return value * 1e-6;
  if (unit == "ms") return value * 1e-3;
  if (unit == "s" || (unit.empty() && value == 0)) return value;
  refuse_delay(rule);
}

DelayRule parse_delay(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 3 || parts[0].empty()) refuse_delay(text);
  DelayRule rule;
  rule.group = parts[0];
  rule.least_s = parse_time(parts[2], text);
  if (parts[1] == "fixed") {
    if (parts.size() != 3) refuse_delay(text);
    rule.most_s = rule.least_s;
    return rule;
  }
  if (parts[1] != "uniform" || parts.size() < 4 || parts.size() > 5) refuse_delay(text);
  rule.most_s = parse_time(parts[3], text);
  if (rule.most_s < rule.least_s) refuse_delay(text);
  if (parts.size() == 5) {
    if (parts[4].rfind("seed=", 0) != 0 || *parse_number(parts[4], 5, rule.seed, text) != '\0') refuse_delay(text);
  }
  return rule;
}

}  // namespace

std::vector<DelayRule> parse_delay_spec(const std::string& spec) {
  std::vector<DelayRule> rules;
  for (const std::string& text : split(spec, ',')) rules.push_back(parse_delay(text));
  return rules;
}

Communicator& DelayCommunicator::delayed() {
  const auto word = philox4x32({operations_++, static_cast<uint32_t>(world_rank_), 0, 0},
                               {static_cast<uint32_t>(rule_.seed), static_cast<uint32_t>(rule_.seed >> 32)})[0];
  const double seconds = rule_.least_s + (rule_.most_s - rule_.least_s) * uniform_from(word);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return *inner_;
}

}  // namespace triax::comm
