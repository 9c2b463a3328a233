// What the device owns of CUDA: streams, events, memory.
#pragma once

#include <functional>
#include <new>
#include <string>

#include "base/handle.h"
#include "base/memory.h"
#include "kernels/cuda/check.h"

namespace triax::kernels {

struct CudaStreamPolicy {
  using type = cudaStream_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type stream) noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
};
using CudaStream = Handle<CudaStreamPolicy>;

struct CudaEventPolicy {
  using type = cudaEvent_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type event) noexcept { static_cast<void>(cudaEventDestroy(event)); }
};
using CudaEvent = Handle<CudaEventPolicy>;

struct CudaGraphPolicy {
  using type = cudaGraph_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type graph) noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
};
using CudaGraph = Handle<CudaGraphPolicy>;

struct CudaGraphExecPolicy {
  using type = cudaGraphExec_t;
  static type null() noexcept { return nullptr; }
  static void destroy(type exec) noexcept { static_cast<void>(cudaGraphExecDestroy(exec)); }
};
using CudaGraphExec = Handle<CudaGraphExecPolicy>;

/// Says how much was asked for and how much the GPU has.
class CudaOutOfMemory final : public std::bad_alloc {
 public:
  explicit CudaOutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Freeing waits for all that runs on the GPU. While an error unwinds, an operation that waits for a peer may be among
/// it, and would keep the error from being told: so the operations are given up first.
class GivesUp {
 public:
  /// Empty: nothing runs there that waits for others.
  void set(std::function<void()> give_up) { give_up_ = std::move(give_up); }
  void before_free() const noexcept;

 private:
  std::function<void()> give_up_;
};

/// Memory of the current GPU by cudaMalloc, 256-byte aligned.
class CudaProvider final : public MemoryProvider {
 public:
  explicit CudaProvider(const GivesUp* gives_up = nullptr) : gives_up_(gives_up) {}
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;

 private:
  const GivesUp* gives_up_;
};

/// Host memory that the GPU reads and writes itself, by cudaMallocHost.
class PinnedProvider final : public MemoryProvider {
 public:
  explicit PinnedProvider(const GivesUp* gives_up = nullptr) : gives_up_(gives_up) {}
  void* allocate(size_t size_bytes) override;
  void deallocate(void* data, size_t size_bytes) noexcept override;

 private:
  const GivesUp* gives_up_;
};

}  // namespace triax::kernels
