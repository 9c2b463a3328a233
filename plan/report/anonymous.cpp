// What would tell who ran something where is taken out of a run's data, before any page is made of it.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>

#include "io/options/options.h"
#include "plan/report/run_data.h"

namespace triax::plan {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.'; }

/// Whole words only: a host named "vm" leaves "vmfault" alone.
std::string replaced(const std::string& text, const std::string& word, const std::string& by) {
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) {
    const bool starts = at == 0 || !is_word(text[at - 1]);
    const size_t end = at + word.size();
    if (!starts || (end < text.size() && is_word(text[end]) && text[end] != '.')) continue;
    out += text.substr(from, at - from) + by;
    from = end;
  }
  return out + text.substr(from);
}

/// Words with a slash become "(path)".
std::string without_paths(const std::string& text) {
  constexpr const char* kEnds = " \t\n'\"=,;()<>";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find_first_of(kEnds, i), text.size());
    const std::string word = text.substr(i, end - i);
    // A unit (GB/s, tokens/s) is no path.
    const bool path = word.find('/') != std::string::npos && !word.ends_with("/s");
    out += path ? "(path)" : word;
    if (end < text.size()) out += text[end];
    i = end + 1;
  }
  return out;
}

std::set<std::string> users() {
  std::set<std::string> names;
  for (const char* variable : {"USER", "LOGNAME", "SUDO_USER"}) {
    if (const char* value = std::getenv(variable); value != nullptr) names.insert(value);
  }
  if (const passwd* entry = ::getpwuid(::getuid()); entry != nullptr) names.insert(entry->pw_name);
  names.erase("");
  return names;
}

class Cleaner {
 public:
  explicit Cleaner(const std::vector<std::string>& hosts) : users_(users()) {
    for (const std::string& host : hosts) {
      if (!names_.contains(host)) names_.emplace(host, fmt::format("host {}", names_.size() + 1));
    }
    // The short name of a long one.
    for (const auto& [host, alias] : std::map(names_)) names_.emplace(host.substr(0, host.find('.')), alias);
  }
  std::string host(const std::string& name) const { return names_.at(name); }
  std::string text(const std::string& text) const {
    std::string clean = without_paths(text);
    // Longest first, so that a host's short name does not cut its long one.
    std::vector<std::pair<std::string, std::string>> words(names_.begin(), names_.end());
    std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    for (const auto& [word, alias] : words) clean = replaced(clean, word, alias);
    for (const std::string& user : users_) clean = replaced(clean, user, "(user)");
    return clean;
  }

 private:
  std::map<std::string, std::string> names_;
  std::set<std::string> users_;
};

bool takes_a_path(const std::string& option) {
  for (const io::OptionEntry& entry : io::option_table()) {
    if (entry.name != option) continue;
    const std::string& value = entry.value_name;
    return value.find("FILE") != std::string::npos || value.find("DIR") != std::string::npos ||
           value.find("PREFIX") != std::string::npos || value.find("PATH") != std::string::npos;
  }
  return option == "load" || option == "save";
}

}  // namespace

void make_anonymous(RunData& run, int number) {
  const Cleaner cleaner(run.hosts);
  run.name = fmt::format("run {}", number);
  for (std::string& host : run.hosts) host = cleaner.host(host);
  // The options say it all; words of a command line may be anything.
  run.command_line = {"triax", "train"};
  for (auto& [name, option] : run.options) {
    if (option.value.empty()) continue;
    option.value = takes_a_path(name) ? "(path)" : cleaner.text(option.value);
    if (option.origin == "command line" && option.value != "(path)") {
      run.command_line.insert(run.command_line.end(), {"--" + name, option.value});
    }
  }
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : run.environment) {
    const bool tells = name.starts_with("SLURM_") || name.find("HOST") != std::string::npos;
    if (!tells && cleaner.text(value) == value) environment[name] = value;
  }
  run.environment = environment;
  for (auto& [name, value] : run.libraries) value = cleaner.text(value);
  for (RunEvent& event : run.events) event.text = cleaner.text(event.text);
  run.slurm_job_id.clear();
  run.directory.clear();
  run.model = cleaner.text(run.model);
}

}  // namespace triax::plan
