// A profiler's stand-in: keeps the ranges that are opened while it records, as "name" and "/" for each end, and how
// often it was started and stopped. Tests read it through the module's symbol.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "tests/emulated/recorded.h"

namespace {

triax::emulated::Recorded& recorded() {
  static triax::emulated::Recorded all;
  return all;
}

}  // namespace

int nvtxRangePushA(const char* name) {
  if (recorded().recording) recorded().ranges.emplace_back(name);
  return recorded().depth++;
}
int nvtxRangePop() {
  if (recorded().recording) recorded().ranges.emplace_back("/");
  return --recorded().depth;
}
cudaError_t cudaProfilerStart() {
  recorded().recording = true;
  ++recorded().starts;
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  recorded().recording = false;
  ++recorded().stops;
  return cudaSuccess;
}

extern "C" __attribute__((visibility("default"))) triax::emulated::Recorded* triax_emulated_recorded() {
  return &recorded();
}
