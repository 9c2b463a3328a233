// The processing units that this process may use, by hwloc.
#pragma once

#include <hwloc.h>

#include "base/handle.h"

namespace triax::apps {

struct BitmapPolicy {
  using type = hwloc_bitmap_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type bitmap) noexcept { hwloc_bitmap_free(bitmap); }
};

/// Those it is bound to, all where it is not bound.
Handle<BitmapPolicy> bound_cpus(hwloc_topology_t topology);

}  // namespace triax::apps
