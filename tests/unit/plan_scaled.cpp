// Published experiments made small: every preset has runs that the trainer takes, each of which stands for rows of the
// paper, or a reason; orders are compared pair by pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "plan/papers/results.h"
#include "plan/scaled/scaled.h"
#include "plan/scaled/trend.h"

using namespace triax;
using namespace triax::plan;
using testing::ElementsAre;

namespace {

TEST(Trend, pairs_that_differ_in_one_coordinate_are_compared) {
  const double none = std::nan("");
  const std::vector<TrendPoint> points = {{"a", "1", 100, 5}, {"a", "2", 90, 4},   {"b", "1", 50, 5.1},
                                          {"b", "2", 89, 9},  {"b", "3", none, 1}, {"c", "1", 10, none}};
  const Trend trend = compare_orders(points);
  // a1 > a2 the same; a1 > b1 alike; a2 and b2 alike in the paper; b1 < b2 the same. a1 and b2 differ in both.
  EXPECT_EQ(trend.pairs, 3);
  EXPECT_EQ(trend.same, 2);
  EXPECT_EQ(trend.alike, 1);
  EXPECT_EQ(trend.reversed, 0);
  const Trend other = compare_orders(std::vector<TrendPoint>{{"a", "1", 2, 1}, {"", "1", 1, 2}});
  EXPECT_EQ(other.reversed, 1);
  EXPECT_THAT(other.reversed_pairs, ElementsAre("a 1 > 1"));
  EXPECT_EQ(compare_orders(points, 0.001).reversed, 2);  // then 5.1 is above 5, and 90 above 89
}

std::set<std::string> ids_of(const std::string& preset) {
  std::vector<std::string> absent;
  std::set<std::string> ids;
  for (const PaperPreset& one : paper_presets({preset}, "", absent)) {
    for (const PaperLine& line : one.lines) ids.insert(line.id);
  }
  return ids;
}

TEST(Scaled, every_preset_runs_small_or_says_why_not) {
  int real = 0;
  for (const std::string& name : paper_preset_names()) {
    for (const int cores : {2, 4}) {
      const ScaledExperiment e = scaled_experiment(name, cores);
      EXPECT_NE(e.none.empty(), e.points.empty()) << name;
      EXPECT_NE(e.none, "no small experiment is written for it") << name;
      if (!e.none.empty()) continue;
      real += cores == 2 ? 1 : 0;
      const std::set<std::string> ids = ids_of(name);
      std::set<std::string> settings;
      for (const ScaledPoint& point : e.points) {
        const Point made = make_point(point.request);
        EXPECT_EQ(made.refusal, "") << name << " " << text_of(point.request.settings);
        EXPECT_TRUE(settings.insert(text_of(point.request.settings)).second) << name << ": two points are one run";
        // Bytes, and times on the virtual clock, hold with fewer cores than ranks.
        if (e.unit.find("FLOP") != std::string::npos) {
          EXPECT_LE(made.ranks, cores) << name;
        }
        for (const std::string& row : point.rows) {
          // These rows are in a file alone; of ZeRO's Table 1 those of 16 replicas are.
          if (name == "korthikanti22-table4" || row.ends_with("of 16")) continue;
          EXPECT_TRUE(ids.contains(row)) << name << " has no row " << row;
        }
      }
    }
  }
  EXPECT_EQ(real, 18);
}

}  // namespace
