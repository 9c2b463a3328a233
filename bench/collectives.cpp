#include "bench/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "bench/timing.h"
#include "comm/grid_groups.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;

constexpr int64_t kTurnBytes = int64_t{16} << 20;
constexpr uint64_t kExchangeSeed = 7;

/// Largest of each element over the ranks.
void take_slowest(comm::Communicator& world, std::vector<double>& times) {
  world.all_reduce(Tensor(times.data(), DType::Float64, {static_cast<int64_t>(times.size())}), ReduceOp::Max).wait();
}

/// One algorithm, or NCCL: groups of its own, and tensors from its memory.
class Contender {
 public:
  Contender(comm::MpiSession& session, const CollectiveBench& bench, comm::Algorithm algorithm)
      : name_(bench.on.device != nullptr ? "nccl" : comm::name_of(algorithm)), bench_(&bench) {
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
    make_groups(mine);
    std::set<int> nodes;
    for (const int rank : mine) nodes.insert(factory_->nodes()[static_cast<size_t>(rank)]);
    nodes_ = static_cast<int>(nodes.size());
    arena_ = std::make_unique<Arena>(provider());
  }
  const std::string& algorithm() const { return name_; }
  comm::Communicator& world() { return *world_; }
  comm::Communicator& group(Operation op) { return op == Operation::Send && messages_ ? *messages_ : *group_; }
  comm::Ledger& ledger() { return ledger_; }
  int nodes() const { return nodes_; }
  Exchange& exchange() { return *exchange_; }
  void prepare(Operation op, int64_t bytes) {
    exchange_.reset();
    exchange_ =
        std::make_unique<Exchange>(group(op), *arena_, op, bench_->reduce, bench_->dtype, bytes, bench_->on.device);
  }

 private:
  void make_groups(const std::vector<int>& mine) {
    const OnDevice& on = bench_->on;
    if (on.device == nullptr) {
      group_ = factory_->make("tp", mine, comm::RunsOn::Caller);
      return;
    }
    using Carries = comm::GroupFactory::Carries;
    factory_->refuse_shared_gpus(*on.device);
    group_ = factory_->make_on_device(*on.groups, "tp", mine, Carries::Collectives);
    if (std::find(bench_->ops.begin(), bench_->ops.end(), Operation::Send) == bench_->ops.end()) return;
    const auto size = static_cast<double>(mine.size());
    if (over_ranks(*world_, size, ReduceOp::Min) < over_ranks(*world_, size, ReduceOp::Max)) {
      throw ConfigError(
          "bench coll: --split: sendrecv on GPUs needs groups of one size; leave out sendrecv or split evenly");
    }
    messages_ = factory_->make_on_device(*on.groups, "pp", mine, Carries::Messages);
  }
  MemoryProvider& provider() {
    if (bench_->on.device != nullptr) return bench_->on.memory();
    return bench_->place == BufferPlace::Window ? factory_->memory() : heap_;
  }

  std::string name_;
  const CollectiveBench* bench_;
  HeapProvider heap_;
  comm::Ledger ledger_;
  std::unique_ptr<comm::GroupFactory> factory_;
  std::unique_ptr<comm::Communicator> world_, group_, messages_;
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
  const comm::LedgerEntry entry = one.ledger().snapshot().at({one.group(row.op).name(), row.op});
  row.converted = entry.converted_calls > 0;
  row.inside_bytes = over_ranks(one.world(), static_cast<double>(entry.counted.inside), ReduceOp::Sum);
  row.across_bytes = over_ranks(one.world(), static_cast<double>(entry.counted.across), ReduceOp::Sum);
  if (has_in_place(row.op)) row.in_place.wrong = check(Place::In);
}

/// The calls that do not count bring the ranks together on the device; the host gives all calls at once.
void time_on_device(Contender& one, kernels::DiscreteDevice& device, Place place, std::vector<double>& times) {
  constexpr size_t kMarks = 4096;  // between two waits for the device
  for (size_t at = 0; at < times.size(); at += kMarks) {
    const size_t count = std::min(kMarks, times.size() - at);
    for (size_t i = 0; i < count; ++i) {
      device.mark(i);
      one.exchange().call(place);
    }
    device.mark(count);
    device.synchronize();
    for (size_t i = 0; i < count; ++i) times[at + i] = device.marked_s(i + 1) - device.marked_s(i);
  }
}

/// Seconds of each of `calls` calls on the slowest rank.
std::vector<double> time_turn(Contender& one, const CollectiveBench& bench, Place place, int64_t calls) {
  std::vector<double> times(static_cast<size_t>(calls));
  one.world().barrier();
  for (int64_t i = 0; i < bench.warmup; ++i) one.exchange().call(place);
  if (bench.on.device != nullptr) {
    time_on_device(one, *bench.on.device, place, times);
  } else {
    for (double& time : times) {
      const Stopwatch watch;
      one.exchange().call(place);
      time = watch.elapsed_s();
    }
  }
  take_slowest(one.world(), times);
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
                                  one.group(op).size(), width * one.group(op).size()));
  }
  CollectiveRow row{.op = op, .algorithm = one.algorithm()};
  row.reduce = bench.reduce;
  row.ranks = static_cast<int>(over_ranks(one.world(), one.group(op).size(), ReduceOp::Max));
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
  for (const std::vector<size_t>& order : random_orders(times.size(), bench.turns, kExchangeSeed)) {
    for (const size_t i : order) {
      const std::vector<double> turn =
          time_turn(*contenders[i / places.size()], bench, places[i % places.size()], calls_of(bench, bytes));
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
  for (const comm::Algorithm algorithm :
       bench.on.device != nullptr ? std::vector{comm::Algorithm::Default} : bench.algorithms) {
    contenders.push_back(std::make_unique<Contender>(session, bench, algorithm));
  }
  comm::Communicator& world = contenders[0]->world();
  if (over_ranks(world, contenders[0]->group(Operation::AllReduce).size(), ReduceOp::Min) < 2) {
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

namespace {

/// Groups that talk at once.
class Talk {
 public:
  Talk(comm::ProcessGrid& grid, const CollectiveBench& bench, std::vector<Exchange>& exchanges,
       std::vector<comm::Ledger::Key> keys)
      : grid_(&grid), bench_(&bench), exchanges_(&exchanges), keys_(std::move(keys)) {}

  /// Seconds of exchange i alone, and of all when all run: a call, on a device the mean of `calls`.
  std::vector<double> alone(size_t i, int64_t calls) { return measure({i}, calls); }
  std::vector<double> together(int64_t calls) {
    std::vector<size_t> all(exchanges_->size());
    std::iota(all.begin(), all.end(), size_t{0});
    return measure(all, calls);
  }

 private:
  void start(const std::vector<size_t>& which) {
    for (const size_t i : which) (*exchanges_)[i].start(Place::OutOf);
  }
  std::vector<double> measure(const std::vector<size_t>& which, int64_t calls) {
    grid_->world().barrier();
    return bench_->on.device != nullptr ? on_device(which, calls) : on_host(which);
  }
  std::vector<double> on_host(const std::vector<size_t>& which) {
    std::vector<double> done(which.size());
    const Stopwatch watch;
    start(which);
    for (size_t i = which.size(); i-- > 0;) {
      (*exchanges_)[which[i]].wait();
      done[i] = watch.elapsed_s();
    }
    return done;
  }
  /// The first call brings the ranks together and does not count.
  std::vector<double> on_device(const std::vector<size_t>& which, int64_t calls) {
    const auto run = [&](int64_t count) {
      for (int64_t call = 0; call < count; ++call) {
        start(which);
        for (const size_t i : which) (*exchanges_)[i].wait();
      }
      bench_->on.device->synchronize();
      grid_->collect_device_seconds();
      std::vector<double> busy;
      const auto entries = grid_->ledger().snapshot();
      for (const size_t i : which) busy.push_back(entries.at(keys_[i]).busy_s);
      return busy;
    };
    const std::vector<double> before = run(1);
    std::vector<double> after = run(calls);
    for (size_t i = 0; i < after.size(); ++i) after[i] = (after[i] - before[i]) / static_cast<double>(calls);
    return after;
  }

  comm::ProcessGrid* grid_;
  const CollectiveBench* bench_;
  std::vector<Exchange>* exchanges_;
  std::vector<comm::Ledger::Key> keys_;
};

comm::Communicator& group_named(comm::ProcessGrid& grid, const std::string& name) {
  comm::Communicator& group = name == "dp" ? grid.data() : name == "pp" ? grid.pipeline() : grid.tensor();
  if (group.size() == 1) {
    throw ConfigError(
        fmt::format("bench coll: --groups {}: this group has one rank; give the layout with "
                    "--tensor-model-parallel-size and --pipeline-model-parallel-size",
                    name));
  }
  return group;
}

}  // namespace

std::vector<GroupRow> measure_groups(comm::ProcessGrid& grid, const std::vector<std::string>& groups,
                                     const CollectiveBench& bench) {
  HeapProvider heap;
  Arena arena(bench.on.device != nullptr           ? bench.on.memory()
              : bench.place == BufferPlace::Window ? grid.memory()
                                                   : heap);
  std::vector<GroupRow> rows;
  for (const int64_t bytes : bench.sizes.all()) {
    std::vector<Exchange> exchanges;
    std::vector<comm::Ledger::Key> keys;
    const size_t first = rows.size();
    // The communication thread's group first: its operation runs while the others block their caller.
    for (const std::string& name : {std::string("dp"), std::string("pp"), std::string("tp")}) {
      if (std::find(groups.begin(), groups.end(), name) == groups.end()) continue;
      comm::Communicator& group = group_named(grid, name);
      const Operation op = name == "pp" ? Operation::Send : bench.ops.front();
      exchanges.emplace_back(group, arena, op, bench.reduce, bench.dtype, bytes, bench.on.device);
      keys.emplace_back(name, op);
      rows.push_back({name, op, group.size(), exchanges.back().size_bytes(), {}, {}});
    }
    Talk talk(grid, bench, exchanges, keys);
    std::vector<std::vector<double>> alone(exchanges.size()), together(exchanges.size());
    const int64_t calls = calls_of(bench, bytes);
    const int64_t samples = bench.on.device != nullptr ? bench.turns : calls * bench.turns;
    for (int64_t sample = -bench.warmup; sample < samples; ++sample) {
      for (size_t i = 0; i < exchanges.size(); ++i) {
        const double time = talk.alone(i, calls)[0];
        if (sample >= 0) alone[i].push_back(time);
      }
      const std::vector<double> all = talk.together(calls);
      for (size_t i = 0; sample >= 0 && i < exchanges.size(); ++i) together[i].push_back(all[i]);
    }
    for (size_t i = 0; i < exchanges.size(); ++i) {
      take_slowest(grid.world(), alone[i]);
      take_slowest(grid.world(), together[i]);
      rows[first + i].alone = statistics(std::move(alone[i]));
      rows[first + i].together = statistics(std::move(together[i]));
    }
  }
  return rows;
}

}  // namespace triax::bench
