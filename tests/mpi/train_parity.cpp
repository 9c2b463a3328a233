// The parity matrix in fp64: every legal layout of T0 and T1 trains like one rank: losses and gradient norms of 20
// steps, and all weights after them, with dropout 0.1. Run with 1, 2, 4 and 8 ranks, each takes the layouts of its
// size. TRIAX_PARITY=all runs the whole matrix, else a subset that covers every pair of settings.
#include "tests/mpi/covering.h"
#include "tests/mpi/parity.h"

namespace triax::test {
namespace {

using parallel::RecomputeGranularity;
using parallel::SequenceParallel;

constexpr int kPairs = 2;

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

/// The training of one rank that a layout is held against.
Reference serial_of(const Layout& l) { return {l.model, l.head, l.num_layers()}; }

std::vector<Layout> layouts_of_this_world() {
  const char* which = std::getenv("TRIAX_PARITY");
  std::vector<Layout> layouts = all_layouts();
  if (which == nullptr || std::string(which) != "all") layouts = covering_subset(layouts, kPairs, settings_of);
  std::erase_if(layouts, [](const Layout& l) { return l.world() != session().size(); });
  return layouts;
}

TEST(Parity, pairwise_subset_covers_every_pair_of_settings) {
  const std::vector<Layout> all = all_layouts();
  EXPECT_EQ(all.size(), 408u);
  const auto combinations = [](const std::vector<Layout>& layouts) {
    std::set<Combination> found;
    for (const Layout& l : layouts) {
      const std::vector<Combination> own = combinations_of(settings_of(l), kPairs);
      found.insert(own.begin(), own.end());
    }
    return found;
  };
  const std::set<Combination> wanted = combinations(all);
  const std::set<Combination> covered = combinations(covering_subset(all, kPairs, settings_of));
  EXPECT_EQ(wanted, covered);
}

TEST(Parity, every_layout_trains_like_one_rank) {
  const std::vector<Layout> layouts = layouts_of_this_world();
  References references;
  for (const Layout& l : layouts) references.make(serial_of(l));
  Worst worst;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.text());
    expect_like_one_rank(serial_of(layout), tiny_options(layout), references, worst);
  }
  worst.say(layouts.size());
}

// Each tp rank sends 1/t of an activation or gradient, and the next stage gathers it.
TEST(Parity, messages_in_slices_train_like_one_rank) {
  if (session().size() < 4) GTEST_SKIP() << "needs tp x pp: runs with 4 and 8 ranks";
  References references;
  Worst worst;
  const int dp = session().size() / 4;
  const std::vector<Layout> layouts{{TinyModel::T0, Head::Tied, 2, 2, 1, dp},
                                    {TinyModel::T1, Head::Untied, 2, 2, 2, dp}};
  for (const Layout& layout : layouts) references.make(serial_of(layout));
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.text());
    io::RunOptions options = tiny_options(layout);
    options.parallel.scatter_gather = true;
    expect_like_one_rank(serial_of(layout), options, references, worst);
  }
  worst.say(layouts.size());
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
  References references;
  for (const Layout& l : layouts) references.make(serial_of(l));
  Worst worst;
  for (size_t i = 0; i < layouts.size(); ++i) {
    io::RunOptions options = tiny_options(layouts[i]);
    options.parallel.schedule = schedules[i];
    SCOPED_TRACE(layouts[i].text() + " " + parallel::name_of(schedules[i]));
    expect_like_one_rank(serial_of(layouts[i]), options, references, worst);
  }
  worst.say(layouts.size());
}

}  // namespace
}  // namespace triax::test
