// What all gnuplot scripts share: quoting, palette, head, the two outputs, and running the program.
#pragma once

#include <string>
#include <vector>

#include "io/plot/figure.h"

namespace triax::io {

/// In single quotes, as gnuplot reads it.
std::string gnuplot_text(const std::string& text);
/// Colours that people with any colour vision tell apart (Okabe and Ito 2008), dark enough for lines on white.
const char* palette_colour(int index);
int point_type(int index);

std::string gnuplot_head(const std::string& name, const std::string& title, const std::vector<std::string>& notes);
/// SVG, then PDF, each with `plot`.
std::string gnuplot_outputs(const std::string& name, const std::string& plot);

/// Writes NAME.csv and NAME.gp and runs gnuplot on the latter.
FigureFiles write_plot(const std::string& directory, const std::string& name, const std::string& csv,
                       const std::string& gp, const std::vector<std::string>& head);

}  // namespace triax::io
