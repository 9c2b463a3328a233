// Training with compressed gradients: density 1 is the uncompressed run bit for bit, layouts with the same dp agree,
// the ledger counts what the run says it sent, memory is as forecast, every method learns, and saved state goes on.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "comm/compression/top_k_sum.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/memory_forecast.h"

namespace triax::test {
namespace {

using comm::CompressionMethod;

constexpr CompressionMethod kMethods[] = {CompressionMethod::TopK,     CompressionMethod::OneBitAdam,
                                          CompressionMethod::PowerSgd, CompressionMethod::Qsgd,
                                          CompressionMethod::Int8,     CompressionMethod::BFloat16};

/// Layouts with dp = 2 of this world.
std::vector<Layout> layouts() {
  Layout l;
  l.dp = 2;
  if (session().size() == 2) return {l};
  Layout tp = l, pp = l, vpp = l;
  tp.tp = 2;
  pp.pp = 2;
  vpp.pp = vpp.vpp = 2;
  return {tp, pp, vpp};
}

constexpr int kStages[] = {0, 1};

io::RunOptions options_of(const Layout& layout, CompressionMethod method, int zero = 0) {
  io::RunOptions o = tiny_options(layout);
  o.parallel.zero_stage = zero;
  comm::CompressionOptions& c = o.parallel.compression;
  c.method = method;
  c.density = 0.05;
  c.rank = 2;
  c.block_length = 32;  // divides every row that tp 2 cuts
  c.min_elements = 200;
  c.warmup_steps = method == CompressionMethod::OneBitAdam ? 3 : 0;
  return o;
}

bool same_bits(Tensor a, Tensor b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(TrainCompression, top_k_of_density_one_is_the_uncompressed_run) {
  for (const int zero : kStages) {
    for (const io::Precision precision : {io::Precision::Fp64, io::Precision::Fp32, io::Precision::Bf16}) {
      for (const Layout& layout : layouts()) {
        io::RunOptions plain = tiny_options(layout);
        plain.control.precision = precision;
        plain.parallel.zero_stage = zero;
        io::RunOptions compressed = plain;
        comm::CompressionOptions& c = compressed.parallel.compression;
        c.method = CompressionMethod::TopK;
        c.density = 1;
        c.min_elements = 0;
        c.exempt_embedding = c.exempt_head = false;
        TinyRun a(session(), plain), b(session(), compressed);
        for (int step = 0; step < 4; ++step) {
          const train::StepResult want = a.step(), got = b.step();
          ASSERT_EQ(got.totals.loss, want.totals.loss) << layout.text() << " step " << step;
          ASSERT_EQ(got.grad_norm, want.grad_norm);
        }
        a.trainer().gather_weights();
        b.trainer().gather_weights();
        EXPECT_TRUE(same_bits(a.trainer().store().flat_weight(), b.trainer().store().flat_weight())) << layout.text();
      }
    }
  }
}

/// Sharded or not, the same sums of Top-K and PowerSGD, the same momentum of 1-bit Adam.
TEST(TrainCompression, zero_1_agrees_with_zero_0) {
  for (const CompressionMethod method :
       {CompressionMethod::TopK, CompressionMethod::PowerSgd, CompressionMethod::OneBitAdam}) {
    for (const Layout& layout : layouts()) {
      TinyRun whole(session(), options_of(layout, method)), sharded(session(), options_of(layout, method, 1));
      for (int step = 0; step < 8; ++step) {
        EXPECT_NEAR(sharded.step().totals.loss, whole.step().totals.loss, 1e-10) << name_of(method) << layout.text();
      }
    }
  }
}

/// Losses of the same data replicas, whatever tp and pp. Codes of blocks are taken by global place; Top-K and PowerSGD
/// take what a rank holds of a tensor, so only pipelines agree.
TEST(TrainCompression, layouts_agree) {
  if (session().size() < 4) GTEST_SKIP() << "one layout only";
  for (const CompressionMethod method : kMethods) {
    std::vector<double> want;
    const bool by_shard = method == CompressionMethod::TopK || method == CompressionMethod::PowerSgd;
    for (const Layout& layout : layouts()) {
      if (by_shard && layout.tp > 1) continue;
      TinyRun run(session(), options_of(layout, method));
      std::vector<double> got;
      for (int step = 0; step < 8; ++step) got.push_back(run.step().totals.loss);
      if (want.empty()) want = got;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-10) << name_of(method) << " " << layout.text() << " step " << i;
      }
    }
    // And not since nothing was compressed.
    TinyRun plain(session(), tiny_options(layouts()[1]));
    double last = 0;
    for (int step = 0; step < 8; ++step) last = plain.step().totals.loss;
    EXPECT_GT(std::abs(last - want.back()), 1e-9) << name_of(method);
  }
}

double sent_over_dp(comm::ProcessGrid& grid) {
  double sum = 0;
  for (const auto& [key, entry] : grid.ledger().snapshot()) {
    if (key.first.rfind("dp", 0) == 0) sum += entry.sent_bytes;
  }
  return sum;
}

TEST(TrainCompression, the_ledger_counts_what_the_run_reports) {
  for (const Layout& layout : layouts()) {
    for (const int zero : kStages) {
      for (const CompressionMethod method : kMethods) {
        TinyRun run(session(), options_of(layout, method, zero));
        const double before = sent_over_dp(run.grid());
        for (int step = 0; step < 5; ++step) run.step();
        const comm::CompressionTally tally = run.trainer().compression()->tally();
        // Two replicas: an all-reduce sends its bytes once, a reduce-scatter and the gather of weights half of them.
        const auto bytes = static_cast<double>(run.trainer().store().flat_weight().bytes());
        const double gathers = zero == 1 ? 5 * bytes / 2 : 0;
        EXPECT_NEAR(sent_over_dp(run.grid()) - before, tally.sent_bytes + gathers, 1e-6)
            << name_of(method) << layout.text() << " zero " << zero;
        EXPECT_DOUBLE_EQ(tally.dense_bytes, 5 * (zero == 1 ? bytes / 2 : bytes));
        // Under ZeRO 1 exempt tensors and 1-bit Adam's momentum go to every rank.
        EXPECT_TRUE(zero == 1 || tally.sent_bytes < tally.dense_bytes) << name_of(method);
      }
    }
  }
}

TEST(TrainCompression, memory_is_as_forecast_and_residuals_are_optimizer_state) {
  for (const Layout& layout : layouts()) {
    for (const int zero : kStages) {
      for (const CompressionMethod method : kMethods) {
        TinyRun run(session(), options_of(layout, method, zero));
        for (int step = 0; step < 5; ++step) run.step();
        const MemoryLedger forecast = train::forecast_memory(run.options(), run.grid().world_rank()).ledger;
        EXPECT_EQ(run.arena().ledger().peak, forecast.peak) << name_of(method) << layout.text() << " zero " << zero;
        EXPECT_EQ(run.arena().ledger().peak_total, forecast.peak_total);
        int64_t state = 2 * 8 * run.trainer().optimizer()->numel();
        for (const comm::StateTensor& s : run.trainer().compression()->state()) state += s.values.bytes();
        // All of the momentum, beside the owned part of it.
        if (zero == 1 && method == CompressionMethod::OneBitAdam) state += 8 * run.trainer().store().numel();
        const auto optimizer = static_cast<size_t>(MemoryCategory::Optimizer);
        EXPECT_NEAR(static_cast<double>(run.arena().ledger().live[optimizer]), static_cast<double>(state), 4 * 64);
        EXPECT_TRUE(method == CompressionMethod::Qsgd || !run.trainer().compression()->state().empty());
      }
    }
  }
}

TEST(TrainCompression, every_method_learns) {
  const Layout layout = layouts().back();
  std::map<CompressionMethod, double> loss;
  double first = 0;
  for (const CompressionMethod method :
       {CompressionMethod::None, CompressionMethod::TopK, CompressionMethod::OneBitAdam, CompressionMethod::PowerSgd,
        CompressionMethod::Qsgd, CompressionMethod::Int8, CompressionMethod::BFloat16}) {
    io::RunOptions options = options_of(layout, method);
    options.control.precision = io::Precision::Fp32;
    options.parallel.compression.warmup_steps = 10;
    TinyRun run(session(), options);
    const auto batches = run.next_batches();
    for (int step = 0; step < 50; ++step) {
      loss[method] = run.trainer().train_step({batches, 0, {}}).totals.loss;
      if (step == 0) first = loss[method];
    }
  }
  // Uncompressed, 50 steps on one batch take the loss from 4.6 to about 2.
  const double learned = first - loss[CompressionMethod::None];
  EXPECT_GT(learned, 1);
  for (const auto& [method, value] : loss) {
    EXPECT_GT(first - value,
              (method == CompressionMethod::BFloat16 || method == CompressionMethod::Int8 ? 0.97 : 0.6) * learned)
        << name_of(method) << ": " << first << " to " << value << ", uncompressed " << loss[CompressionMethod::None];
  }
}

/// With blocks of one element the sign code loses nothing, and with a gradient that stays the same a frozen second
/// moment is the right one: then 1-bit Adam is Adam.
TEST(TrainCompression, one_bit_adam_of_single_elements_is_adam) {
  for (const Layout& layout : layouts()) {
    io::RunOptions plain = tiny_options(layout);
    plain.optimizer.lr = 1e-9;
    plain.optimizer.weight_decay = 0;
    plain.optimizer.clip_grad = 0;
    plain.model.attention_dropout = plain.model.hidden_dropout = 0;
    io::RunOptions coded = options_of(layout, CompressionMethod::OneBitAdam);
    coded.optimizer = plain.optimizer;
    coded.model = plain.model;
    coded.parallel.compression.block_length = 1;
    TinyRun a(session(), plain), b(session(), coded), start(session(), plain);
    const auto batches = a.next_batches();
    for (int step = 0; step < 6; ++step) {
      a.trainer().train_step({batches, 0, {}});
      b.trainer().train_step({batches, 0, {}});
    }
    const Tensor w = a.trainer().store().flat_weight(), v = b.trainer().store().flat_weight();
    const Tensor w0 = start.trainer().store().flat_weight();
    double moved = 0, apart = 0;
    for (int64_t i = 0; i < w.numel(); ++i) {
      moved += std::pow(w.as<double>()[i] - w0.as<double>()[i], 2);
      apart += std::pow(w.as<double>()[i] - v.as<double>()[i], 2);
    }
    EXPECT_GT(moved, 0);
    EXPECT_LT(std::sqrt(apart / moved), 1e-3) << layout.text();
    EXPECT_FALSE(same_bits(w, v));
  }
}

/// Tensors with all that a run goes on from.
std::vector<Tensor> state_of(TinyRun& run, bool residuals) {
  train::Trainer& t = run.trainer();
  t.gather_weights();
  std::vector<Tensor> all{t.store().flat_weight()};
  for (size_t i = 0; i < t.optimizer()->owned().size(); ++i) {
    all.push_back(t.optimizer()->exp_avg(i));
    all.push_back(t.optimizer()->exp_avg_sq(i));
  }
  if (!residuals) return all;
  for (const comm::StateTensor& s : t.compression()->state()) all.push_back(s.values.flat());
  return all;
}

TEST(TrainCompression, a_run_goes_on_from_its_state) {
  const Layout layout = layouts().front();
  for (const int zero : kStages) {
    for (const CompressionMethod method : kMethods) {
      TinyRun run(session(), options_of(layout, method, zero));
      for (int step = 0; step < 5; ++step) run.step();
      const train::Progress progress = run.trainer().progress();
      std::vector<std::vector<char>> saved;
      for (const Tensor& t : state_of(run, true)) {
        saved.emplace_back(static_cast<char*>(t.data()), static_cast<char*>(t.data()) + t.bytes());
      }
      const auto batches = run.next_batches();
      const auto two_steps = [&](TinyRun& r) {
        r.trainer().train_step({batches, 0, {}});
        return r.trainer().train_step({batches, 0, {}}).totals.loss;
      };
      const double want = two_steps(run);
      for (const bool residuals : {true, false}) {
        TinyRun other(session(), options_of(layout, method, zero));
        const std::vector<Tensor> into = state_of(other, true);
        const size_t count = residuals ? into.size() : state_of(other, false).size();
        for (size_t i = 0; i < count; ++i) std::memcpy(into[i].data(), saved[i].data(), saved[i].size());
        other.trainer().progress() = progress;
        const double got = two_steps(other);
        if (residuals) {
          EXPECT_EQ(got, want) << name_of(method) << " zero " << zero;
        } else {
          EXPECT_EQ(got == want, method == CompressionMethod::Qsgd) << name_of(method);  // it has none
        }
      }
    }
  }
}

TEST(TrainCompression, state_names_every_compressed_element_once) {
  for (const CompressionMethod method : kMethods) {
    TinyRun run(session(), options_of(layouts().back(), method));
    std::vector<int> seen(static_cast<size_t>(run.trainer().store().numel()));
    int64_t owned = 0;
    for (const comm::StateTensor& s : run.trainer().compression()->state()) {
      if (std::string(s.kind) == comm::kServerResidual) owned += s.end - s.begin;
      if (std::string(s.kind) != comm::kGradResidual) continue;
      EXPECT_EQ(s.values.numel(), s.end - s.begin);
      for (int64_t i = s.begin; i < s.end; ++i) ++seen[static_cast<size_t>(i)];
    }
    double compressed = 0;
    for (const train::Trainer* t : {&run.trainer()}) {
      const auto buckets = train::compressed_buckets(
          run.trainer().store(), std::vector<parallel::FlatRange>{{0, run.trainer().store().numel()}},
          t->compression()->options());
      for (const comm::GradientTensor& tensor : buckets[0].tensors) {
        compressed += tensor.compressed ? static_cast<double>(tensor.count) : 0;
        for (int64_t i = tensor.begin; i < tensor.begin + tensor.count; ++i) {
          ASSERT_EQ(seen[static_cast<size_t>(i)], tensor.compressed && method != CompressionMethod::Qsgd ? 1 : 0)
              << tensor.name;
        }
      }
    }
    // The owners' residuals are each element once over dp.
    double all = static_cast<double>(owned);
    run.grid().data().all_reduce(Tensor(&all, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
    const bool coded = method == CompressionMethod::OneBitAdam || method == CompressionMethod::Int8 ||
                       method == CompressionMethod::BFloat16;
    EXPECT_EQ(all, coded ? compressed : 0) << name_of(method);
  }
}

}  // namespace
}  // namespace triax::test
