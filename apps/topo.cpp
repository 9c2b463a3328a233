// `triax topo`: the grid of ranks, its groups, the nodes, and the cores that each rank may use.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include <algorithm>
#include <cstring>

#include "apps/bound_cpus.h"
#include "apps/commands.h"
#include "apps/session.h"
#include "base/units.h"
#include "bench/topology.h"
#include "comm/group_nodes.h"
#include "comm/process_grid.h"
#include "io/options/options.h"
#include "io/options/validate.h"

namespace triax::apps {
namespace {

// What one rank tells rank 0; a plain struct, sent as bytes.
struct RankFacts {
  char host[64];
  char cpus[64];      ///< processing units it may run on, "0-3,8"
  char device[16];    ///< "cpu", "cuda:3"
  char machine[160];  ///< of its node
};

std::string binding(hwloc_topology_t topology) {
  char text[64] = {};
  hwloc_bitmap_list_snprintf(text, sizeof text, bound_cpus(topology).get());
  return text;
}

std::string machine(hwloc_topology_t topology) {
  const auto count = [&](hwloc_obj_type_t type) { return std::max(hwloc_get_nbobjs_by_type(topology, type), 0); };
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model = package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  const double gib = static_cast<double>(hwloc_get_root_obj(topology)->total_memory) / kGiB;
  return fmt::format("{} package(s), {} NUMA node(s), {} cores, {} processing units, {:.1f} GiB{}{}",
                     count(HWLOC_OBJ_PACKAGE), count(HWLOC_OBJ_NUMANODE), count(HWLOC_OBJ_CORE), count(HWLOC_OBJ_PU),
                     gib, model != nullptr ? ", " : "", model != nullptr ? model : "");
}

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::strncpy(to, from.c_str(), N - 1);
}

std::vector<RankFacts> gather_facts(comm::ProcessGrid& grid, const comm::MpiSession& session,
                                    const std::string& device) {
  const bench::Topology topology = bench::load_topology();
  RankFacts mine = {};
  copy_text(mine.host, session.host());
  copy_text(mine.device, device == "cpu" ? device : fmt::format("{}:{}", device, session.local_rank()));
  copy_text(mine.cpus, binding(topology.get()));
  copy_text(mine.machine, machine(topology.get()));
  const auto ranks = static_cast<int64_t>(grid.shape().world());
  std::vector<RankFacts> all(static_cast<size_t>(ranks));
  const auto bytes = static_cast<int64_t>(sizeof mine);
  grid.world()
      .all_gather(Tensor(&mine, DType::UInt8, {bytes}), Tensor(all.data(), DType::UInt8, {ranks * bytes}))
      .wait();
  return all;
}

constexpr comm::Axis kAxes[] = {comm::Axis::Tensor, comm::Axis::Data, comm::Axis::Pipeline};

void print_groups(const comm::GridShape& shape, comm::Axis axis, const std::vector<int>& nodes) {
  const std::vector<comm::GroupNodes> groups = comm::group_nodes(shape, axis, nodes);
  fmt::print("  {}  ", comm::name_of(axis));
  constexpr size_t kShown = 16;
  for (size_t i = 0; i < std::min(kShown, groups.size()); ++i) {
    fmt::print(" {{{}}}", fmt::join(groups[i].ranks, ","));
  }
  fmt::print("{}  {}\n", groups.size() > kShown ? fmt::format(" ... ({} groups)", groups.size()) : "",
             comm::describe_crossing(groups));
}

void print_topology(comm::ProcessGrid& grid, const std::vector<RankFacts>& facts) {
  const comm::GridShape& shape = grid.shape();
  const std::vector<int>& nodes = grid.nodes();
  const int count = 1 + *std::max_element(nodes.begin(), nodes.end());
  fmt::print("{} ranks on {} node(s): tensor {} x pipeline {} x data {}, order {}\n", shape.world(), count,
             shape.tensor, shape.pipeline, shape.data,
             shape.order == comm::RankOrder::TpCpDpPp ? "tp-cp-dp-pp" : "tp-cp-pp-dp");
  for (int node = 0; node < count; ++node) {
    const auto first = std::find(nodes.begin(), nodes.end(), node);
    if (first == nodes.end()) continue;
    const RankFacts& one = facts[static_cast<size_t>(first - nodes.begin())];
    fmt::print("node {}: {}: {}\n", node, one.host, one.machine);
  }
  fmt::print("\n{:>6} {:>5} {:>4} {:>4} {:>4}  {:<16} {:<12} {:<8} {}\n", "rank", "node", "tp", "pp", "dp", "host",
             "cpus", "device", "groups of the rank");
  for (int rank = 0; rank < shape.world(); ++rank) {
    const comm::GridCoord coord = comm::coord_of(shape, rank);
    const RankFacts& one = facts[static_cast<size_t>(rank)];
    fmt::print("{:>6} {:>5} {:>4} {:>4} {:>4}  {:<16} {:<12} {:<8}", rank, nodes[static_cast<size_t>(rank)],
               coord.tensor, coord.pipeline, coord.data, one.host, one.cpus, one.device);
    for (const comm::Axis axis : kAxes) {
      fmt::print(" {} {}", comm::name_of(axis), comm::ranks_text(comm::group_of(shape, rank, axis)));
    }
    fmt::print("\n");
  }
  fmt::print("\ngroups\n");
  for (const comm::Axis axis : kAxes) print_groups(shape, axis, nodes);
}

int run(const std::vector<std::string>& args, comm::MpiSession& session) {
  const io::ParsedOptions parsed = io::parse_options(args);
  if (parsed.help) {
    if (session.rank() == 0) {
      fmt::print(
          "usage: mpiexec -n N triax topo [--tensor-model-parallel-size T] [--pipeline-model-parallel-size P] "
          "[--use-tp-pp-dp-mapping] [--fake-nodes M]\n");
    }
    return 0;
  }
  comm::GridOptions options;
  options.shape = parsed.options.parallel.grid;
  options.shape.data = io::data_parallel_size(options.shape, session.size());
  options.timeout_s = 60 * parsed.options.control.distributed_timeout_min;
  options.shared_memory = parsed.options.control.shared_memory;
  options.fake_nodes = parsed.options.control.fake_nodes;
  comm::ProcessGrid grid(session, options);
  const std::vector<RankFacts> facts = gather_facts(grid, session, parsed.options.control.device);
  if (session.rank() == 0) print_topology(grid, facts);
  return 0;
}

}  // namespace

int topo_command(const std::vector<std::string>& args) {
  return run_with_session([&args](comm::MpiSession& session, RankName&) { return run(args, session); });
}

}  // namespace triax::apps
