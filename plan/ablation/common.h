// What the experiments share: the small model that they run by default, and words for numbers.
#pragma once

#include <string>
#include <vector>

#include "plan/ablation/ablation.h"

namespace triax::plan {

struct Dimensions {
  int layers, hidden, heads, seq, vocab;
};
/// Options of a model of these dimensions.
std::vector<std::string> dimension_words(const Dimensions& dimensions);
/// Options of a short quiet run: made-up tokens, no dropout, one thread per rank, no evaluation, no event files.
std::vector<std::string> short_run(int steps);

/// A Llama of 4 layers, hidden 256, 8 heads, s 128, vocabulary 1024, 3.5M parameters, fp32, made-up tokens, one thread
/// per rank, 8 steps: a step of 8 samples takes a third of a second on one core.
std::vector<std::string> small_model();

PointRequest real_point(std::vector<Setting> settings, std::vector<std::string> more = {});

/// "+3.2 %": a against b.
std::string against(double a, double b);
/// "12.3 ms", "-" for NaN.
std::string ms_text(double ms);
/// "1.23 MB".
std::string mb_text(double bytes);
/// Cores that the points share; said where more ranks run than there are.
int cores();
std::string cores_note(int most_ranks);

/// Appends a point where y is finite.
void add_point(io::Series& series, double x, const AblationRow* row, const std::string& metric, double factor = 1);

}  // namespace triax::plan
