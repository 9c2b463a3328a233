// This machine as hwloc sees it.
#pragma once

#include <hwloc.h>

#include "base/handle.h"

namespace triax::bench {

struct TopologyPolicy {
  using type = hwloc_topology_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type topology) noexcept { hwloc_topology_destroy(topology); }
};
using Topology = Handle<TopologyPolicy>;

/// With: also devices on PCI.
enum class Devices { Without, With };

/// Throws RunTimeError.
Topology load_topology(Devices devices = Devices::Without);

}  // namespace triax::bench
