// What joins the GPUs of a node, as nvidia-smi tells it: NVLink or PCIe, how fast they could be, and who is near whom.
#pragma once

#include <string>

#include "bench/verdict.h"
#include "kernels/discrete_device.h"

namespace triax::bench {

/// Sum of the lines "Link 0: 26.562 GB/s" of `nvidia-smi nvlink -s -i GPU`: bytes/s of one GPU, one direction; 0: none.
double nvlink_bytes_per_s(const std::string& text);
/// Of `nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv,noheader,nounits`: "5, 16"; one
/// direction, after the line code; 0: not understood.
double pcie_bytes_per_s(const std::string& text);
/// "GPU-00112233-4455-6677-8899-aabbccddeeff" of 32 hexadecimal digits: what nvidia-smi -i takes.
std::string uuid_text(const std::string& digits);

/// The link of this GPU to its peers: NVLink where there is some, else PCIe. per_s 0 where nvidia-smi does not tell.
Peak gpu_link_peak(const kernels::DiscreteDevice& device);
/// PCIe, by which it reaches its host.
Peak gpu_host_peak(const kernels::DiscreteDevice& device);
/// What `nvidia-smi topo -m` prints; empty where it prints nothing or fails.
std::string gpu_topology();

}  // namespace triax::bench
