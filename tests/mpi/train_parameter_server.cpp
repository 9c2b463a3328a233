// The parameter server on its own: bits of the synchronous sum, bytes, and how old weights get.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/parameter_server.h"
#include "train/replica_check.h"

namespace triax::test {
namespace {

using train::ParameterServer;

constexpr int64_t kSize = 5003;

/// A gradient whose sum over ranks depends on the order.
double gradient_of(double weight, int rank, int64_t step, int64_t i) {
  return std::sin(static_cast<double>(i * (rank + 2) + step)) * (rank % 2 == 0 ? 1e6 : 1e-6) + 0.1 * weight;
}

/// Everybody's weights after `steps` synchronous steps, summed in rank order.
std::vector<double> serial_weights(int ranks, int64_t steps) {
  std::vector<double> weights(kSize, 1.0);
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < kSize; ++i) {
      double& w = weights[static_cast<size_t>(i)];
      double sum = gradient_of(w, 0, step, i);
      for (int r = 1; r < ranks; ++r) sum += gradient_of(w, r, step, i);
      w -= 1e-8 * sum;
    }
  }
  return weights;
}

/// A model of one array on every rank of dp.
class Model {
 public:
  Model(int max_staleness, const std::string& delays) : grid_(session(), options_of(delays)), arena_(grid_.memory()) {
    gradient_buffer_ = arena_.allocate(DType::Float64, kSize, MemoryCategory::Gradients);
    weights_buffer_ = arena_.allocate(DType::Float64, kSize, MemoryCategory::Parameters);
    gradient_ = gradient_buffer_.view(DType::Float64, {kSize});
    weights_ = weights_buffer_.view(DType::Float64, {kSize});
    std::fill_n(weights_.as<double>(), kSize, 1.0);
    server_ = std::make_unique<ParameterServer>(grid_.data(), grid_.model_parallel(), *device_, arena_, gradient_,
                                                weights_, max_staleness, [this](int64_t update) {
                                                  EXPECT_EQ(update, updates_++);
                                                  for (int64_t i = 0; i < kSize; ++i)
                                                    weights_.as<double>()[i] -= 1e-8 * gradient_.as<double>()[i];
                                                });
  }
  void step(int64_t number) {
    for (int64_t i = 0; i < kSize; ++i) {
      gradient_.as<double>()[i] = gradient_of(weights_.as<double>()[i], grid_.data().rank(), number, i);
    }
    server_->end_step();
  }
  ParameterServer& server() { return *server_; }
  comm::ProcessGrid& grid() { return grid_; }
  std::vector<double> weights() const { return {weights_.as<double>(), weights_.as<double>() + kSize}; }

 private:
  static comm::GridOptions options_of(const std::string& delays) {
    comm::GridOptions options;
    options.shape.data = session().size();
    options.timeout_s = 60;
    options.delay_spec = delays;
    return options;
  }
  std::unique_ptr<kernels::Device> device_ = kernels::make_cpu_device({1});
  comm::ProcessGrid grid_;
  Arena arena_;
  Buffer gradient_buffer_, weights_buffer_;
  Tensor gradient_, weights_;
  int64_t updates_ = 0;
  std::unique_ptr<ParameterServer> server_;
};

TEST(ParameterServer, without_staleness_gives_the_bits_of_the_synchronous_sum) {
  for (const char* delays : {"", "dp:uniform:0:1ms:seed=2"}) {
    Model model(0, delays);
    for (int64_t step = 0; step < 12; ++step) {
      model.step(step);
      EXPECT_EQ(model.server().updates(), step + 1);
    }
    EXPECT_EQ(model.weights(), serial_weights(session().size(), 12));
    EXPECT_EQ(model.server().staleness().largest, 0);
    EXPECT_EQ(model.server().staleness().steps, 12);
  }
}

TEST(ParameterServer, weights_are_never_older_than_allowed) {
  for (const int allowed : {1, 2, 5}) {
    Model model(allowed, "dp:uniform:0:2ms:seed=8");
    constexpr int64_t kSteps = 30;
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_LE(step - model.server().updates(), allowed);
      model.step(step);
      // Ranks of different speed.
      std::this_thread::sleep_for(std::chrono::microseconds(300 * (session().rank() * step % 4)));
    }
    const train::StalenessReport& report = model.server().staleness();
    EXPECT_LE(report.largest, allowed);
    EXPECT_EQ(report.steps, kSteps);
    int64_t steps = 0, sum = 0;
    for (size_t s = 0; s < report.steps_with.size(); ++s) {
      steps += report.steps_with[s];
      sum += static_cast<int64_t>(s) * report.steps_with[s];
    }
    EXPECT_EQ(steps, kSteps);
    EXPECT_EQ(sum, report.sum);
    model.server().settle();
    EXPECT_EQ(model.server().updates(), kSteps);
    // All hold the same weights in the end.
    std::vector<double> root = model.weights();
    model.grid().world().broadcast(Tensor(root.data(), DType::Float64, {kSize}), 0).wait();
    EXPECT_EQ(model.weights(), root);
  }
}

/// The server begins only when all others are in their step S, with no update yet: as old as is allowed, and no older.
TEST(ParameterServer, the_bound_is_reached_where_the_server_is_late) {
  for (const int allowed : {1, 3}) {
    Model model(allowed, "");
    int64_t token = 0;
    const Tensor word(&token, DType::Int64, {1});
    comm::Communicator& world = model.grid().world();
    for (int r = 1; r < world.size() && model.server().is_server(); ++r) world.recv(word, r, 7).wait();
    for (int64_t step = 0; step < 10; ++step) {
      if (step == allowed && !model.server().is_server()) {
        EXPECT_EQ(model.server().updates(), 0);
        world.send(word, 0, 7).wait();
      }
      model.step(step);
    }
    EXPECT_EQ(model.server().staleness().steps, 10);
    EXPECT_LE(model.server().staleness().largest, allowed);
    const bool worker = !model.server().is_server();
    EXPECT_GE(model.server().staleness().largest, worker ? allowed : 0);
    model.server().settle();
    EXPECT_EQ(model.server().updates(), 10);
  }
}

/// psi bytes of gradients from and psi bytes of weights to each of the n-1 others: 2 (n-1) psi in a step.
TEST(ParameterServer, bytes_at_the_server) {
  for (const int allowed : {0, 3}) {
    Model model(allowed, "");
    model.grid().ledger().reset();
    for (int64_t step = 0; step < 7; ++step) model.step(step);
    model.server().settle();
    const auto entries = model.grid().ledger().snapshot();
    const comm::LedgerEntry sent = entries.at({"dp", comm::Operation::Send});
    const comm::LedgerEntry received = entries.at({"dp", comm::Operation::Recv});
    const int64_t psi = kSize * 8;
    const int64_t others = model.server().is_server() ? session().size() - 1 : 1;
    EXPECT_EQ(sent.counted.total(), 7 * others * psi);
    EXPECT_EQ(received.payload_bytes, 7 * others * psi);
    EXPECT_EQ(entries.count({"dp", comm::Operation::AllReduce}), 0u);
  }
}

struct Trained {
  std::vector<double> loss;
  std::vector<double> weights;  ///< of this rank
};

Trained train_tiny(TinyRun& run, int steps) {
  Trained t;
  for (int i = 0; i < steps; ++i) t.loss.push_back(run.step().totals.loss);
  run.trainer().settle();
  const Tensor weights = run.trainer().store().flat_weight();
  for (int64_t i = 0; i < weights.numel(); ++i) {
    t.weights.push_back(weights.dtype() == DType::Float64
                            ? weights.as<double>()[i]
                            : static_cast<double>(static_cast<float>(weights.as<bf16>()[i])));
  }
  return t;
}

std::vector<Layout> layouts() {
  if (session().size() == 4) return {{.dp = 4}, {.tp = 2, .dp = 2}, {.pp = 2, .dp = 2}};
  return {{.dp = session().size()}};
}

TEST(Training, without_staleness_has_the_bits_of_the_all_reduce) {
  for (const Layout& layout : layouts()) {
    for (const io::Precision precision : {io::Precision::Fp64, io::Precision::Bf16}) {
      SCOPED_TRACE(layout.text());
      io::RunOptions options = tiny_options(layout);
      options.control.precision = precision;
      TinyRun usual(session(), options);
      const Trained expected = train_tiny(usual, 5);
      options.parallel.grad_sync = io::GradSync::ParameterServer;
      options.control.inject = "dp:uniform:0:1ms:seed=4";
      TinyRun run(session(), options);
      const Trained actual = train_tiny(run, 5);
      EXPECT_EQ(actual.loss, expected.loss);
      EXPECT_EQ(actual.weights, expected.weights);
      EXPECT_EQ(run.trainer().staleness()->largest, 0);
      EXPECT_EQ(usual.trainer().staleness(), nullptr);
    }
  }
}

TEST(Training, with_staleness_learns_and_stays_within_the_bound) {
  for (const Layout& layout : layouts()) {
    for (const int allowed : {1, 3}) {
      SCOPED_TRACE(layout.text());
      io::RunOptions options = tiny_options(layout);
      options.parallel.grad_sync = io::GradSync::ParameterServer;
      options.parallel.max_staleness = allowed;
      options.control.inject = "dp:uniform:0:3ms:seed=4";
      TinyRun run(session(), options);
      const Trained trained = train_tiny(run, 20);
      EXPECT_LT(trained.loss.back(), trained.loss.front() - 0.05);
      const train::StalenessReport* report = run.trainer().staleness();
      EXPECT_EQ(report->steps, 20);
      EXPECT_LE(report->largest, allowed);
      train::check_replicas(run.trainer().store(), nullptr, run.trainer().gradient_sync().plan(),
                            run.grid(), run.device());  // settled: all alike
    }
  }
}

TEST(Training, bytes_at_the_server_are_2_n_less_1_psi) {
  const int n = session().size();
  io::RunOptions options = tiny_options({.dp = n});
  options.parallel.grad_sync = io::GradSync::ParameterServer;
  TinyRun run(session(), options);
  run.grid().ledger().reset();
  for (int i = 0; i < 3; ++i) run.step();
  run.trainer().settle();
  const auto entries = run.grid().ledger().snapshot();
  const int64_t psi = run.trainer().store().numel() * 8;
  const int64_t at_server = entries.at({"dp", comm::Operation::Send}).counted.total() +
                            entries.at({"dp", comm::Operation::Recv}).payload_bytes;
  EXPECT_EQ(at_server, 3 * 2 * (run.grid().data().rank() == 0 ? n - 1 : 1) * psi);
  EXPECT_EQ(entries.count({"dp", comm::Operation::AllReduce}), 0u);
}

}  // namespace
}  // namespace triax::test
