// Subsets of a matrix of settings that cover every pair (or triple) of values, for tests that cannot run all of it.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

namespace triax::test {

/// (setting, value) of `order` settings, one after the other.
using Combination = std::vector<int>;

/// `settings`: a value per setting as small numbers.
inline std::set<Combination> combinations_of(const std::vector<int>& settings, int order) {
  std::set<Combination> all{{}};
  for (int k = 0; k < order; ++k) {
    std::set<Combination> longer;
    for (const Combination& c : all) {
      const int from = c.empty() ? 0 : c[c.size() - 2] + 1;
      for (int s = from; s < static_cast<int>(settings.size()); ++s) {
        Combination next = c;
        next.push_back(s);
        next.push_back(settings[static_cast<size_t>(s)]);
        longer.insert(next);
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
  std::vector<std::vector<Combination>> covers;
  std::set<Combination> missing;
  for (const Case& c : cases) {
    const std::set<Combination> own = combinations_of(settings_of(c), order);
    covers.emplace_back(own.begin(), own.end());
    missing.insert(own.begin(), own.end());
  }
  std::vector<Case> chosen;
  while (!missing.empty()) {
    size_t best = 0;
    std::ptrdiff_t most = -1;
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto gain =
          std::count_if(covers[i].begin(), covers[i].end(), [&](const Combination& c) { return missing.contains(c); });
      if (gain <= most) continue;
      most = gain;
      best = i;
    }
    for (const Combination& c : covers[best]) missing.erase(c);
    chosen.push_back(cases[best]);
  }
  return chosen;
}

}  // namespace triax::test
