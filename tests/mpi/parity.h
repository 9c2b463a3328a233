// What a run in some layout is held against: the same training on one rank.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "io/weights/transfer.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/memory_forecast.h"

namespace triax::test {

inline constexpr double kTolerance = 1e-10;

struct Trajectory {
  std::vector<double> loss, norm;
};

/// What one rank trains: everything that changes the numbers, and nothing that must not.
struct Reference {
  TinyModel model = TinyModel::T0;
  Head head = Head::Tied;
  int64_t num_layers = 4;
  int64_t global_batch = 8;
  int steps = 20;
  std::string name() const {
    return fmt::format("{}-{}-L{}-b{}-s{}", static_cast<int>(model), static_cast<int>(head), num_layers, global_batch,
                       steps);
  }
  io::RunOptions options() const {
    io::RunOptions o = tiny_options({model, head, 1, 1, 1, 1});
    o.model.num_layers = num_layers;
    o.batch.global_batch_size = global_batch;
    return o;
  }
};

inline Trajectory trajectory_of(TinyRun& run, int steps) {
  Trajectory t;
  for (int i = 0; i < steps; ++i) {
    const train::StepResult result = run.step();
    t.loss.push_back(result.totals.loss);
    t.norm.push_back(result.grad_norm);
  }
  return t;
}

/// Serial references; rank 0 trains them, all ranks read its numbers and weights.
class References {
 public:
  References() {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("triax-parity-{}", ::getppid());
    if (session().rank() == 0) std::filesystem::create_directories(directory_);
  }
  ~References() {
    if (session().rank() == 0) std::filesystem::remove_all(directory_);
  }
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  /// On rank 0, once for each.
  void make(const Reference& key) {
    if (session().rank() != 0 || !made_.insert(key.name()).second) return;
    TinyRun run(key.options());
    const Trajectory t = trajectory_of(run, key.steps);
    std::ofstream file(path(key) + ".txt");
    for (size_t i = 0; i < t.loss.size(); ++i) file << fmt::format("{:a} {:a}\n", t.loss[i], t.norm[i]);
    io::WeightsHeader header;
    header.model = run.options().model;
    header.dtype = io::compute_dtype(run.options().control.precision);
    io::save_weights(path(key) + ".h5", header, run.trainer().store(), run.grid());
  }
  Trajectory read(const Reference& key) const {
    std::ifstream file(path(key) + ".txt");
    Trajectory t;
    std::string loss;
    std::string norm;
    while (file >> loss >> norm) {
      t.loss.push_back(std::strtod(loss.c_str(), nullptr));
      t.norm.push_back(std::strtod(norm.c_str(), nullptr));
    }
    return t;
  }
  std::string path(const Reference& key) const { return directory_ / key.name(); }

 private:
  std::filesystem::path directory_;
  std::set<std::string> made_;
};

inline double relative(double value, double reference) { return std::abs(value - reference) / std::abs(reference); }

/// Largest |w - w_ref| / max(1, largest |w_ref| of the tensor) over this rank's tensors.
inline std::pair<double, std::string> weight_error(TinyRun& run, const std::string& file) {
  run.trainer().gather_weights();
  const io::WeightsReader reader(file);
  std::pair<double, std::string> worst{0, ""};
  for (const parallel::Parameter& p : run.trainer().store().parameters()) {
    std::vector<double> expected(static_cast<size_t>(p.true_numel()));
    if (expected.empty()) continue;
    reader.read(p, Tensor(expected.data(), DType::Float64, {p.true_numel()}));
    const double* actual = p.weight.as<double>();
    double largest = 1;
    double error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(actual[i] - expected[i]));
    }
    if (!(error / largest <= worst.first)) worst = {error / largest, p.name};
  }
  return worst;
}

/// The memory executor's prediction of this rank is the arena's high-water mark, byte for byte and category by
/// category.
inline void expect_forecast_memory(TinyRun& run) {
  const train::MemoryForecast forecast = train::forecast_memory(run.options(), run.grid().world_rank());
  const MemoryLedger& measured = run.arena().ledger();
  EXPECT_EQ(forecast.ledger.peak_total, measured.peak_total) << "peak at " << forecast.peak_op_text;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    EXPECT_EQ(forecast.ledger.peak[i], measured.peak[i]) << name_of(static_cast<MemoryCategory>(i));
    EXPECT_EQ(forecast.ledger.live[i], measured.live[i]) << name_of(static_cast<MemoryCategory>(i));
  }
}

/// Largest differences seen.
struct Worst {
  double loss = 0, norm = 0, weight = 0;
  void say(size_t runs) const {
    if (session().rank() != 0) return;
    fmt::print("{} runs on {} ranks: largest difference of loss {:.2e}, norm {:.2e}, weight {:.2e}\n", runs,
               session().size(), loss, norm, weight);
  }
};

/// Trains with `options` on all ranks and compares losses, norms, weights and memory with the reference.
inline void expect_like_one_rank(const Reference& key, const io::RunOptions& options, const References& references,
                                 Worst& worst) {
  TinyRun run(session(), options);
  run.grid().world().barrier();  // the references are there
  const Trajectory expected = references.read(key);
  const Trajectory actual = trajectory_of(run, key.steps);
  ASSERT_EQ(expected.loss.size(), static_cast<size_t>(key.steps));
  for (size_t i = 0; i < expected.loss.size(); ++i) {
    EXPECT_LE(relative(actual.loss[i], expected.loss[i]), kTolerance) << "loss of step " << i + 1;
    EXPECT_LE(relative(actual.norm[i], expected.norm[i]), kTolerance) << "norm of step " << i + 1;
    worst.loss = std::max(worst.loss, relative(actual.loss[i], expected.loss[i]));
    worst.norm = std::max(worst.norm, relative(actual.norm[i], expected.norm[i]));
  }
  EXPECT_LT(actual.loss.back(), actual.loss.front());
  expect_forecast_memory(run);
  const auto [error, tensor] = weight_error(run, references.path(key) + ".h5");
  EXPECT_LE(error, kTolerance) << tensor;
  worst.weight = std::max(worst.weight, error);
  run.grid().world().barrier();
}

}  // namespace triax::test
