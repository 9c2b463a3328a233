#include "comm/device_groups.h"

namespace triax::comm {

std::vector<Lane> lanes_of(int ranks) {
  std::vector<Lane> lanes;
  const int pairs = ranks == 2 ? 1 : ranks;
  for (int i = 0; i < pairs; ++i) {
    const int next = (i + 1) % ranks;
    for (const int parity : {0, 1}) {
      lanes.push_back({i, next, parity});
      lanes.push_back({next, i, parity});
    }
  }
  return lanes;
}

std::unique_ptr<DeviceGroups> make_device_groups(kernels::DiscreteDevice& device, kernels::CudaModule module) {
  using Make = DeviceGroups* (*)(kernels::DiscreteDevice*);
  const auto make = reinterpret_cast<Make>(kernels::cuda_module_symbol(module, "triax_make_device_groups"));
  if (make == nullptr) {
    throw RunTimeError(
        "--device cuda: this build's CUDA module was made without NCCL, so that only one rank can run: install NCCL "
        "and build again");
  }
  return std::unique_ptr<DeviceGroups>(make(&device));
}

}  // namespace triax::comm
