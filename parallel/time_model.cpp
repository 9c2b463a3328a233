#include "parallel/time_model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"

namespace triax::parallel {
namespace {

constexpr size_t kQuantiles = 4096;

// z with P(Z <= z) = probability, by Newton's method on the complementary error function.
double normal_quantile(double probability, double start) {
  double z = start;
  for (int i = 0; i < 40; ++i) {
    const double error = 0.5 * std::erfc(-z / std::numbers::sqrt2) - probability;
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    const double step = error / density;
    z -= step;
    if (std::abs(step) < 1e-14) break;
  }
  return z;
}

std::vector<double> log_normal_factors(double sigma) {
  std::vector<double> z(kQuantiles);
  double guess = 0;
  for (size_t i = kQuantiles / 2; i < kQuantiles; ++i) {  // upwards from the middle, so that Newton starts near
    guess = normal_quantile((static_cast<double>(i) + 0.5) / kQuantiles, guess);
    z[i] = guess;
    z[kQuantiles - 1 - i] = -guess;
  }
  double sum = 0;
  for (double& value : z) sum += value = std::exp(sigma * value - 0.5 * sigma * sigma);
  for (double& value : z) value *= kQuantiles / sum;  // mean exactly 1 in spite of the cut tails
  return z;
}

}  // namespace

TimeModel::TimeModel(const Program& program, const CostTable& table, int replicas, const TimeOptions& options)
    : program_(&program), table_(&table), seed_(options.jitter.seed) {
  if (options.jitter.sigma < 0 || options.jitter.sigma > 2) {
    throw ConfigError(fmt::format("--jitter {} must be from 0 to 2 (standard deviation of the logarithm of a time)",
                                  options.jitter.sigma));
  }
  if (options.jitter.sigma > 0) quantile_factors_ = log_normal_factors(options.jitter.sigma);
  if (options.stragglers.empty()) return;
  lane_factors_.assign(static_cast<size_t>(replicas) * static_cast<size_t>(program.pipeline), 1.0);
  for (const Straggler& s : options.stragglers) {
    if (s.lane.replica < 0 || s.lane.replica >= replicas || s.lane.position < 0 ||
        s.lane.position >= program.pipeline || s.factor <= 0) {
      throw ConfigError(
          fmt::format("--straggler {}:{}:{} must name a replica from 0 to {}, a pipeline position from 0 to {} and a "
                      "positive factor",
                      s.lane.replica, s.lane.position, s.factor, replicas - 1, program.pipeline - 1));
    }
    lane_factors_[static_cast<size_t>(s.lane.replica * program.pipeline + s.lane.position)] *= s.factor;
  }
}

int64_t TimeModel::duration_ps(Lane lane, const Op& op, int index) const {
  const int64_t cost = cost_of(*table_, cost_key(*program_, lane.position, op));
  if (!is_compute(op.kind) || cost == 0) return cost;
  double factor = 1;
  const auto number = static_cast<uint32_t>(lane.replica * program_->pipeline + lane.position);
  if (!lane_factors_.empty()) factor *= lane_factors_[number];
  if (!quantile_factors_.empty()) {
    const PhiloxCounter words = philox4x32({static_cast<uint32_t>(index), number, 0, 0},
                                           {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    factor *= quantile_factors_[words[0] % kQuantiles];
  }
  return factor == 1 ? cost : std::llround(static_cast<double>(cost) * factor);
}

int64_t TimeModel::flight_ps(int position, const Op& send) const {
  return cost_of(*table_, cost_key(*program_, position, send));
}

}  // namespace triax::parallel
