// Which devices and ranks of a node are near each other: the matrix that nvidia-smi topo -m prints, from hwloc alone.
#pragma once

#include <string>
#include <vector>

namespace triax::bench {

/// A GPU or a network adapter of this node.
struct NodeDevice {
  std::string name;     ///< "GPU0", "mlx5_0", "eth0"
  std::string address;  ///< PCI, "0000:17:00.0"; empty: not on PCI
  std::string cpus;     ///< processing units next to it, "0-31"
  int numa_node = -1;   ///< -1: not known
  bool gpu = false;
};

/// Everything between two devices, from near to far: "PIX" one PCIe bridge, "PXB" several bridges, "PHB" a host bridge
/// of the CPU, "NODE" host bridges of one NUMA node, "SYS" the link between NUMA nodes; "X" itself. NVLink does not
/// show here: nvidia-smi topo -m or NCCL_DEBUG=INFO tell.
struct DeviceMap {
  std::vector<NodeDevice> devices;
  std::vector<std::vector<std::string>> relation;  ///< [device][device]
  std::string text() const;                        ///< the matrix and its legend; empty without devices
};

/// RunTimeError where hwloc cannot read the machine.
DeviceMap device_map();

/// Caches and cores of this node, one line each level: "package 0: AMD EPYC", "  L3 32 MiB: cores 0-1".
std::string cpu_tree();

/// How near two sets of processing units ("0-3,8") are: "same" (one unit in common), "core", "L2", "L3", "NUMA",
/// "SYS".
std::string cpu_relation(const std::string& one, const std::string& other);

}  // namespace triax::bench
