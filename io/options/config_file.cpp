// Files of options: "key = value" lines, '#' comments, lists split on blanks.
#include <fmt/format.h>

#include <fstream>

#include "io/options/given.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// A '#' starts a comment at the start of a line or after a blank; "path#1" is a value.
std::string without_comment(const std::string& line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
  }
  return line;
}

/// A line may be a megabyte, of a file that is no configuration.
std::string beginning(const std::string& text) {
  constexpr size_t kShown = 100;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

void read_line(const std::string& line, const std::string& where, Origin origin, const NameIndex& index,
               std::vector<Given>& given, std::vector<std::string>& faults) {
  const size_t equals = line.find('=');
  if (equals == std::string::npos) {
    faults.push_back(fmt::format("{}: '{}' is not of the form key = value", where, beginning(line)));
    return;
  }
  const std::string key = trim(line.substr(0, equals));
  const NameIndex::Match match = index.find(key);
  if (match.entry == nullptr) {
    faults.push_back(fmt::format("{}: {}", where, index.unknown(beginning(key))));
    return;
  }
  const std::string& name = match.entry->name;
  if (name == "config" || name == "help" || name == "list-models" || name == "list-hw") {
    faults.push_back(fmt::format("{}: {} belongs on the command line", where, key));
    return;
  }
  const std::string text = trim(line.substr(equals + 1));
  if (text.empty()) {
    faults.push_back(fmt::format("{}: {} needs a value", where, key));
    return;
  }
  const std::vector<std::string> values =
      match.entry->kind == ValueKind::List ? split_blanks(text) : std::vector<std::string>{text};
  Given one{match.entry, key, values, origin, where};
  if (match.entry->kind == ValueKind::Switch) {
    const std::optional<bool> value = parse_bool(values[0]);
    if (!value) {
      faults.push_back(fmt::format("{}: {} = {}: must be true or false", where, key, values[0]));
      return;
    }
    one.values = {*value == (match.sense == NameIndex::Sense::Same) ? "true" : "false"};
  }
  given.push_back(std::move(one));
}

}  // namespace

void read_config_file(const std::string& path, Origin origin, const NameIndex& index, std::vector<Given>& given,
                      std::vector<std::string>& faults) {
  std::ifstream file(path);
  const auto cannot_be_read = [&](const char* why) {
    faults.push_back(fmt::format("{}: {}; give the path of a file of key = value lines", path, why));
  };
  if (!file) return cannot_be_read("cannot be read");
  int number = 0;
  std::vector<char> buffer(size_t{1} << 20);  // a longer line is none, and may have no end
  while (file.getline(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
    ++number;
    std::string line(buffer.data(), static_cast<size_t>(file.gcount()) - (file.eof() ? 0 : 1));
    if (line.find('\0') != std::string::npos) return cannot_be_read("is no text");
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // the byte order mark of some editors
    const std::string text = trim(without_comment(line));
    if (!text.empty()) read_line(text, fmt::format("{}:{}", path, number), origin, index, given, faults);
  }
  if (file.bad()) return cannot_be_read("cannot be read");
  if (!file.eof()) cannot_be_read("is no text");
}

}  // namespace triax::io
