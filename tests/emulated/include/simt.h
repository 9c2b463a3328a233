// Runs a CUDA kernel on the host: every CUDA thread is a fiber, a block's fibers take turns on one operating-system
// thread, blocks follow each other. What it checks, with the kernel's name and the place in the source:
//   __syncthreads that not all threads reach, or at different places; warp operations whose lanes do not all arrive, or
//   arrive at different places; shared memory read before it is written (it starts as NaN); results that depend on the
//   order of warps and lanes (it is random, from TRIAX_SIMT_SEED) or on when an asynchronous copy happens (at its issue
//   or at the wait, by chance).
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

namespace triax::simt {

/// A fault of the kernel: what, which threads, where.
class KernelFault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// What runs so far: launches and turns of fibers, for tests of the emulation.
struct Counters {
  uint64_t launches = 0, blocks = 0, barriers = 0, turns = 0;
};
Counters& counters();

/// Of the GPU that is emulated: TRIAX_EMULATED_COMPUTE_CAPABILITY, "9.0" is 90; 86 when it is not set.
unsigned emulated_capability();

/// Runs `thread` once for each thread of each block.
void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);

template <class Kernel, class... Args>
void launch(const char* name, dim3 grid, dim3 block, size_t shared_bytes, Kernel kernel, Args... args) {
  run_grid(name, grid, block, shared_bytes, [&] { kernel(args...); });
}

/// Gives a launch to the emulated GPU.
void submit(cudaStream_t stream, std::function<void()> kernel);

/// As launch, when the stream comes to it; a fault is thrown by whatever waits for the stream.
template <class Kernel, class... Args>
void queue(cudaStream_t stream, const char* name, dim3 grid, dim3 block, size_t shared_bytes, Kernel kernel,
           Args... args) {
  submit(stream, [=] { launch(name, grid, block, shared_bytes, kernel, args...); });
}

// ---- For the code of kernels: the running thread ----------------------------------------------------------------
const dim3& thread_index();
const dim3& block_index();
const dim3& block_size();
const dim3& grid_size();
unsigned char* dynamic_shared();
unsigned lane();

void block_barrier(const char* file, int line);

inline constexpr size_t kSlotBytes = 64;
/// Gives this lane's bytes to the warp and waits for all lanes of the mask; then what every lane gave, kSlotBytes
/// apart, to be read before the next warp operation.
const unsigned char* share(unsigned mask, const void* value, size_t bytes, const char* file, int line);

/// Value of another lane.
template <class T>
T exchange(unsigned mask, T value, unsigned from, const char* file, int line) {
  static_assert(sizeof(T) <= kSlotBytes);
  const unsigned char* const slots = share(mask, &value, sizeof value, file, line);
  if ((mask >> from & 1) == 0) throw KernelFault("shuffle from a lane outside the mask");
  T got;
  std::memcpy(&got, slots + from * kSlotBytes, sizeof got);
  return got;
}

/// Asynchronous copies of the running thread.
void copy_later(void* to, const void* from, size_t bytes);
void close_copies();
void finish_copies(size_t groups_left);

}  // namespace triax::simt
