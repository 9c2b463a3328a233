// The part of NCCL's stand-in that came with NCCL 2.19: memory that communicators are told of.
#include <algorithm>

#include "gpu.h"
#include "nccl_state.h"

namespace triax::emulated {

std::string& last_error() {
  static std::string words;
  return words;
}
ncclResult_t fail(ncclResult_t status, const std::string& words) { return last_error() = words, status; }
ncclResult_t not_on_device() { return fail(ncclInvalidArgument, "an address is not of device memory"); }

NcclCounts& nccl_counts() {
  static NcclCounts all;
  return all;
}

bool is_registered(const EmulatedNccl& comm, const void* data, size_t bytes) {
  const auto* const p = static_cast<const char*>(data);
  return std::any_of(comm.registered.begin(), comm.registered.end(), [&](const auto& range) {
    const auto* const begin = static_cast<const char*>(range.first);
    return p >= begin && p + bytes <= begin + range.second;
  });
}

}  // namespace triax::emulated

using triax::emulated::fail;
using triax::emulated::nccl_counts;

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  constexpr size_t kPage = size_t{512} << 20;  // what the library gives at least, on GPUs behind an NVLink switch
  return cudaMalloc(data, (bytes + kPage - 1) / kPage * kPage) == cudaSuccess
             ? ncclSuccess
             : fail(ncclUnhandledCudaError, "out of memory");
}
ncclResult_t ncclMemFree(void* data) {
  return cudaFree(data) == cudaSuccess ? ncclSuccess : fail(ncclInvalidArgument, "not from ncclMemAlloc");
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  if (!triax::emulated::on_device(data, bytes)) return triax::emulated::not_on_device();
  comm->registered[data] = bytes;
  ++nccl_counts().registered;
  *handle = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  if (comm->in_flight != 0) return fail(ncclInvalidUsage, "operations are in flight");
  if (comm->registered.erase(handle) == 0) return fail(ncclInvalidArgument, "not registered");
  --nccl_counts().registered;
  return ncclSuccess;
}
extern "C" __attribute__((visibility("default"))) triax::emulated::NcclCounts* triax_emulated_nccl() {
  return &nccl_counts();
}
