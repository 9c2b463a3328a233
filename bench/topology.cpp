#include "bench/topology.h"

#include "base/error.h"

namespace triax::bench {

Topology load_topology(Devices devices) {
  Topology topology;
  if (hwloc_topology_init(topology.out()) != 0 ||
      (devices == Devices::With &&
       hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0) ||
      hwloc_topology_load(topology.get()) != 0) {
    throw RunTimeError("hwloc cannot read this machine's topology");
  }
  return topology;
}

}  // namespace triax::bench
