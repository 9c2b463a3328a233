#include "bench/peer_links.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "bench/timing.h"
#include "comm/grid_groups.h"

namespace triax::bench {
namespace {

using comm::Communicator;
using Call = std::function<void()>;

constexpr int64_t kSampleBytes = int64_t{64} << 20;
constexpr int kAllRanks = -1;

int64_t calls_of(int64_t bytes) { return std::clamp<int64_t>(kSampleBytes / bytes, 2, 50); }

/// The value that one rank alone gives.
double of_one(Communicator& world, double mine) { return over_ranks(world, mine, comm::ReduceOp::Max); }

Tensor bytes_in(const Buffer& buffer, int64_t bytes) { return buffer.view(DType::UInt8, {bytes}); }

// ---- Copies ---------------------------------------------------------------------------------------------------------

/// Memory of both sides, and the copies between them.
class Copies {
 public:
  Copies(const OnDevice& on, int64_t most) : device_(on.device) {
    if (device_ == nullptr) {
      host_ = std::make_unique<Arena>(heap_);
    } else {
      host_ = std::make_unique<Arena>(device_->staging_memory());
      far_ = std::make_unique<Arena>(device_->memory());
    }
    for (Buffer* buffer : {&a_, &b_}) *buffer = host_->allocate(static_cast<size_t>(most), MemoryCategory::Staging);
    for (Buffer* buffer : {&a_, &b_}) std::memset(buffer->data(), 1, static_cast<size_t>(most));
    if (!far_) return;
    for (Buffer* buffer : {&c_, &d_}) *buffer = far_->allocate(static_cast<size_t>(most), MemoryCategory::Workspace);
    for (Buffer* buffer : {&c_, &d_}) device_->fill(bytes_in(*buffer, most), 0);
    device_->synchronize();
  }
  Call call(CopyKind kind, int64_t bytes) {
    const auto view = [bytes](const Buffer& buffer) { return bytes_in(buffer, bytes); };
    switch (kind) {
      case CopyKind::ToDevice:
        return [this, view] { device_->start_upload(view(a_), view(c_)); };
      case CopyKind::FromDevice:
        return [this, view] { device_->start_download(view(c_), view(a_)); };
      case CopyKind::BothWays:
        return [this, view] {
          device_->start_copy_beside(view(d_), view(b_));
          device_->start_upload(view(a_), view(c_));
          device_->order_after_copies();
        };
      case CopyKind::Within:
        return [this, view] { device_->copy(view(c_), view(d_)); };
      default:
        return [this, bytes] { std::memcpy(b_.data(), a_.data(), static_cast<size_t>(bytes)); };
    }
  }
  /// Seconds of a call, of `calls` one after the other.
  double time(const Call& call, int64_t calls) {
    const Stopwatch watch;
    for (int64_t i = 0; i < calls; ++i) call();
    if (device_ != nullptr) device_->synchronize();
    return watch.elapsed_s() / static_cast<double>(calls);
  }

 private:
  kernels::DiscreteDevice* device_;
  HeapProvider heap_;
  std::unique_ptr<Arena> host_, far_;
  Buffer a_, b_, c_, d_;
};

// ---- Messages -------------------------------------------------------------------------------------------------------

/// Two ways between all ranks, and the memory for messages.
class Wires {
 public:
  Wires(comm::MpiSession& session, const LinkBench& bench) : device_(bench.on.device) {
    comm::GridOptions options;
    options.shape.data = session.size();
    options.timeout_s = bench.timeout_s;
    factory_ = comm::make_mpi_groups(session, options, ledger_);
    std::vector<int> all;
    for (int r = 0; r < session.size(); ++r) all.push_back(r);
    world_ = factory_->make("world", all, comm::RunsOn::Caller);
    if (device_ != nullptr) factory_->refuse_shared_gpus(*device_);
    for (auto& [name, way] : {std::pair{"upward", &upward_}, std::pair{"downward", &downward_}}) {
      *way = device_ == nullptr
                 ? factory_->make(name, all, comm::RunsOn::Caller)
                 : factory_->make_on_device(*bench.on.groups, name, all, comm::GroupFactory::Carries::Collectives);
    }
    arena_ = std::make_unique<Arena>(device_ == nullptr ? factory_->memory() : bench.on.memory());
    const int64_t most = *std::max_element(bench.sizes.begin(), bench.sizes.end());
    for (Buffer* buffer : {&out_, &in_}) {
      *buffer = arena_->allocate(static_cast<size_t>(most), MemoryCategory::Workspace);
      if (device_ != nullptr) {
        device_->fill(bytes_in(*buffer, most), 0);
      } else {
        std::memset(buffer->data(), 0, static_cast<size_t>(most));
      }
    }
  }
  Communicator& world() { return *world_; }
  int rank() const { return world_->rank(); }
  comm::Work send(int to, int64_t bytes) { return way(rank(), to).send(bytes_in(out_, bytes), to, 0); }
  comm::Work recv(int from, int64_t bytes) { return way(from, rank()).recv(bytes_in(in_, bytes), from, 0); }

  /// Seconds of a call on this rank; the first, which brings the two together, does not count.
  double time(const Call& call, int64_t calls) {
    call();
    const Stopwatch watch;
    if (device_ != nullptr) device_->mark(0);
    for (int64_t i = 0; i < calls; ++i) call();
    if (device_ == nullptr) return watch.elapsed_s() / static_cast<double>(calls);
    device_->mark(1);
    device_->synchronize();
    return (device_->marked_s(1) - device_->marked_s(0)) / static_cast<double>(calls);
  }

 private:
  Communicator& way(int from, int to) { return from < to ? *upward_ : *downward_; }

  kernels::DiscreteDevice* device_;
  comm::Ledger ledger_;
  std::unique_ptr<comm::GroupFactory> factory_;
  std::unique_ptr<Communicator> world_, upward_, downward_;
  std::unique_ptr<Arena> arena_;
  Buffer out_, in_;
};

/// Median over the rounds of the seconds of rank `of`, which with `other` calls theirs; on all ranks.
double measure_pair(Wires& w, const LinkBench& bench, int64_t bytes, int of, int other, const Call& mine,
                    const Call& others) {
  std::vector<double> times;
  for (int round = 0; round < bench.rounds; ++round) {
    w.world().barrier();
    double time = 0;
    if (w.rank() == of) time = w.time(mine, calls_of(bytes));
    if (w.rank() == other) w.time(others, calls_of(bytes));
    times.push_back(of_one(w.world(), time));
  }
  return statistics(std::move(times)).median_s;
}

void measure_pair(Wires& w, const LinkBench& bench, int64_t bytes, int low, int high, std::vector<PeerRow>& rows) {
  const int peer = w.rank() == low ? high : low;
  const Call send = [&] { w.send(peer, bytes).wait(); };
  const Call recv = [&] { w.recv(peer, bytes).wait(); };
  const Call both = [&] {
    comm::Work in = w.recv(peer, bytes);
    comm::Work out = w.send(peer, bytes);
    in.wait();  // first: within a host a message moves when its receiver waits
    out.wait();
  };
  const Call ask = [&] { send(), recv(); };
  const Call answer = [&] { recv(), send(); };
  PeerRow up{low, high, bytes}, down{high, low, bytes};
  up.one_way_s = measure_pair(w, bench, bytes, high, low, recv, send);
  down.one_way_s = measure_pair(w, bench, bytes, low, high, recv, send);
  up.both_ways_s = down.both_ways_s = measure_pair(w, bench, bytes, low, high, both, both);
  up.round_trip_s = down.round_trip_s = measure_pair(w, bench, bytes, low, high, ask, answer);
  rows.push_back(up);
  rows.push_back(down);
}

}  // namespace

const char* name_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::ToDevice:
      return "h2d";
    case CopyKind::FromDevice:
      return "d2h";
    case CopyKind::BothWays:
      return "h2d+d2h";
    case CopyKind::Within:
      return "d2d";
    default:
      return "host";
  }
}

double CopyRow::gbps(double seconds) const {
  return seconds > 0 ? (kind == CopyKind::BothWays ? 2 : 1) * static_cast<double>(bytes) / seconds / 1e9 : 0;
}

std::vector<CopyRow> measure_copies(Communicator& world, const LinkBench& bench) {
  Copies copies(bench.on, *std::max_element(bench.sizes.begin(), bench.sizes.end()));
  const std::vector<CopyKind> kinds = bench.on.device == nullptr ? std::vector{CopyKind::Host}
                                                                 : std::vector{CopyKind::ToDevice, CopyKind::FromDevice,
                                                                               CopyKind::BothWays, CopyKind::Within};
  std::vector<CopyRow> rows;
  for (const CopyKind kind : kinds) {
    for (const int64_t bytes : bench.sizes) {
      const Call call = copies.call(kind, bytes);
      // Median of this rank, where rank `who` works, or all.
      const auto measure = [&](int who) {
        std::vector<double> times;
        for (int round = 0; round <= bench.rounds; ++round) {
          world.barrier();
          const double time = who == kAllRanks || who == world.rank() ? copies.time(call, calls_of(bytes)) : 0;
          if (round > 0) times.push_back(time);
        }
        return statistics(std::move(times)).median_s;
      };
      const double together = measure(kAllRanks);
      for (int r = 0; r < world.size(); ++r) {
        CopyRow row{kind, r, bytes};
        row.alone_s = of_one(world, measure(r));
        row.together_s = of_one(world, r == world.rank() ? together : 0);
        rows.push_back(row);
      }
    }
  }
  return rows;
}

std::vector<PeerRow> measure_peers(comm::MpiSession& session, const LinkBench& bench) {
  Wires wires(session, bench);
  std::vector<PeerRow> rows;
  const bool all = session.size() <= kMostRanksOfAllPairs;
  for (int low = 0; low < session.size(); ++low) {
    for (int high = low + 1; high < (all ? session.size() : std::min(low + 2, session.size())); ++high) {
      for (const int64_t bytes : bench.sizes) measure_pair(wires, bench, bytes, low, high, rows);
    }
  }
  wires.world().barrier();
  return rows;
}

}  // namespace triax::bench
