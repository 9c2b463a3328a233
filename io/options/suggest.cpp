// Nearest known name of a mistyped one.
#include <algorithm>
#include <numeric>

#include "io/options/options.h"

namespace triax::io {
namespace {

// Levenshtein distance.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  std::string wanted = name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  std::string best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& candidate : known) {
    size_t distance = edit_distance(wanted, candidate);
    // A word cut short ("--hidden") means its continuation rather than another word of equal length.
    if (wanted.size() >= 4 && candidate.starts_with(wanted)) distance = 1;
    const bool shorter = !best.empty() && distance == best_distance && candidate.size() < best.size();
    if (distance < best_distance || shorter) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace triax::io
