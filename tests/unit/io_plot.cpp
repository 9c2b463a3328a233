// Figures: the numbers in the CSV, what the gnuplot script says, and the files that are left with and without gnuplot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "io/plot/figure.h"
#include "tests/unit/temporary_directory.h"

using namespace triax;
using namespace triax::io;
using testing::HasSubstr;
using testing::Not;

namespace {

Figure example() {
  Figure figure{.name = "f", .title = "It's a title", .x_label = "m", .y_label = "bubble"};
  const double none = std::numeric_limits<double>::quiet_NaN();
  figure.series.push_back({.label = "1f1b, p 4",
                           .look = SeriesLook::Points,
                           .x = {4, 8, 16},
                           .y = {0.1, none, 0.3},
                           .half_width = {0.01, 0, none}});
  figure.series.push_back(
      {.label = "formula", .look = SeriesLook::Formula, .x = {4, 16}, .y = {0.1, 0.3}, .colour = 0});
  figure.notes = {"a note"};
  return figure;
}

TEST(Figure, csv_has_a_row_per_point_and_no_commas_in_labels) {
  EXPECT_EQ(figure_csv(example()),
            "series,x,y,ci95\n1f1b; p 4,4,0.1,0.01\n1f1b; p 4,16,0.3,\nformula,4,0.1,\nformula,16,0.3,\n");
}

TEST(Figure, script_quotes_and_pairs_colours) {
  const std::string gp = figure_gp(example());
  EXPECT_THAT(gp, HasSubstr("set title 'It''s a title'"));
  EXPECT_THAT(gp, HasSubstr("strcol(1) eq '1f1b; p 4'"));
  EXPECT_THAT(gp, HasSubstr("title '1f1b, p 4'"));
  EXPECT_THAT(gp, HasSubstr("with lines lc rgb '#0072b2' lw 2 dt (8,6)"));
  EXPECT_THAT(gp, HasSubstr("set label 1 'a note'"));
}

TEST(Figure, four_files_with_gnuplot_two_without) {
  const test::TemporaryDirectory directory;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", directory.path().c_str(), 1);
  const FigureFiles without = write_figure(directory.path(), example(), {"head"});
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(without.missing, "gnuplot is not installed");
  EXPECT_EQ(without.paths.size(), 2u);
  if (std::system("gnuplot --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "gnuplot is not installed";
  HeatMap map{.name = "h", .title = "t", .x_label = "x", .y_label = "y", .value_label = "v"};
  map.columns = {"1", "2"};
  map.rows = {"1", "2"};
  map.values = {{1000, 2000}, {3000, std::numeric_limits<double>::quiet_NaN()}};
  for (const FigureFiles& files :
       {write_figure(directory.path(), example(), {"head"}), write_figure(directory.path(), map, {})}) {
    EXPECT_EQ(files.missing, "");
    ASSERT_EQ(files.paths.size(), 4u);
    for (const std::string& file : files.paths) EXPECT_GT(std::filesystem::file_size(file), 60u) << file;
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/f.gp.log")) << "gnuplot warns";
}

}  // namespace
