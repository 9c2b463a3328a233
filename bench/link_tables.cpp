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
  comm::GridOptions grid_of(comm::Axis axis, int size) const {
    comm::GridOptions options;
    options.fake_nodes = how.fake_nodes;
    (axis == comm::Axis::Tensor     ? options.shape.tensor
     : axis == comm::Axis::Pipeline ? options.shape.pipeline
                                    : options.shape.data) = size;
    if (axis != comm::Axis::Data) options.shape.data = session.size() / size;
    return options;
  }
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
void measure_groups_of(const Measuring& m, int size, const std::vector<DType>& dtypes,
                       std::vector<CollectivePoint>& out) {
  comm::ProcessGrid grid(m.session, m.grid_of(comm::Axis::Tensor, size), m.how.on.groups);
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

/// The partner of each rank, -1 for none: 2i and 2i + 1, or the two ranks at every other border between nodes.
std::vector<int> partners(const std::vector<int>& nodes, bool across) {
  std::vector<int> all(nodes.size(), -1);
  int borders = 0;
  for (size_t r = 0; r + 1 < nodes.size(); ++r) {
    const bool pair = across ? nodes[r] != nodes[r + 1] && borders++ % 2 == 0 : r % 2 == 0;
    if (!pair) continue;
    all[r] = static_cast<int>(r) + 1;
    all[r + 1] = static_cast<int>(r);
  }
  return all;
}

/// Half a round trip between neighbouring ranks of a pipeline, one message at a time; `across`: on different nodes.
void measure_messages(const Measuring& m, bool across, std::vector<CollectivePoint>& out) {
  const int world = m.session.size();
  comm::ProcessGrid grid(m.session, m.grid_of(comm::Axis::Pipeline, world), m.how.on.groups);
  Arena arena(m.memory(grid));
  comm::Communicator& group = grid.pipeline();
  const std::vector<int> partner = partners(grid.nodes(), across);
  const int peer = partner[static_cast<size_t>(group.rank())];
  // Times are means over all ranks; those without a partner do nothing.
  const auto idle = static_cast<double>(std::count(partner.begin(), partner.end(), -1));
  const double talking = (world - idle) / world;
  const int nodes = across || grid.nodes()[0] != grid.nodes()[1] ? 2 : 1;
  std::vector<Buffer> buffers;
  std::vector<std::function<void()>> calls;
  for (const int64_t bytes : sizes(m.how.most_bytes)) {
    buffers.push_back(arena.allocate(static_cast<size_t>(bytes), MemoryCategory::Workspace));
    const Tensor t = buffers.back().view(DType::UInt8, {bytes});
    calls.push_back([&group, t, peer] {
      if (peer < 0) return;
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
                   undisturbed_s(times[i]) / 2 / talking, DType::Float32});
  }
}

/// What the communication thread adds to a small all-reduce.
Constant measure_queue(const Measuring& m, const std::vector<CollectivePoint>& points) {
  const int world = m.session.size();
  comm::ProcessGrid grid(m.session, m.grid_of(comm::Axis::Data, world));
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
  measure_messages(m, false, tables.collectives);
  const int nearest = tables.collectives.front().nodes;
  const comm::ProcessGrid grid(session, m.grid_of(comm::Axis::Data, session.size()));
  const bool several = std::set<int>(grid.nodes().begin(), grid.nodes().end()).size() > 1;
  if (nearest == 1 && several) measure_messages(m, true, tables.collectives);
  for (int size = session.size(); size >= 2; --size) {
    if (session.size() % size == 0) measure_groups_of(m, size, dtypes, tables.collectives);
  }
  if (how.on.device == nullptr) tables.queue_s = measure_queue(m, tables.collectives);
  tables.links.push_back(link_of(tables.collectives, nearest, how));
  if (nearest == 1 && several) tables.links.push_back(link_of(tables.collectives, 2, how));
  return tables;
}

}  // namespace triax::bench
