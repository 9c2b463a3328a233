// Runs a CUDA kernel on the host: every CUDA thread is a fiber, a block's fibers take turns on one operating-system
// thread, blocks follow each other. What it checks, with the kernel's name and the place in the source:
//   __syncthreads that not all threads reach, or at different places; warp operations whose lanes do not all arrive, or
//   arrive at different places; shared memory read before it is written (it starts as NaN) or written behind its end;
//   results that depend on the order of warps and lanes (it is random, from TRIAX_SIMT_SEED) or on when an asynchronous
//   copy happens (at its issue or at the wait, by chance); global accesses at addresses that are not multiples of their
//   size, or outside of device memory.
#pragma once

#include <cuda_runtime.h>
#include <simt_apart.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <vector>

namespace triax::simt {

/// A fault of the kernel: what, which threads, where.
class KernelFault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Whether accesses to global memory are counted (../traffic.h).
inline bool counting_traffic = false;
enum class AccessKind { Load, Store };
/// An access of the running thread; KernelFault when the address is not a multiple of its size.
void note_access(AccessKind kind, const void* p, size_t bytes, const std::source_location& site);
[[noreturn]] void fail_misaligned(size_t bytes, const std::source_location& site);

/// A live allocation of device memory.
struct GlobalRange {
  uintptr_t begin = 0, end = 0;
};
/// Finds the one that holds all of the bytes (../memory.cpp); null: kernels may access what they like.
inline bool (*find_global)(const void* p, size_t bytes, GlobalRange& range) = nullptr;
/// Grows whenever device memory is freed.
inline std::atomic<uint64_t> memory_generation = 0;
/// The ranges of the last accesses, and the generation for which they hold.
inline std::array<GlobalRange, 4> recent_ranges;
inline uint64_t recent_generation = 0;
/// Finds the range of an access that is in none of those; KernelFault when there is none.
void find_range(const void* p, size_t bytes, const std::source_location& site);

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
  const Apart apart;
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
