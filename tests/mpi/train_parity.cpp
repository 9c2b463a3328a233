// The parity matrix in fp64: every legal layout of T0 and T1 trains like one rank: losses and gradient norms of 20
// steps, and all weights after them, with dropout 0.1. Run with 1, 2, 4 and 8 ranks, each takes the layouts of its
// size. TRIAX_PARITY=all runs the whole matrix, else a subset that covers every pair of settings.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "io/weights/transfer.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/memory_forecast.h"

namespace triax::test {
namespace {

using parallel::RecomputeGranularity;
using parallel::SequenceParallel;

constexpr int kSteps = 20;
constexpr double kTolerance = 1e-10;

bool legal(const Layout& l) {
  return l.world() <= 8 && (l.vpp == 1 || l.pp > 1) && (l.sp == SequenceParallel::No || l.tp > 1);
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (const TinyModel model : {TinyModel::T0, TinyModel::T1})
    for (const Head head : {Head::Tied, Head::Untied})
      for (const int tp : {1, 2, 4})
        for (const int pp : {1, 2, 4})
          for (const int vpp : {1, 2})
            for (const int dp : {1, 2})
              for (const SequenceParallel sp : {SequenceParallel::No, SequenceParallel::Yes})
                for (const RecomputeGranularity recompute :
                     {RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
                  const Layout l{model, head, tp, pp, vpp, dp, sp, recompute};
                  if (legal(l)) layouts.push_back(l);
                }
  return layouts;
}

/// (setting, value) of each setting as small numbers.
std::vector<int> settings_of(const Layout& l) {
  return {static_cast<int>(l.model), static_cast<int>(l.head),     l.tp, l.pp, l.vpp, l.dp,
          static_cast<int>(l.sp),    static_cast<int>(l.recompute)};
}

using Pair = std::array<int, 4>;  // setting a, its value, setting b, its value
std::set<Pair> pairs_of(const Layout& l) {
  const std::vector<int> s = settings_of(l);
  std::set<Pair> pairs;
  for (size_t a = 0; a < s.size(); ++a)
    for (size_t b = a + 1; b < s.size(); ++b) pairs.insert({static_cast<int>(a), s[a], static_cast<int>(b), s[b]});
  return pairs;
}

/// Greedy: always the layout with the most pairs that are not yet covered.
std::vector<Layout> pairwise_subset(const std::vector<Layout>& layouts) {
  std::set<Pair> missing;
  for (const Layout& l : layouts) missing.merge(pairs_of(l));
  std::vector<Layout> chosen;
  while (!missing.empty()) {
    const auto gain = [&](const Layout& l) {
      const std::set<Pair> pairs = pairs_of(l);
      return std::count_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return missing.contains(p); });
    };
    const Layout best = *std::max_element(layouts.begin(), layouts.end(),
                                          [&](const Layout& a, const Layout& b) { return gain(a) < gain(b); });
    for (const Pair& p : pairs_of(best)) missing.erase(p);
    chosen.push_back(best);
  }
  return chosen;
}

struct Trajectory {
  std::vector<double> loss, norm;
};

io::WeightsHeader header_of(const io::RunOptions& options) {
  io::WeightsHeader header;
  header.model = options.model;
  header.dtype = io::compute_dtype(options.control.precision);
  return header;
}

Trajectory trajectory_of(TinyRun& run) {
  Trajectory t;
  for (int i = 0; i < kSteps; ++i) {
    const train::StepResult result = run.step();
    t.loss.push_back(result.totals.loss);
    t.norm.push_back(result.grad_norm);
  }
  return t;
}

/// The layout of one rank that a layout is held against.
Layout serial_of(Layout l) {
  const int64_t layers = l.num_layers();
  l = {l.model, l.head, 1, 1, 1, 1, SequenceParallel::No, RecomputeGranularity::None};
  // num_layers() of the serial run must be the same.
  return layers == l.num_layers() ? l : Layout{l.model, l.head, 1, 8, 1, 1};
}

io::RunOptions serial_options(const Layout& key) {
  io::RunOptions options = tiny_options(key);
  options.parallel.grid.pipeline = 1;
  return options;
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

  void make(const Layout& key) const {
    TinyRun run(serial_options(key));
    const Trajectory t = trajectory_of(run);
    std::ofstream file(path(key) + ".txt");
    for (int i = 0; i < kSteps; ++i) file << fmt::format("{:a} {:a}\n", t.loss[size_t(i)], t.norm[size_t(i)]);
    io::save_weights(path(key) + ".h5", header_of(run.options()), run.trainer().store(), run.grid());
  }
  Trajectory read(const Layout& key) const {
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
  std::string path(const Layout& key) const { return directory_ / fmt::format("{}", fmt::join(settings_of(key), "-")); }

 private:
  std::filesystem::path directory_;
};

double relative(double value, double reference) { return std::abs(value - reference) / std::abs(reference); }

/// Largest |w - w_ref| / max(1, largest |w_ref| of the tensor) over this rank's tensors.
std::pair<double, std::string> weight_error(TinyRun& run, const std::string& file) {
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
void expect_forecast_memory(TinyRun& run) {
  const train::MemoryForecast forecast = train::forecast_memory(run.options(), run.grid().world_rank());
  const MemoryLedger& measured = run.arena().ledger();
  EXPECT_EQ(forecast.ledger.peak_total, measured.peak_total) << "peak at " << forecast.peak_op_text;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    EXPECT_EQ(forecast.ledger.peak[i], measured.peak[i]) << name_of(static_cast<MemoryCategory>(i));
    EXPECT_EQ(forecast.ledger.live[i], measured.live[i]) << name_of(static_cast<MemoryCategory>(i));
  }
}

std::vector<Layout> layouts_of_this_world() {
  const char* which = std::getenv("TRIAX_PARITY");
  std::vector<Layout> layouts = all_layouts();
  if (which == nullptr || std::string(which) != "all") layouts = pairwise_subset(layouts);
  std::erase_if(layouts, [](const Layout& l) { return l.world() != session().size(); });
  return layouts;
}

TEST(Parity, pairwise_subset_covers_every_pair_of_settings) {
  const std::vector<Layout> all = all_layouts();
  EXPECT_EQ(all.size(), 408u);
  std::set<Pair> wanted;
  for (const Layout& l : all) wanted.merge(pairs_of(l));
  std::set<Pair> covered;
  for (const Layout& l : pairwise_subset(all)) covered.merge(pairs_of(l));
  EXPECT_EQ(wanted, covered);
}

/// Largest differences seen.
struct Worst {
  double loss = 0, norm = 0, weight = 0;
};

/// Trains with `options` and compares losses, norms, weights and memory with the serial run of `layout`.
void expect_like_one_rank(const Layout& layout, const io::RunOptions& options, const References& references,
                          Worst& worst) {
  SCOPED_TRACE(layout.text() + " " + parallel::name_of(options.parallel.schedule));
  TinyRun run(session(), options);
  run.grid().world().barrier();  // the references are there
  const Trajectory expected = references.read(serial_of(layout));
  const Trajectory actual = trajectory_of(run);
  ASSERT_EQ(expected.loss.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < expected.loss.size(); ++i) {
    EXPECT_LE(relative(actual.loss[i], expected.loss[i]), kTolerance) << "loss of step " << i + 1;
    EXPECT_LE(relative(actual.norm[i], expected.norm[i]), kTolerance) << "norm of step " << i + 1;
    worst.loss = std::max(worst.loss, relative(actual.loss[i], expected.loss[i]));
    worst.norm = std::max(worst.norm, relative(actual.norm[i], expected.norm[i]));
  }
  EXPECT_LT(actual.loss.back(), actual.loss.front());
  expect_forecast_memory(run);
  const auto [error, tensor] = weight_error(run, references.path(serial_of(layout)) + ".h5");
  EXPECT_LE(error, kTolerance) << tensor;
  worst.weight = std::max(worst.weight, error);
  run.grid().world().barrier();
}

void say(size_t layouts, const Worst& worst) {
  if (session().rank() != 0) return;
  fmt::print("{} layouts of {} ranks: largest difference of loss {:.2e}, norm {:.2e}, weight {:.2e}\n", layouts,
             session().size(), worst.loss, worst.norm, worst.weight);
}

void make_references(const References& references, const std::vector<Layout>& layouts) {
  if (session().rank() != 0) return;
  std::set<std::string> made;
  for (const Layout& l : layouts) {
    if (made.insert(references.path(serial_of(l))).second) references.make(serial_of(l));
  }
}

TEST(Parity, every_layout_trains_like_one_rank) {
  const std::vector<Layout> layouts = layouts_of_this_world();
  const References references;
  make_references(references, layouts);
  Worst worst;
  for (const Layout& layout : layouts) expect_like_one_rank(layout, tiny_options(layout), references, worst);
  say(layouts.size(), worst);
}

// Deferred weight gradients (I and W apart), the V placement with both ends of the model on one position, tied and not.
TEST(Parity, zero_bubble_schedules_train_like_one_rank) {
  using parallel::ScheduleKind;
  const int pp = std::min(session().size(), 4);
  if (pp == 1) GTEST_SKIP() << "needs a pipeline: runs with 2, 4 and 8 ranks";
  std::vector<Layout> layouts;
  std::vector<ScheduleKind> schedules;
  for (const ScheduleKind schedule :
       {ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubbleH2, ScheduleKind::ZeroBubbleV}) {
    const int vpp = schedule == ScheduleKind::ZeroBubbleV ? 2 : 1;
    layouts.push_back({TinyModel::T0, Head::Tied, 1, pp, vpp, session().size() / pp});
    layouts.push_back({TinyModel::T1, Head::Untied, session().size() / pp, pp, vpp, 1, SequenceParallel::No,
                       RecomputeGranularity::Full});
    schedules.insert(schedules.end(), 2, schedule);
  }
  const References references;
  make_references(references, layouts);
  Worst worst;
  for (size_t i = 0; i < layouts.size(); ++i) {
    io::RunOptions options = tiny_options(layouts[i]);
    options.parallel.schedule = schedules[i];
    expect_like_one_rank(layouts[i], options, references, worst);
  }
  say(layouts.size(), worst);
}

}  // namespace
}  // namespace triax::test
