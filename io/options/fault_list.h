// Faults in one form: "--option value: rule; use legal value".
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/options/validate.h"

namespace triax::io {

class FaultList {
 public:
  template <class T>
  void add(const std::string& option, const T& value, const std::string& rule, const std::string& legal) {
    faults_.push_back(fmt::format("--{} {}: {}; use {}", option, value, rule, legal));
  }
  /// The option was not given.
  void missing(const std::string& option, const std::string& legal) {
    faults_.push_back(fmt::format("--{} is not given: {}", option, legal));
  }
  void text(std::string fault) { faults_.push_back(std::move(fault)); }
  std::vector<std::string> take() { return std::move(faults_); }
  bool empty() const { return faults_.empty(); }

 private:
  std::vector<std::string> faults_;
};

/// "4 or 8": the divisors of n next to value, below and above.
std::string nearest_divisors(int64_t n, int64_t value);
/// "16 or 24": the multiples of step (at least one step) next to value.
std::string nearest_multiples(int64_t step, int64_t value);

/// What each part checks is named by its file.
void check_model(const model::ModelConfig& model, FaultList& faults);
/// False when a product of dimensions is too large for the other checks. The same dp as below.
bool check_size(const RunOptions& options, int64_t dp, FaultList& faults);
/// dp is world / (tp cp pp), 0 when it does not divide.
void check_layout(const RunOptions& options, int world_size, int64_t dp, FaultList& faults);
/// How dp ranks share; part of check_layout.
void check_zero(const RunOptions& options, int64_t dp, FaultList& faults);
/// Gradient compression.
void check_compression(const RunOptions& options, int64_t dp, FaultList& faults);
void check_batch(const RunOptions& options, int64_t dp, FaultList& faults);
void check_optimizer(const RunOptions& options, int64_t dp, FaultList& faults);
void check_run(const RunOptions& options, FaultList& faults);
void check_device(const RunOptions& options, FaultList& faults);
void check_fp8(const RunOptions& options, FaultList& faults);

}  // namespace triax::io
