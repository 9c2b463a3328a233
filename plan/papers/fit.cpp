#include "plan/papers/fit.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace triax::plan {
namespace {

struct Problem {
  std::vector<const PaperRun*> rows;
  std::vector<double> weights, knees;
  std::vector<size_t> free;  // constants
  std::vector<double> start;
};

/// Logarithmic error that counts as one: a table's tolerance.
double scale_of(const std::string& preset) {
  static const std::map<std::string, double> kScale{
      {"vtrain-single", 0.10},    {"vtrain-multi", 0.03},    {"vtrain-nccl", 0.05},    {"llmfoundry-fsdp", 0.05},
      {"megatron21-fig15", 0.10}, {"megatron21-fig7", 0.12}, {"megatron-core24", 0.05}};
  const auto found = kScale.find(preset);
  return found == kScale.end() ? 0.03 : found->second;
}

/// Half of r^2 up to `knee`, then towards knee^2: a run that took twice as long as its neighbours for reasons of its
/// own moves nothing.
double loss_of(double r, double knee) {
  const double a = std::abs(r);
  return a <= knee ? a * a / 2 : knee * knee * (1 - knee * knee / (2 * a * a));
}

/// Its derivative over r: what the row counts in least squares.
double weight_of_error(double r, double knee) {
  const double a = std::abs(r);
  return a <= knee ? 1 : std::pow(knee / a, 4);
}

/// Rows of a table count together like so many of them, so that a table of hundreds does not drown one of five.
constexpr double kRows = 12;

class Fitter {
 public:
  Fitter(const std::vector<PaperRun>& runs, std::vector<PaperConstant>& constants, const FitOptions& options)
      : constants_(constants), options_(options) {
    std::map<std::string, double> counts;
    for (const PaperRun& run : runs) {
      if (run.fitted && run.published > 0) ++counts[run.preset];
    }
    for (const PaperRun& run : runs) {
      if (!run.fitted || run.published <= 0) continue;
      p_.rows.push_back(&run);
      const double scale = scale_of(run.preset);
      p_.weights.push_back(std::min(1.0, std::sqrt(kRows / counts[run.preset])) / scale);
      p_.knees.push_back(options_.knee * scale);
    }
    for (size_t i = 0; i < constants.size(); ++i) {
      const bool used =
          std::any_of(p_.rows.begin(), p_.rows.end(), [&](const PaperRun* run) { return applies(constants[i], *run); });
      if (constants[i].origin != bench::Origin::Fitted || !used) continue;
      p_.free.push_back(i);
      p_.start.push_back(std::log(constants[i].value));
    }
  }

  double run() {
    std::vector<double> x = p_.start;
    std::vector<double> errors = residuals(x);
    double loss = total(x, errors);
    double damping = 1e-2;
    for (int iteration = 0; iteration < options_.iterations && damping < 1e8; ++iteration) {
      const std::vector<double> step_of = solve_step(x, errors, damping);
      std::vector<double> next = x;
      for (size_t j = 0; j < x.size(); ++j) next[j] = bounded(j, x[j] + std::clamp(step_of[j], -0.7, 0.7));
      std::vector<double> next_errors = residuals(next);
      const double next_loss = total(next, next_errors);
      if (next_loss < loss) {
        const bool small = loss - next_loss < 1e-7 * loss;
        x = next;
        errors = std::move(next_errors);
        loss = next_loss;
        damping = std::max(1e-6, damping / 4);
        if (small) break;
      } else {
        damping *= 5;
      }
    }
    set(x);
    return loss;
  }

 private:
  double bounded(size_t j, double x) const {
    const PaperConstant& c = constants_[p_.free[j]];
    return std::clamp(x, std::log(c.low), std::log(c.high));
  }
  void set(const std::vector<double>& x) {
    for (size_t j = 0; j < x.size(); ++j) constants_[p_.free[j]].value = std::exp(x[j]);
  }
  std::vector<double> residuals(const std::vector<double>& x) {
    set(x);
    std::vector<double> errors;
    for (const PaperRun* row : p_.rows) errors.push_back(log_error(*row, constants_));
    return errors;
  }
  double total(const std::vector<double>& x, const std::vector<double>& errors) const {
    double sum = 0;
    for (size_t i = 0; i < errors.size(); ++i) {
      sum += p_.weights[i] * p_.weights[i] * loss_of(errors[i], p_.knees[i]);
    }
    for (size_t j = 0; j < x.size(); ++j) sum += std::pow((x[j] - p_.start[j]) / options_.prior, 2) / 2;
    return sum;
  }

  std::vector<double> solve_step(const std::vector<double>& x, const std::vector<double>& errors, double damping) {
    const size_t n = x.size();
    std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
    std::vector<std::vector<double>> jacobian(n);
    for (size_t j = 0; j < n; ++j) {
      std::vector<double> moved = x;
      moved[j] += 1e-4;
      set(moved);
      for (size_t i = 0; i < errors.size(); ++i) {
        const bool used = applies(constants_[p_.free[j]], *p_.rows[i]);
        jacobian[j].push_back(used ? (log_error(*p_.rows[i], constants_) - errors[i]) / 1e-4 : 0);
      }
    }
    set(x);
    for (size_t i = 0; i < errors.size(); ++i) {
      const double w = p_.weights[i] * p_.weights[i] * weight_of_error(errors[i], p_.knees[i]);
      for (size_t j = 0; j < n; ++j) {
        if (jacobian[j][i] == 0) continue;
        for (size_t k = 0; k < n; ++k) a[j][k] += w * jacobian[j][i] * jacobian[k][i];
        a[j][n] -= w * jacobian[j][i] * errors[i];
      }
    }
    for (size_t j = 0; j < n; ++j) {
      const double pull = 1 / (options_.prior * options_.prior);
      a[j][j] += pull;
      a[j][n] -= pull * (x[j] - p_.start[j]);
      a[j][j] *= 1 + damping;
    }
    return solve(a);
  }

  // Gauss with pivots; a is positive definite.
  static std::vector<double> solve(std::vector<std::vector<double>>& a) {
    const size_t n = a.size();
    for (size_t i = 0; i < n; ++i) {
      for (size_t r = i + 1; r < n; ++r) {
        const double factor = a[r][i] / a[i][i];
        for (size_t c = i; c <= n; ++c) a[r][c] -= factor * a[i][c];
      }
    }
    std::vector<double> x(n, 0);
    for (size_t i = n; i-- > 0;) {
      double sum = a[i][n];
      for (size_t c = i + 1; c < n; ++c) sum -= a[i][c] * x[c];
      x[i] = sum / a[i][i];
    }
    return x;
  }

  std::vector<PaperConstant>& constants_;
  FitOptions options_;
  Problem p_;
};

}  // namespace

double log_error(const PaperRun& run, const std::vector<PaperConstant>& constants) {
  const double ratio = predict(run, constants).figure / run.published;
  const bool time = run.metric == Metric::Seconds || run.metric == Metric::AllReduce ||
                    run.metric == Metric::ForwardMs || run.metric == Metric::BackwardMs;
  return time ? std::log(ratio) : -std::log(ratio);
}

double fit(const std::vector<PaperRun>& runs, std::vector<PaperConstant>& constants, const FitOptions& options) {
  return Fitter(runs, constants, options).run();
}

}  // namespace triax::plan
