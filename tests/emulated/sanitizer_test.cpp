// In a build with AddressSanitizer and UndefinedBehaviorSanitizer, a fault planted in any kind of memory that a kernel
// uses ends the process with the sanitizer's words: global, shared and a thread's own, before and after a change of
// fibers, and arithmetic that C++ does not define. Plain pointers: what passes kernels/cuda/global_memory.h is checked
// without sanitizers, too.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <simt_device.h>

#include <cstdlib>

#include "kernels/cuda/platform.h"

#if !defined(__SANITIZE_ADDRESS__)
#error "built with AddressSanitizer only"
#endif

namespace triax::simt {
namespace {

volatile unsigned result = 0;
/// Here the compiler knows no object's size: AddressSanitizer alone can tell.
[[gnu::noipa]] void store(float* p, unsigned at) { p[static_cast<int>(at)] = 1; }

template <class Kernel, class... Args>
void run(Kernel kernel, size_t shared, Args... args) {
  launch("planted", dim3(2), dim3(64), shared, kernel, args...);
}

struct DeviceBytes {
  explicit DeviceBytes(size_t bytes) { cudaMalloc(&raw, bytes); }
  ~DeviceBytes() { cudaFree(raw); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  float* floats() const { return static_cast<float*>(raw); }
  void* raw = nullptr;
};

/// The last thread of each block writes element `at`, all others element 0, after a change of fibers.
void write_global(float* x, unsigned at) {
  __syncthreads();
  x[threadIdx.x == 63 ? at : 0] = 1;
}

TEST(Sanitizer, GlobalMemoryBehindAnAllocation) {
  const DeviceBytes x(100 * sizeof(float));
  run(write_global, 0, x.floats(), 99u);
  EXPECT_DEATH(run(write_global, 0, x.floats(), 100u), "AddressSanitizer");
  EXPECT_DEATH(run(write_global, 0, x.floats(), 127u), "AddressSanitizer");  // as far as its alignment goes
  EXPECT_DEATH(run(write_global, 0, x.floats(), ~0u), "AddressSanitizer");
}

TEST(Sanitizer, GlobalMemoryThatWasFreed) {
  EXPECT_DEATH(
      {
        float* freed = nullptr;
        {
          const DeviceBytes x(400);
          freed = x.floats();
        }
        run(write_global, 0, freed, 5u);
      },
      "heap-use-after-free");
}

TEST(Sanitizer, PinnedMemoryBehindAnAllocation) {
  void* pinned = nullptr;
  cudaMallocHost(&pinned, 100);
  auto* const bytes = static_cast<volatile char*>(pinned);
  bytes[99] = 1;
  EXPECT_DEATH(bytes[100] = 1, "AddressSanitizer");
  cudaFreeHost(pinned);
}

void planted_static_shared(unsigned at) {
  __shared__ float tile[64];
  store(tile, threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 33) store(tile, at);
}

TEST(Sanitizer, StaticSharedMemory) {
  run(planted_static_shared, 0, 63u);
  EXPECT_DEATH(run(planted_static_shared, 0, 64u), "global-buffer-overflow");
}

/// `store`: written; otherwise read.
void touch_dynamic_shared(unsigned at, bool store) {
  TRIAX_DYNAMIC_SHARED(raw);
  auto* const tile = reinterpret_cast<volatile float*>(raw);
  tile[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x != 33) return;
  if (store) {
    tile[at] = 2;
  } else {
    static_cast<void>(tile[at]);
  }
}

TEST(Sanitizer, DynamicSharedMemory) {
  for (const bool store : {false, true}) {
    run(touch_dynamic_shared, 100 * sizeof(float), 99u, store);
    EXPECT_DEATH(run(touch_dynamic_shared, 100 * sizeof(float), 100u, store), "use-after-poison");
    EXPECT_DEATH(run(touch_dynamic_shared, 100 * sizeof(float), ~0u, store), "AddressSanitizer");
    // What a launch before it had.
    run(touch_dynamic_shared, 2000 * sizeof(float), 1999u, store);
    EXPECT_DEATH(run(touch_dynamic_shared, 100 * sizeof(float), 1000u, store), "use-after-poison");
    run(touch_dynamic_shared, 100 * sizeof(float), 99u, store);
  }
}

void write_own(unsigned at) {
  float own[8];
  __syncthreads();
  store(own, threadIdx.x == 40 ? at : 0);
  __syncthreads();
}

TEST(Sanitizer, AThreadsOwnArray) {
  run(write_own, 0, 7u);
  EXPECT_DEATH(run(write_own, 0, 8u), "stack-buffer-overflow");
}

unsigned deeper(unsigned depth) {
  volatile char frame[4096];
  frame[depth % 4096] = 1;
  return depth == 0 ? 0 : deeper(depth - 1) + frame[depth % 4096];
}

TEST(Sanitizer, TheEndOfAFibersStack) {
  run([](unsigned depth) { deeper(depth); }, 0, 4u);
  EXPECT_DEATH(run([](unsigned depth) { deeper(depth); }, 0, 100000u), "AddressSanitizer");
}

TEST(Sanitizer, ArithmeticThatIsNotDefined) {
  run([](unsigned n) { result = 1u << n; }, 0, 31u);
  EXPECT_DEATH(run([](unsigned n) { result = 1u << n; }, 0, 32u), "runtime error: shift exponent");
  EXPECT_DEATH(run([](int n) { result = static_cast<unsigned>(n + 1); }, 0, 0x7fffffff), "signed integer overflow");
}

}  // namespace
}  // namespace triax::simt

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // the GPU is a thread
  return RUN_ALL_TESTS();
}
