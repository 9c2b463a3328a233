// ZeRO in fp64: every stage, shard group, overlap, accumulation and bucket size, in tp x pp layouts and schedules,
// trains like one rank at the same global batch, in the forecast memory. Weights never divide by the group (vocabulary
// 101), and nothing is too small to be sharded. Run with 2, 4 and 8 ranks. TRIAX_PARITY=all: a subset that covers every
// triple of settings, else every pair.
#include "tests/mpi/covering.h"
#include "tests/mpi/parity.h"

namespace triax::test {
namespace {

using parallel::KeepGathered;
using parallel::RecomputeGranularity;
using parallel::ScheduleKind;
using parallel::SequenceParallel;

constexpr int kSteps = 5;
constexpr const char* kDelays = "all:uniform:0:2ms:seed=7";

struct Case {
  int world = 1;
  TinyModel model = TinyModel::T0;
  Head head = Head::Tied;
  int tp = 1, pp = 1;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  int stage = 0, group = 1;
  bool hpz = false, overlap = true;
  int accumulation = 1;
  int64_t bucket = 10'000;
  KeepGathered keep = KeepGathered::Forward;
  int prefetch = 1;
  RecomputeGranularity recompute = RecomputeGranularity::None;
  SequenceParallel sp = SequenceParallel::No;

  int dp() const { return world / (tp * pp); }
  int chunks() const { return schedule == ScheduleKind::Interleaved || schedule == ScheduleKind::ZeroBubbleV ? 2 : 1; }
  std::string text() const {
    return fmt::format(
        "{} {} tp{} pp{} dp{} {} zero{} group{}{} {} accumulation {} bucket {} keep {} prefetch {} "
        "recompute {}",
        model == TinyModel::T0 ? "T0" : "T1", head == Head::Tied ? "tied" : "untied", tp, pp, dp(),
        parallel::name_of(schedule), stage, group, hpz ? " hpZ" : "", overlap ? "overlap" : "in turn", accumulation,
        bucket, parallel::name_of(keep), prefetch, static_cast<int>(recompute), static_cast<int>(sp));
  }
};

std::vector<int> settings_of(const Case& c) {
  return {c.dp(),
          static_cast<int>(c.model),
          static_cast<int>(c.head),
          c.tp,
          c.pp,
          static_cast<int>(c.schedule),
          c.stage,
          c.group,
          c.hpz,
          c.overlap,
          c.accumulation,
          static_cast<int>(c.bucket),
          static_cast<int>(c.keep),
          c.prefetch,
          static_cast<int>(c.recompute),
          static_cast<int>(c.sp)};
}

bool legal(const Case& c) {
  if (c.world % (c.tp * c.pp) != 0 || c.dp() < 2) return false;
  if (c.sp == SequenceParallel::Yes && c.tp == 1) return false;
  if (c.pp == 1 && c.schedule != ScheduleKind::OneFOneB) return false;
  if (c.dp() % c.group != 0 || (c.stage == 0 && c.group != 1)) return false;
  if (c.hpz && (c.stage != 3 || c.group == 1)) return false;
  if (c.stage != 3 && (c.keep != KeepGathered::Forward || c.prefetch != 1)) return false;
  if (c.schedule == ScheduleKind::Interleaved && c.accumulation % c.pp != 0) return false;
  if (c.schedule == ScheduleKind::ZeroBubbleH2 && c.accumulation < 2 * c.pp - 1) return false;
  if (c.schedule == ScheduleKind::ZeroBubbleV && c.accumulation < c.pp) return false;
  return true;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int world : {2, 4, 8})
    for (const TinyModel model : {TinyModel::T0, TinyModel::T1})
      for (const Head head : {Head::Tied, Head::Untied})
        for (const int tp : {1, 2})
          for (const int pp : {1, 2})
            for (const ScheduleKind schedule :
                 {ScheduleKind::OneFOneB, ScheduleKind::GPipe, ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1,
                  ScheduleKind::ZeroBubbleH2, ScheduleKind::ZeroBubbleV})
              for (const auto& [stage, hpz, keep, prefetch] : {std::tuple{0, false, KeepGathered::Forward, 1},
                                                               {1, false, KeepGathered::Forward, 1},
                                                               {2, false, KeepGathered::Forward, 1},
                                                               {3, false, KeepGathered::Forward, 0},
                                                               {3, false, KeepGathered::Forward, 1},
                                                               {3, false, KeepGathered::Backward, 1},
                                                               {3, true, KeepGathered::Step, 2}})
                for (const int group : {1, 2, 4})
                  for (const bool overlap : {true, false})
                    for (const int accumulation : {1, 2, 4, 8})
                      for (const int64_t bucket : {int64_t{1}, int64_t{40'000}, int64_t{40'000'000}})
                        for (const RecomputeGranularity recompute :
                             {RecomputeGranularity::None, RecomputeGranularity::Full}) {
                          Case c{world, model,   head,         tp,     pp,   schedule, stage,    group,
                                 hpz,   overlap, accumulation, bucket, keep, prefetch, recompute};
                          // Whether the sequence is cut alternates, or the matrix would double.
                          if (tp == 2 && cases.size() % 2 == 1) c.sp = SequenceParallel::Yes;
                          if (legal(c)) cases.push_back(c);
                        }
  return cases;
}

io::RunOptions options_of(const Case& c) {
  Layout layout{c.model, c.head, c.tp, c.pp, c.chunks(), c.dp()};
  layout.recompute = c.recompute;
  layout.sp = c.sp;
  io::RunOptions o = tiny_options(layout);
  o.parallel.schedule = c.schedule;
  o.parallel.zero_stage = c.stage;
  o.parallel.zero_shard_group = c.hpz || c.stage == 0 ? 0 : c.group;
  o.parallel.zero_hpz = c.hpz ? c.group : 1;
  o.parallel.zero_persistence_threshold = 0;
  o.parallel.zero_prefetch = c.prefetch;
  o.parallel.zero_keep = c.keep;
  o.parallel.overlap_grad_reduce = o.parallel.overlap_param_gather = c.overlap;
  o.parallel.ddp_bucket_size = c.bucket;
  o.batch.global_batch_size = c.dp() * c.accumulation;
  return o;
}

Reference reference_of(const Case& c) { return {c.model, c.head, 4, c.dp() * c.accumulation, kSteps}; }

/// Those of this test's number of ranks.
void run_all(std::vector<Case> cases, const std::string& inject) {
  const char* only = std::getenv("TRIAX_ONLY");  // part of a case's text, to look into one
  std::erase_if(cases, [&](const Case& c) {
    return c.world != session().size() || (only != nullptr && c.text().find(only) == std::string::npos);
  });
  References references;
  for (const Case& c : cases) references.make(reference_of(c));
  Worst worst;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text());
    if (session().rank() == 0 && only != nullptr) fmt::print("{}\n", c.text());
    io::RunOptions options = options_of(c);
    options.control.inject = inject;
    expect_like_one_rank(reference_of(c), options, references, worst);
    if (testing::Test::HasFatalFailure()) return;
  }
  worst.say(cases.size());
}

TEST(Zero, every_stage_trains_like_one_rank) {
  const char* which = std::getenv("TRIAX_PARITY");
  const bool all = which != nullptr && std::string(which) == "all";
  const std::vector<Case> cases = covering_subset(all_cases(), all ? 3 : 2, settings_of);
  if (!all) {
    EXPECT_LE(cases.size(), 60u);
  }
  run_all(cases, "");
}

TEST(Zero, random_delays_change_nothing) {
  std::vector<Case> cases;
  for (const int stage : {1, 2, 3}) {
    Case c;
    c.world = session().size();
    c.stage = stage;
    c.tp = c.world == 8 ? 2 : 1;
    c.pp = c.world >= 4 ? 2 : 1;
    c.group = c.world >= 4 ? 2 : 1;
    c.schedule = c.pp == 1 ? ScheduleKind::OneFOneB : ScheduleKind::ZeroBubbleH1;
    c.accumulation = 2;
    c.bucket = 1;
    cases.push_back(c);
  }
  run_all(cases, kDelays);
}

}  // namespace
}  // namespace triax::test
