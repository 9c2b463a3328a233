// Subsets of a matrix of settings that cover every pair (or triple) of values, for tests that cannot run all of it.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

namespace triax::test {

/// (setting, value) of `order` settings, one after the other.
using Combination = std::vector<int>;

/// All of a case; `settings`: a value per setting as small numbers.
inline std::vector<Combination> combinations_of(const std::vector<int>& settings, int order) {
  std::vector<Combination> all{{}};
  for (int k = 0; k < order; ++k) {
    std::vector<Combination> longer;
    for (const Combination& c : all) {
      const int from = c.empty() ? 0 : c[c.size() - 2] + 1;
      for (int s = from; s < static_cast<int>(settings.size()); ++s) {
        longer.push_back(c);
        longer.back().push_back(s);
        longer.back().push_back(settings[static_cast<size_t>(s)]);
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Greedy: always the case with the most combinations that are not yet covered. `settings_of` maps a case to its
/// values.
template <class Case, class Settings>
std::vector<Case> covering_subset(const std::vector<Case>& cases, int order, Settings settings_of) {
  std::map<Combination, size_t> numbers;
  std::vector<std::vector<size_t>> covers;
  for (const Case& c : cases) {
    covers.emplace_back();
    for (const Combination& one : combinations_of(settings_of(c), order)) {
      covers.back().push_back(numbers.emplace(one, numbers.size()).first->second);
    }
  }
  std::vector<char> missing(numbers.size(), 1);
  std::vector<Case> chosen;
  for (size_t left = missing.size(); left > 0;) {
    size_t best = 0;
    std::ptrdiff_t most = -1;
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto gain = std::count_if(covers[i].begin(), covers[i].end(), [&](size_t n) { return missing[n] != 0; });
      if (gain <= most) continue;
      most = gain;
      best = i;
    }
    for (const size_t n : covers[best]) missing[n] = 0;
    left -= static_cast<size_t>(most);
    chosen.push_back(cases[best]);
  }
  return chosen;
}

}  // namespace triax::test
