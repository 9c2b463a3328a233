#include "kernels/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "base/clock.h"
#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/graph_device.h"
#include "kernels/cuda/types.h"
#include "kernels/cuda_support.h"

namespace triax::kernels {

/// What the driver reads from the environment when it starts, which the first question for a GPU makes it do.
void CudaDevice::prepare_driver() {
  // A kernel that is loaded at its first launch may wait for all that runs, a receive posted ahead among it.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // Streams share queues to the GPU, 8 by default, and what a queue holds may wait for what came before: a kernel of
  // ours, behind a receive that waits for a peer who waits for it. 32 is the most there are.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/// Selects the GPU and says what it is; refuses what the kernels cannot run on.
void CudaDevice::select_gpu(int ordinal) {
  int driver = 0, runtime = 0, count = 0;
  TRIAX_CUDA(cudaDriverGetVersion(&driver));
  TRIAX_CUDA(cudaRuntimeGetVersion(&runtime));
  const std::string refusal = driver_refusal(driver, runtime);
  if (!refusal.empty()) throw RunTimeError("--device cuda: " + refusal);
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw RunTimeError(
        "--device cuda: the driver answers, but this process sees no GPU: check CUDA_VISIBLE_DEVICES and "
        "the GPUs that the job was given (Slurm: --gpus-per-node), or use --device cpu");
  }
  TRIAX_CUDA(status);
  if (ordinal < 0 || ordinal >= count) {
    throw RunTimeError(
        fmt::format("--device cuda: GPU {} was asked for, this process sees {} (0 to {}): start as many ranks per node "
                    "as there are "
                    "GPUs, or let each rank see one alone",
                    ordinal, count, count - 1));
  }
  cudaDeviceProp gpu{};
  TRIAX_CUDA(cudaGetDeviceProperties(&gpu, ordinal));
  const std::string gpu_fault = gpu_refusal(gpu.name, gpu.major, gpu.minor);
  if (!gpu_fault.empty()) throw RunTimeError("--device cuda: " + gpu_fault);
  TRIAX_CUDA(cudaSetDevice(ordinal));
  ordinal_ = ordinal;
  gpu_name_ = gpu.name;
  capability_ = gpu.major * 10 + gpu.minor;
  description_ = fmt::format(
      "{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB; driver for CUDA {}, built with {}", gpu.name,
      gpu.major, gpu.minor, gpu.multiProcessorCount, static_cast<double>(gpu.totalGlobalMem) / (1 << 30),
      cuda_version_text(driver), cuda_version_text(runtime));
  facts_ = {gpu.name, 0, 0, gpu.multiProcessorCount, count};
  for (const char byte : gpu.uuid.bytes) uuid_ += fmt::format("{:02x}", static_cast<unsigned char>(byte));
}

GpuFacts CudaDevice::facts() const {
  GpuFacts facts = facts_;
  size_t free = 0, total = 0;
  TRIAX_CUDA(cudaMemGetInfo(&free, &total));
  facts.free_bytes = static_cast<int64_t>(free);
  facts.memory_bytes = static_cast<int64_t>(total);
  return facts;
}

/// The GPU of a rank: of several, that of its number on the host; a single one is everybody's.
int CudaDevice::ordinal_of(const CudaDeviceOptions& options) {
  if (options.local_rank < 0) return options.ordinal;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  return status == cudaSuccess && count == 1 ? 0 : options.local_rank;
}

void* CudaProvider::allocate(size_t size_bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(size_bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // the error is handled here and must not show at the next launch
    size_t free = 0, total = 0;
    TRIAX_CUDA(cudaMemGetInfo(&free, &total));
    throw CudaOutOfMemory(fmt::format("out of GPU memory: {:.1f} MiB asked for, {:.1f} of {:.1f} MiB are free",
                                      static_cast<double>(size_bytes) / (1 << 20),
                                      static_cast<double>(free) / (1 << 20), static_cast<double>(total) / (1 << 20)));
  }
  TRIAX_CUDA(status);
  return data;
}

void GivesUp::before_free() const noexcept {
  if (give_up_ && std::uncaught_exceptions() > 0) give_up_();
}

void CudaProvider::deallocate(void* data, size_t) noexcept {
  if (gives_up_ != nullptr) gives_up_->before_free();
  static_cast<void>(cudaFree(data));
}

void* PinnedProvider::allocate(size_t size_bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, std::max<size_t>(size_bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw CudaOutOfMemory(
        fmt::format("out of pinned host memory: {:.1f} MiB asked for", static_cast<double>(size_bytes) / (1 << 20)));
  }
  TRIAX_CUDA(status);
  return data;
}

void PinnedProvider::deallocate(void* data, size_t) noexcept {
  if (gives_up_ != nullptr) gives_up_->before_free();
  static_cast<void>(cudaFreeHost(data));
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options) : workspace_(memory_), bounce_arena_(pinned_) {
  prepare_driver();
  select_gpu(ordinal_of(options));
  TRIAX_CUDA(cudaStreamCreateWithPriority(stream_.out(), cudaStreamNonBlocking, 0));
  TRIAX_CUDA(cudaEventCreateWithFlags(origin_.out(), cudaEventDefault));
  TRIAX_CUDA(cudaEventRecord(origin_.get(), stream()));
  origin_s_ = now_s();
  plans_ = std::make_unique<GemmPlans>(
      workspace_, GemmPlans::Settings{options.gemm_search, gpu_name_, options.log, [this] { synchronize(); }});
  compression_ = std::make_unique<CudaCompression>(*this, workspace_);
  hopper_kernels_ = capability_ / 10 == 9 && hopper_kernels_answer(stream());
  if (hopper_kernels_) description_ += "; attention by wgmma";
}

int64_t CudaDevice::timed_products() const { return plans_->timed(); }

Compression* CudaDevice::compression() { return compression_.get(); }

cudaStream_t CudaCompression::queue() const { return device_->stream(); }

void CudaDevice::give_recorded() {
  if (graphs_) graphs_->flush();
}

LaunchRecorder* CudaDevice::recorder() {
  if (!graphs_) graphs_ = std::make_unique<GraphDevice>(*this);
  return graphs_.get();
}

void CudaDevice::count(const SpecialCalls& more) {
  special_calls_.hopper_attention += more.hopper_attention;
  special_calls_.fp8_products += more.fp8_products;
  special_calls_.gemm_epilogues += more.gemm_epilogues;
}

CudaDevice::~CudaDevice() {
  // While an error unwinds, what the GPU waits for may never come; the job is about to be aborted.
  if (std::uncaught_exceptions() == 0) static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

}  // namespace triax::kernels

/// What the loader asks for (kernels/cuda_loader.cpp); the caller owns the device.
extern "C" __attribute__((visibility("default"))) triax::kernels::DiscreteDevice* triax_make_cuda_device(
    const triax::kernels::CudaDeviceOptions* options) {
  return std::make_unique<triax::kernels::CudaDevice>(*options).release();
}
