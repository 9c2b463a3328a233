// Pictures of a timeline: one row per rank, in the terminal or as SVG.
#pragma once

#include <string>

#include "io/trace/timeline.h"

namespace triax::io {

enum class Colour { No, Yes };

struct TextGanttOptions {
  int width = 100;  ///< columns of the time axis
  Colour colour = Colour::No;
};

/// One row per rank, columns of end / width each: F, I, W, B, R for the op that fills most of the column, '.' where the
/// rank does not compute. Where blocks are wide enough the micro-batch stands behind the letter ("F3--").
std::string text_gantt(const Timeline& timeline, const TextGanttOptions& options);

struct SvgGanttOptions {
  std::string title;
  double unit_ps = 1e12;  ///< picoseconds of a tick label's unit
  std::string unit_name = "s";
};

/// A complete SVG file: a row per rank, F blue, B and I green, W orange, R hatched, sums grey, idle white, micro-batch
/// numbers where they fit, a time axis and a legend.
std::string svg_gantt(const Timeline& timeline, const SvgGanttOptions& options);

}  // namespace triax::io
