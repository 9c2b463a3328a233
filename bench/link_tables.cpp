#include "bench/link_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/clock.h"
#include "bench/exchange.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;

constexpr int64_t kLeastBytes = 256;
constexpr int kFactor = 4;

comm::GridOptions grid_of(comm::Axis axis, int size, int world) {
  comm::GridOptions options;
  (axis == comm::Axis::Tensor     ? options.shape.tensor
   : axis == comm::Axis::Pipeline ? options.shape.pipeline
                                  : options.shape.data) = size;
  if (axis != comm::Axis::Data) options.shape.data = world / size;
  return options;
}

int nodes_of_group(const comm::ProcessGrid& grid, comm::Axis axis) {
  std::set<int> nodes;
  for (const int rank : comm::group_of(grid.shape(), grid.world_rank(), axis)) {
    nodes.insert(grid.nodes()[static_cast<size_t>(rank)]);
  }
  return static_cast<int>(nodes.size());
}

struct Measuring {
  comm::MpiSession& session;
  const LinkMeasure& how;
  const Budget& budget;
  MemoryProvider& memory(comm::ProcessGrid& grid) const {
    return how.on.device != nullptr ? how.on.memory() : grid.memory();
  }
};

std::vector<int64_t> sizes(int64_t most) {
  std::vector<int64_t> all;
  for (int64_t bytes = kLeastBytes; bytes <= most; bytes *= kFactor) all.push_back(bytes);
  return all;
}

/// All groups of `size` consecutive ranks at once.
void measure_groups(const Measuring& m, int size, const std::vector<DType>& dtypes, std::vector<CollectivePoint>& out) {
  comm::ProcessGrid grid(m.session, grid_of(comm::Axis::Tensor, size, m.session.size()), m.how.on.groups);
  Arena arena(m.memory(grid));
  const int nodes = nodes_of_group(grid, comm::Axis::Tensor);
  for (const DType dtype : dtypes) {
    std::vector<Operation> operations{Operation::AllReduce, Operation::AllGather, Operation::ReduceScatter};
    if (dtype == DType::Float32) {
      operations.insert(operations.end(), {Operation::Broadcast, Operation::Reduce, Operation::AllToAll});
    }
    for (const Operation operation : operations) {
      if (!m.budget.leaves(0.5)) return;
      std::vector<std::unique_ptr<Exchange>> exchanges;
      std::vector<std::function<void()>> calls;
      for (const int64_t bytes : sizes(m.how.most_bytes)) {
        exchanges.push_back(
            std::make_unique<Exchange>(grid.tensor(), arena, operation, ReduceOp::Sum, dtype, bytes, m.how.on.device));
        const Place place = has_in_place(operation) && operation != Operation::AllGather ? Place::In : Place::OutOf;
        calls.push_back([one = exchanges.back().get(), place] { one->call(place); });
      }
      const std::vector<Statistics> times = time_cases(calls, m.how.timing, &grid.world());
      for (size_t i = 0; i < times.size(); ++i) {
        out.push_back({operation, size, nodes, exchanges[i]->size_bytes(), undisturbed_s(times[i]), dtype});
      }
    }
  }
}

/// Half a round trip between neighbouring ranks of a pipeline, one message at a time; ranks 2i and 2i+1.
void measure_messages(const Measuring& m, std::vector<CollectivePoint>& out) {
  const int world = m.session.size();
  comm::ProcessGrid grid(m.session, grid_of(comm::Axis::Pipeline, world, world), m.how.on.groups);
  Arena arena(m.memory(grid));
  comm::Communicator& group = grid.pipeline();
  const int peer = group.rank() ^ 1;
  const bool talks = peer < world;
  const int nodes = grid.nodes()[0] == grid.nodes()[1] ? 1 : 2;
  std::vector<Buffer> buffers;
  std::vector<std::function<void()>> calls;
  for (const int64_t bytes : sizes(m.how.most_bytes)) {
    buffers.push_back(arena.allocate(static_cast<size_t>(bytes), MemoryCategory::Workspace));
    const Tensor t = buffers.back().view(DType::UInt8, {bytes});
    calls.push_back([&group, t, peer, talks] {
      if (!talks) return;
      if (group.rank() < peer) {
        group.send(t, peer, 0).wait();
        group.recv(t, peer, 0).wait();
      } else {
        group.recv(t, peer, 0).wait();
        group.send(t, peer, 0).wait();
      }
    });
  }
  const std::vector<Statistics> times = time_cases(calls, m.how.timing, &grid.world());
  for (size_t i = 0; i < times.size(); ++i) {
    out.push_back({Operation::Send, 2, nodes, static_cast<int64_t>(buffers[i].size_bytes()),
                   undisturbed_s(times[i]) / 2, DType::Float32});
  }
}

/// What the communication thread adds to a small all-reduce.
Constant measure_queue(const Measuring& m, const std::vector<CollectivePoint>& points) {
  const int world = m.session.size();
  comm::ProcessGrid grid(m.session, grid_of(comm::Axis::Data, world, world));
  Arena arena(grid.memory());
  Exchange one(grid.data(), arena, Operation::AllReduce, ReduceOp::Sum, DType::Float32, kLeastBytes);
  const double queued = time_cases({[&one] { one.call(Place::In); }}, m.how.timing, &grid.world())[0].median_s;
  double direct = queued;
  for (const CollectivePoint& p : points) {
    if (p.operation == Operation::AllReduce && p.ranks == world && p.dtype == DType::Float32 &&
        p.bytes <= kLeastBytes) {
      direct = p.time_s;
    }
  }
  return {std::max(0.0, queued - direct), Origin::Measured, "all_reduce of 256 bytes: dp group less tp group"};
}

Link link_of(const std::vector<CollectivePoint>& points, int nodes, const LinkMeasure& how) {
  const Constant nothing{0, Origin::Measured, "every rank has its own"};
  Link link{nodes == 1 ? how.name : "network", nodes == 1 ? how.ranks_of_node : 0, {}, {}, nothing, nothing};
  for (const CollectivePoint& p : points) {
    if (p.operation != Operation::Send || p.nodes != nodes) continue;
    if (link.latency_s.value == 0) link.latency_s = {p.time_s, Origin::Measured, "bench all: message of 256 bytes"};
    link.bytes_per_s = {static_cast<double>(p.bytes) / p.time_s, Origin::Measured,
                        fmt::format("bench all: message of {} bytes", p.bytes)};
  }
  return link;
}

}  // namespace

LinkTables measure_links(comm::MpiSession& session, const std::vector<DType>& dtypes, const LinkMeasure& how,
                         const Budget& budget) {
  const Measuring m{session, how, budget};
  LinkTables tables;
  measure_messages(m, tables.collectives);
  for (int size = session.size(); size >= 2; --size) {
    if (session.size() % size == 0) measure_groups(m, size, dtypes, tables.collectives);
  }
  if (how.on.device == nullptr) tables.queue_s = measure_queue(m, tables.collectives);
  const int nodes = tables.collectives.front().nodes;
  tables.links.push_back(link_of(tables.collectives, nodes, how));
  return tables;
}

}  // namespace triax::bench
