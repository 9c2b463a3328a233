#include "kernels/cuda/cuda_device.h"

#include <fmt/format.h>

#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/types.h"
#include "kernels/cuda_support.h"

namespace triax::kernels {
namespace {

/// Selects the GPU and says what it is; refuses what the kernels cannot run on.
std::string select_gpu(int ordinal) {
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
        fmt::format("--device cuda: GPU {} was asked for, this process sees {} (0 to {})", ordinal, count, count - 1));
  }
  cudaDeviceProp gpu{};
  TRIAX_CUDA(cudaGetDeviceProperties(&gpu, ordinal));
  const std::string gpu_fault = gpu_refusal(gpu.name, gpu.major, gpu.minor);
  if (!gpu_fault.empty()) throw RunTimeError("--device cuda: " + gpu_fault);
  TRIAX_CUDA(cudaSetDevice(ordinal));
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB; driver for CUDA {}, built with {}",
                     gpu.name, gpu.major, gpu.minor, gpu.multiProcessorCount,
                     static_cast<double>(gpu.totalGlobalMem) / (1 << 30), cuda_version_text(driver),
                     cuda_version_text(runtime));
}

}  // namespace

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

void CudaProvider::deallocate(void* data, size_t) noexcept { static_cast<void>(cudaFree(data)); }

CudaDevice::CudaDevice(const CudaDeviceOptions& options)
    : description_(select_gpu(options.ordinal)), workspace_(memory_) {
  TRIAX_CUDA(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking));
  plans_ = std::make_unique<GemmPlans>(workspace_);
}

CudaDevice::~CudaDevice() { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

void CudaDevice::synchronize() { TRIAX_CUDA(cudaStreamSynchronize(stream_.get())); }

namespace {

void copy_rows(const Tensor& from, const Tensor& to, cudaMemcpyKind kind, cudaStream_t stream) {
  const size_t size = size_of(from.dtype());
  const auto width = static_cast<size_t>(from.cols()) * size;
  if (from.numel() == 0) return;
  if (from.contiguous() && to.contiguous()) {
    TRIAX_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.bytes()), kind, stream));
    return;
  }
  // A single row may claim any stride; CUDA wants at least the row's width.
  const auto pitch = [&](const Tensor& t) { return std::max(static_cast<size_t>(t.row_stride()) * size, width); };
  TRIAX_CUDA(cudaMemcpy2DAsync(to.data(), pitch(to), from.data(), pitch(from), width, static_cast<size_t>(from.rows()),
                               kind, stream));
}

}  // namespace

void CudaDevice::upload(Tensor host, Tensor device) {
  need_matrix("upload", "device", device, host.dtype(), host.rows(), host.cols());
  copy_rows(host, device, cudaMemcpyHostToDevice, stream());
  synchronize();
}

void CudaDevice::download(Tensor device, Tensor host) {
  need_matrix("download", "host", host, device.dtype(), device.rows(), device.cols());
  copy_rows(device, host, cudaMemcpyDeviceToHost, stream());
  synchronize();
}

void CudaDevice::upload_step(const StepBlock& block, StepBlock* device) {
  TRIAX_CUDA(cudaMemcpyAsync(device, &block, sizeof block, cudaMemcpyHostToDevice, stream()));
  synchronize();  // the caller's block may be gone when this returns
}

}  // namespace triax::kernels

/// What the loader asks for (kernels/cuda_loader.cpp); the caller owns the device.
extern "C" __attribute__((visibility("default"))) triax::kernels::DiscreteDevice* triax_make_cuda_device(
    const triax::kernels::CudaDeviceOptions* options) {
  return std::make_unique<triax::kernels::CudaDevice>(*options).release();
}
