// The frame of every report: one HTML file with its style sheet, no scripts, nothing from elsewhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/plot/chart_svg.h"
#include "io/xml_text.h"

namespace triax::plan {

/// The whole file around `body`.
std::string html_page(const std::string& title, const std::string& body);

/// <figure> with the chart, its title and, for several series, a legend. Empty where the chart is.
std::string chart_figure(const io::Chart& chart);

/// A table that scrolls sideways where the window is narrow. Cells are HTML; the first row is the head. Columns from
/// `numbers_from` on are set to the right.
std::string html_table(const std::vector<std::vector<std::string>>& rows, size_t numbers_from);

/// <section> with a heading; empty where `body` is.
std::string section(const std::string& heading, const std::string& body);

struct Tile {
  std::string value, label, hint;  ///< text, not HTML
};
std::string tiles(const std::vector<Tile>& tiles);

}  // namespace triax::plan
