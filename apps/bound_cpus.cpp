#include "apps/bound_cpus.h"

namespace triax::apps {

Handle<BitmapPolicy> bound_cpus(hwloc_topology_t topology) {
  Handle<BitmapPolicy> cpus(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, cpus.get(), HWLOC_CPUBIND_PROCESS) != 0 || hwloc_bitmap_iszero(cpus.get()) != 0) {
    hwloc_bitmap_copy(cpus.get(), hwloc_topology_get_topology_cpuset(topology));
  }
  return cpus;
}

}  // namespace triax::apps
