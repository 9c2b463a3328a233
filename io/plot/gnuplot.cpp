#include "io/plot/gnuplot.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "io/report/run_directory.h"

namespace triax::io {
namespace {

constexpr std::array kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#e69f00", "#56b4e9", "#5a5a5a", "#7a5195"};
constexpr std::array kPoints = {7, 5, 9, 13, 11, 15, 6, 4};

/// Exit code of `gnuplot NAME.gp` in the directory; 127 where there is no gnuplot. Its messages go to NAME.gp.log.
int run_gnuplot(const std::string& directory, const std::string& script) {
  const std::string log = script + ".log";
  const pid_t child = ::fork();
  if (child < 0) return 126;
  if (child == 0) {
    if (::chdir(directory.c_str()) != 0 || std::freopen(log.c_str(), "w", stderr) == nullptr) ::_exit(126);
    ::execlp("gnuplot", "gnuplot", script.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 126;
  const std::filesystem::path path = std::filesystem::path(directory) / log;
  std::error_code error;
  if (std::filesystem::file_size(path, error) == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    std::filesystem::remove(path, error);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

}  // namespace

std::string gnuplot_text(const std::string& text) {
  std::string out(1, '\'');
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  out += '\'';
  return out;
}

const char* palette_colour(int index) { return kPalette[static_cast<size_t>(index) % kPalette.size()]; }
int point_type(int index) { return kPoints[static_cast<size_t>(index) % kPoints.size()]; }

namespace {

constexpr size_t kNoteColumns = 148;  // of the figure's width, at the notes' size

/// Lines of at most kNoteColumns, broken at blanks.
std::vector<std::string> wrapped(const std::vector<std::string>& notes) {
  std::vector<std::string> lines;
  for (const std::string& note : notes) {
    size_t begin = 0;
    while (note.size() - begin > kNoteColumns) {
      const size_t blank = note.rfind(' ', begin + kNoteColumns);
      if (blank == std::string::npos || blank <= begin) break;
      lines.push_back(note.substr(begin, blank - begin));
      begin = blank + 1;
    }
    lines.push_back(note.substr(begin));
  }
  return lines;
}

}  // namespace

std::string gnuplot_head(const std::string& name, const std::string& title, const std::vector<std::string>& all_notes) {
  const std::vector<std::string> notes = wrapped(all_notes);
  std::string text = fmt::format("# gnuplot {0}.gp reads {0}.csv and writes {0}.svg and {0}.pdf\n", name);
  text += "set encoding utf8\nset border 3 lc rgb '#666666'\nset tics nomirror out tc rgb '#333333'\n";
  text += fmt::format("set title {} font ',18' tc rgb '#111111' noenhanced\nset bmargin {}\n", gnuplot_text(title),
                      4 + 1.25 * static_cast<double>(notes.size()));
  for (size_t i = 0; i < notes.size(); ++i) {
    text += fmt::format("set label {} {} at screen 0.02, character {:.2f} font ',12' tc rgb '#444444' noenhanced\n",
                        i + 1, gnuplot_text(notes[i]), 0.8 + 1.25 * static_cast<double>(notes.size() - 1 - i));
  }
  return text;
}

std::string gnuplot_outputs(const std::string& name, const std::string& plot) {
  return fmt::format(
      "set terminal svg size 960,600 dynamic enhanced font 'Helvetica,14' background rgb '#ffffff'\n"
      "set output {}\n{}set output\n"
      "set terminal pdfcairo size 19.2cm,12cm enhanced font 'Helvetica,11'\nset output {}\nreplot\nset output\n",
      gnuplot_text(name + ".svg"), plot, gnuplot_text(name + ".pdf"));
}

FigureFiles write_plot(const std::string& directory, const std::string& name, const std::string& csv,
                       const std::string& gp, const std::vector<std::string>& head) {
  const std::string base = directory + "/" + name;
  std::string comments;
  for (const std::string& line : head) comments += fmt::format("# {}\n", line);
  write_text_file(base + ".csv", comments + csv);
  write_text_file(base + ".gp", gp);
  FigureFiles files{{base + ".csv", base + ".gp"}, {}};
  const int code = run_gnuplot(directory, name + ".gp");
  if (code == 0) {
    files.paths.insert(files.paths.end(), {base + ".svg", base + ".pdf"});
  } else {
    files.missing = code == 127 ? "gnuplot is not installed"
                                : fmt::format("gnuplot failed (exit code {}, see {}.gp.log)", code, base);
  }
  return files;
}

}  // namespace triax::io
