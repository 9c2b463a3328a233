// The axes of a sweep and their product.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace triax::plan {

/// One option, or several that change together (zipped): values[i] has a value for each name.
/// The value "-" leaves the option out.
struct SweepAxis {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> values;
};

/// "num-microbatches=4,8". A ';' in the text separates values instead of ',': "cost=F=1,B=2;F=1,B=3". Throws
/// ConfigError.
SweepAxis parse_axis(const std::string& text);
/// "tensor-model-parallel-size:pipeline-model-parallel-size=1:4,2:2,4:1". Throws ConfigError.
SweepAxis parse_zipped_axis(const std::string& text);

using Setting = std::pair<std::string, std::string>;  ///< option without dashes, value
/// Every combination; the last axis runs fastest. No axes: one empty combination. Throws ConfigError where one option
/// is on two axes.
std::vector<std::vector<Setting>> combinations(const std::vector<SweepAxis>& axes);

}  // namespace triax::plan
