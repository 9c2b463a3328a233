#include "bench/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "comm/grid_groups.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;

constexpr int64_t kTurnBytes = int64_t{16} << 20;
constexpr uint64_t kSeed = 7;

double over_ranks(comm::Communicator& world, double mine, ReduceOp op) {
  world.all_reduce(Tensor(&mine, DType::Float64, {1}), op).wait();
  return mine;
}

/// Largest of each element over the ranks.
void slowest(comm::Communicator& world, std::vector<double>& times) {
  world.all_reduce(Tensor(times.data(), DType::Float64, {static_cast<int64_t>(times.size())}), ReduceOp::Max).wait();
}

/// One algorithm: groups of its own, and tensors from its memory.
class Contender {
 public:
  Contender(comm::MpiSession& session, const CollectiveBench& bench, comm::Algorithm algorithm)
      : algorithm_(algorithm), bench_(&bench) {
    comm::GridOptions options;
    options.shape.tensor = session.size();
    options.timeout_s = bench.timeout_s;
    options.fake_nodes = bench.fake_nodes;
    options.collectives.rules = {{"tp", algorithm}};
    options.collectives.order = bench.order;
    factory_ = comm::make_mpi_groups(session, options, ledger_);
    std::vector<int> all, mine;
    for (int r = 0; r < session.size(); ++r) {
      all.push_back(r);
      if (bench.split.colour(r) == bench.split.colour(session.rank())) mine.push_back(r);
    }
    world_ = factory_->make("world", all, comm::RunsOn::Caller);
    group_ = factory_->make("tp", mine, comm::RunsOn::Caller);
    std::set<int> nodes;
    for (const int rank : mine) nodes.insert(factory_->nodes()[static_cast<size_t>(rank)]);
    nodes_ = static_cast<int>(nodes.size());
    MemoryProvider& provider = bench.place == BufferPlace::Window ? factory_->memory() : heap_;
    arena_ = std::make_unique<Arena>(provider);
  }
  comm::Algorithm algorithm() const { return algorithm_; }
  comm::Communicator& world() { return *world_; }
  comm::Communicator& group() { return *group_; }
  comm::Ledger& ledger() { return ledger_; }
  int nodes() const { return nodes_; }
  Exchange& exchange() { return *exchange_; }
  void prepare(Operation op, int64_t bytes) {
    exchange_.reset();
    exchange_ = std::make_unique<Exchange>(*group_, *arena_, op, bench_->reduce, bench_->dtype, bytes);
  }

 private:
  comm::Algorithm algorithm_;
  const CollectiveBench* bench_;
  HeapProvider heap_;
  comm::Ledger ledger_;
  std::unique_ptr<comm::GroupFactory> factory_;
  std::unique_ptr<comm::Communicator> world_, group_;
  int nodes_ = 1;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Exchange> exchange_;
};

/// Bytes that one call of all ranks sends, and whether it was right.
void check_row(Contender& one, const CollectiveBench& bench, CollectiveRow& row) {
  const auto check = [&](Place place) -> int64_t {
    if (!bench.check) {
      one.exchange().call(place);
      return -1;
    }
    return std::llround(over_ranks(one.world(), static_cast<double>(one.exchange().check(place)), ReduceOp::Sum));
  };
  one.ledger().reset();
  row.out_of_place.wrong = check(Place::OutOf);
  const comm::LedgerEntry entry = one.ledger().snapshot().at({"tp", row.op});
  row.converted = entry.converted_calls > 0;
  row.inside_bytes = over_ranks(one.world(), static_cast<double>(entry.counted.inside), ReduceOp::Sum);
  row.across_bytes = over_ranks(one.world(), static_cast<double>(entry.counted.across), ReduceOp::Sum);
  if (has_in_place(row.op)) row.in_place.wrong = check(Place::In);
}

/// Seconds of each of `calls` calls on the slowest rank.
std::vector<double> time_turn(Contender& one, Place place, int64_t warmup, int64_t calls) {
  std::vector<double> times(static_cast<size_t>(calls));
  one.world().barrier();
  for (int64_t i = 0; i < warmup; ++i) one.exchange().call(place);
  for (double& time : times) {
    const Stopwatch watch;
    one.exchange().call(place);
    time = watch.elapsed_s();
  }
  slowest(one.world(), times);
  return times;
}

int64_t calls_of(const CollectiveBench& bench, int64_t bytes) {
  return bench.calls > 0 ? bench.calls : std::clamp<int64_t>(kTurnBytes / bytes, 2, 200);
}

CollectiveRow make_row(Contender& one, const CollectiveBench& bench, Operation op, int64_t bytes) {
  one.prepare(op, bytes);
  const Exchange& exchange = one.exchange();
  if (over_ranks(one.world(), static_cast<double>(exchange.size_bytes()), ReduceOp::Min) == 0) {
    const auto width = static_cast<int64_t>(size_of(bench.dtype));
    throw ConfigError(fmt::format("bench coll: --minbytes {}: {} ranks need at least one element each; use {}", bytes,
                                  one.group().size(), width * one.group().size()));
  }
  CollectiveRow row{.op = op, .algorithm = one.algorithm()};
  row.reduce = bench.reduce;
  row.ranks = static_cast<int>(over_ranks(one.world(), one.group().size(), ReduceOp::Max));
  row.nodes = static_cast<int>(over_ranks(one.world(), one.nodes(), ReduceOp::Max));
  row.size_bytes = exchange.size_bytes();
  row.count = exchange.count();
  check_row(one, bench, row);
  return row;
}

std::vector<CollectiveRow> measure_size(std::vector<std::unique_ptr<Contender>>& contenders,
                                        const CollectiveBench& bench, Operation op, int64_t bytes) {
  std::vector<CollectiveRow> rows;
  for (const auto& one : contenders) rows.push_back(make_row(*one, bench, op, bytes));
  const std::vector<Place> places = has_in_place(op) ? std::vector{Place::OutOf, Place::In} : std::vector{Place::OutOf};
  std::vector<std::vector<double>> times(contenders.size() * places.size());
  for (const std::vector<size_t>& order : random_orders(times.size(), bench.turns, kSeed)) {
    for (const size_t i : order) {
      const std::vector<double> turn =
          time_turn(*contenders[i / places.size()], places[i % places.size()], bench.warmup, calls_of(bench, bytes));
      times[i].insert(times[i].end(), turn.begin(), turn.end());
    }
  }
  for (size_t i = 0; i < times.size(); ++i) {
    CollectiveRow& row = rows[i / places.size()];
    (places[i % places.size()] == Place::In ? row.in_place : row.out_of_place).time = statistics(std::move(times[i]));
  }
  return rows;
}

}  // namespace

int Split::colour(int rank) const {
  switch (kind) {
    case Kind::Mod:
      return rank % number;
    case Kind::Div:
      return rank / number;
    case Kind::And:
      return rank & number;
    default:
      return 0;
  }
}

Split Split::parse(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  const std::string digits = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool number =
      !digits.empty() && digits.size() < 8 && digits.find_first_not_of("0123456789") == std::string::npos;
  Split split;
  split.kind = word == "mod" ? Kind::Mod : word == "div" ? Kind::Div : word == "and" ? Kind::And : Kind::None;
  split.number = number ? std::stoi(digits) : 0;
  if (split.kind == Kind::None || !number || (split.kind != Kind::And && split.number < 1)) {
    throw ConfigError(fmt::format("bench coll: --split {}: must be mod:N, div:N (N from 1) or and:MASK", text));
  }
  return split;
}

std::vector<int64_t> Sizes::all() const {
  std::vector<int64_t> sizes;
  for (int64_t bytes = least_bytes; bytes <= most_bytes;) {
    sizes.push_back(bytes);
    bytes = step_bytes > 0 ? bytes + step_bytes : bytes * factor;
  }
  return sizes;
}

double CollectiveRow::algbw_gbps(const PlaceTimes& place) const {
  return place.measured() ? static_cast<double>(size_bytes) / place.time.median_s / 1e9 : 0;
}

double CollectiveRow::busbw_gbps(const PlaceTimes& place) const {
  return place.measured() ? comm::sent_bytes(op, size_bytes, ranks) / place.time.median_s / 1e9 : 0;
}

std::vector<CollectiveRow> measure_collectives(comm::MpiSession& session, const CollectiveBench& bench) {
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const comm::Algorithm algorithm : bench.algorithms) {
    contenders.push_back(std::make_unique<Contender>(session, bench, algorithm));
  }
  comm::Communicator& world = contenders[0]->world();
  if (over_ranks(world, contenders[0]->group().size(), ReduceOp::Min) < 2) {
    throw ConfigError(fmt::format(
        "bench coll: --split leaves a group of one rank among {}, which has nobody to talk to", session.size()));
  }
  std::vector<CollectiveRow> rows;
  for (const Operation op : bench.ops) {
    for (const int64_t bytes : bench.sizes.all()) {
      for (CollectiveRow& row : measure_size(contenders, bench, op, bytes)) rows.push_back(row);
    }
  }
  world.barrier();
  return rows;
}

double GroupRow::busbw_gbps(const Statistics& time) const {
  return time.samples > 0 ? comm::sent_bytes(op, size_bytes, ranks) / time.median_s / 1e9 : 0;
}

std::vector<GroupRow> measure_groups(comm::ProcessGrid& grid, const std::vector<std::string>& groups,
                                     const CollectiveBench& bench) {
  HeapProvider heap;
  Arena arena(bench.place == BufferPlace::Window ? grid.memory() : heap);
  std::vector<GroupRow> rows;
  for (const int64_t bytes : bench.sizes.all()) {
    std::vector<Exchange> exchanges;
    const size_t first = rows.size();
    // The communication thread's group first: its operation runs while the others block their caller.
    for (const char* name : {"dp", "pp", "tp"}) {
      if (std::find(groups.begin(), groups.end(), name) == groups.end()) continue;
      comm::Communicator& group = name == std::string("dp")   ? grid.data()
                                  : name == std::string("pp") ? grid.pipeline()
                                                              : grid.tensor();
      if (group.size() == 1) {
        throw ConfigError(
            fmt::format("bench coll: --groups {}: this group has one rank; give the layout with "
                        "--tensor-model-parallel-size and --pipeline-model-parallel-size",
                        name));
      }
      const Operation op = name == std::string("pp") ? Operation::Send : bench.ops.front();
      exchanges.emplace_back(group, arena, op, bench.reduce, bench.dtype, bytes);
      rows.push_back({name, op, group.size(), exchanges.back().size_bytes(), {}, {}});
    }
    std::vector<std::vector<double>> alone(exchanges.size()), together(exchanges.size());
    for (int64_t call = -bench.warmup; call < calls_of(bench, bytes) * bench.turns; ++call) {
      for (size_t i = 0; i < exchanges.size(); ++i) {
        grid.world().barrier();
        const Stopwatch watch;
        exchanges[i].call(Place::OutOf);
        if (call >= 0) alone[i].push_back(watch.elapsed_s());
      }
      grid.world().barrier();
      const Stopwatch watch;
      std::vector<double> done(exchanges.size());
      for (Exchange& exchange : exchanges) exchange.start(Place::OutOf);
      for (size_t i = exchanges.size(); i-- > 0;) {
        exchanges[i].wait();
        done[i] = watch.elapsed_s();
      }
      for (size_t i = 0; call >= 0 && i < exchanges.size(); ++i) together[i].push_back(done[i]);
    }
    for (size_t i = 0; i < exchanges.size(); ++i) {
      slowest(grid.world(), alone[i]);
      slowest(grid.world(), together[i]);
      rows[first + i].alone = statistics(std::move(alone[i]));
      rows[first + i].together = statistics(std::move(together[i]));
    }
  }
  return rows;
}

}  // namespace triax::bench
