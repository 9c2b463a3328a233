#include "bench/device_map.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>

#include "bench/topology.h"

namespace triax::bench {
namespace {

constexpr unsigned short kNvidia = 0x10de;
constexpr unsigned short kDisplayClass = 0x03;

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  std::string result(text);
  std::free(text);
  return result;
}

hwloc_obj_t pci_of(hwloc_obj_t object) {
  while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

std::string address_of(hwloc_obj_t pci) {
  if (pci == nullptr) return "";
  const auto& a = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", a.domain, a.bus, a.dev, a.func);
}

struct Found {
  NodeDevice device;
  hwloc_obj_t object;
};

void place(hwloc_topology_t topology, Found& found) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, found.object);
  if (near == nullptr) return;
  found.device.cpus = list_of(near->cpuset);
  if (near->nodeset != nullptr && hwloc_bitmap_weight(near->nodeset) == 1) {
    found.device.numa_node = hwloc_bitmap_first(near->nodeset);
  }
}

std::vector<Found> find_devices(hwloc_topology_t topology) {
  std::vector<Found> all;
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(topology, pci)) != nullptr;) {
    const auto& a = pci->attr->pcidev;
    if (a.vendor_id != kNvidia || a.class_id >> 8 != kDisplayClass) continue;
    all.push_back({{fmt::format("GPU{}", all.size()), address_of(pci), "", -1, true}, pci});
  }
  for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(topology, os)) != nullptr;) {
    const auto type = os->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    all.push_back({{os->name != nullptr ? os->name : "network", address_of(pci_of(os)), "", -1, false}, os});
  }
  for (Found& one : all) place(topology, one);
  return all;
}

/// Bridges from the object up to (not including) `end`; host bridges count apart.
struct Bridges {
  int pci = 0, host = 0;
};
Bridges bridges_below(hwloc_obj_t object, hwloc_obj_t end) {
  Bridges count;
  for (object = object->parent; object != nullptr && object != end; object = object->parent) {
    if (object->type != HWLOC_OBJ_BRIDGE) continue;
    ++(object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? count.host : count.pci);
  }
  return count;
}

std::string relation_of(hwloc_topology_t topology, const Found& a, const Found& b) {
  if (a.object == b.object) return "X";
  const hwloc_obj_t common = hwloc_get_common_ancestor_obj(topology, a.object, b.object);
  if (common->type == HWLOC_OBJ_PCI_DEVICE) return "PIX";
  if (common->type == HWLOC_OBJ_BRIDGE) {
    if (common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) return "PHB";
    const int between = bridges_below(a.object, common).pci + bridges_below(b.object, common).pci;
    return between == 0 ? "PIX" : "PXB";
  }
  return a.device.numa_node >= 0 && a.device.numa_node == b.device.numa_node ? "NODE" : "SYS";
}

std::string mebibytes(hwloc_uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

DeviceMap device_map() {
  const Topology topology = load_topology(Devices::With);
  const std::vector<Found> found = find_devices(topology.get());
  DeviceMap map;
  for (const Found& a : found) {
    map.devices.push_back(a.device);
    map.relation.emplace_back();
    for (const Found& b : found) map.relation.back().push_back(relation_of(topology.get(), a, b));
  }
  return map;
}

std::string DeviceMap::text() const {
  if (devices.empty()) return "";
  std::string all = fmt::format("{:<10}", "");
  for (const NodeDevice& d : devices) all += fmt::format(" {:>8}", d.name);
  all += fmt::format("  {:<14} {:>5}  {}\n", "CPU affinity", "NUMA", "PCI");
  for (size_t i = 0; i < devices.size(); ++i) {
    all += fmt::format("{:<10}", devices[i].name);
    for (const std::string& word : relation[i]) all += fmt::format(" {:>8}", word);
    const int numa = devices[i].numa_node;
    all += fmt::format("  {:<14} {:>5}  {}\n", devices[i].cpus, numa >= 0 ? std::to_string(numa) : "-",
                       devices[i].address.empty() ? "-" : devices[i].address);
  }
  return all +
         "X itself, PIX one PCIe bridge, PXB several, PHB a host bridge, NODE one NUMA node, SYS between NUMA nodes\n";
}

std::string cpu_tree() {
  const Topology topology = load_topology(Devices::With);
  std::string text;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_NUMANODE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology.get(), type, o)) != nullptr;) {
      const char* model = hwloc_obj_get_info_by_name(o, "CPUModel");
      const std::string what =
          type == HWLOC_OBJ_PACKAGE ? fmt::format("package {}{}{}", o->logical_index, model != nullptr ? " " : "",
                                                  model != nullptr ? model : "")
          : type == HWLOC_OBJ_NUMANODE
              ? fmt::format("NUMA node {}, {}", o->logical_index, mebibytes(o->attr->numanode.local_memory))
              : fmt::format("{} {}, {}", hwloc_obj_type_string(type), o->logical_index, mebibytes(o->attr->cache.size));
      text += fmt::format("{}: processing units {}\n", what, list_of(o->cpuset));
    }
  }
  return text;
}

std::string cpu_relation(const std::string& one, const std::string& other) {
  const Topology topology = load_topology(Devices::With);
  hwloc_bitmap_t a = hwloc_bitmap_alloc(), b = hwloc_bitmap_alloc();
  hwloc_bitmap_list_sscanf(a, one.c_str());
  hwloc_bitmap_list_sscanf(b, other.c_str());
  std::string relation = hwloc_bitmap_intersects(a, b) != 0 ? "same" : "SYS";
  hwloc_bitmap_or(a, a, b);
  const std::pair<hwloc_obj_type_t, const char*> levels[]{
      {HWLOC_OBJ_CORE, "core"}, {HWLOC_OBJ_L2CACHE, "L2"}, {HWLOC_OBJ_L3CACHE, "L3"}, {HWLOC_OBJ_NUMANODE, "NUMA"}};
  for (const auto& [type, name] : levels) {
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology.get(), type, o)) != nullptr;) {
      if (relation == "SYS" && hwloc_bitmap_isincluded(a, o->cpuset) != 0) relation = name;
    }
  }
  hwloc_bitmap_free(a);
  hwloc_bitmap_free(b);
  return relation;
}

}  // namespace triax::bench
