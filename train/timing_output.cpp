#include "train/timing_output.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/report/run_directory.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/gantt.h"

namespace triax::train {

std::string output_timing(Trainer& trainer, const std::string& directory, WritesTiming writes) {
  const OpTimes times = trainer.op_times();
  if (writes == WritesTiming::No) return "";
  const bool is_virtual = trainer.virtual_unit_ps() > 0;
  const std::string source = is_virtual ? "virtual" : "measured";
  const int64_t iteration = trainer.progress().iteration;
  const io::Timeline timeline = io::make_timeline(trainer.program(), times, source);
  const std::string folder = directory + "/trace";
  std::filesystem::create_directories(folder);
  const std::string path = fmt::format("{}/{}-{}", folder, source, iteration);
  io::write_text_file(path + ".json", io::chrome_trace(timeline));
  io::SvgGanttOptions svg;
  svg.title = fmt::format("{} step {}", trainer.program().schedule, iteration);
  svg.unit_ps = is_virtual ? static_cast<double>(trainer.virtual_unit_ps()) : 1e9;
  svg.unit_name = is_virtual ? trainer.virtual_unit_name() : "ms";
  io::write_text_file(path + ".svg", io::svg_gantt(timeline, svg));
  const std::string files = fmt::format("trace {}.json, picture {}.svg", path, path);
  if (trainer.program().pipeline == 1) return files;  // no pipeline, no bubble
  const comm::ClockAlignment& clocks = trainer.clocks();
  const std::string compared = is_virtual ? ""
                               : clocks.clocks == 1
                                   ? "clocks: one host, one clock\n"
                                   : fmt::format("clocks: {} hosts, compared by messages to within {:.1f} us\n",
                                                 clocks.clocks, 1e6 * clocks.error_s);
  return timing_report(trainer.program(), trainer.schedule_options(), times,
                       fmt::format("{} step {}", source, iteration), svg.unit_ps, svg.unit_name) +
         compared + io::text_gantt(timeline, {100, io::Colour::No}) + files;
}

}  // namespace triax::train
