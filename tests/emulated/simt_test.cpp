// The emulation finds what it is there to find: every check has a kernel with the fault planted, and a sound one beside
// it.
#include <gtest/gtest.h>
#include <simt_ptx.h>

#include <algorithm>

#include "kernels/cuda/global_memory.h"
#include "traffic.h"

namespace triax::simt {
namespace {

/// The words of the fault that a launch ends with; "" when it ends well.
template <class Kernel, class... Args>
std::string fault_of(Kernel kernel, unsigned threads, size_t shared, Args... args) {
  try {
    launch("planted", dim3(2), dim3(threads), shared, kernel, args...);
  } catch (const KernelFault& e) {
    return e.what();
  }
  return "";
}

/// Sums threads' numbers through shared memory; `barriers` leaves one out.
void block_sum(int barriers, float* out) {
  auto* const part = reinterpret_cast<float*>(dynamic_shared());
  part[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barriers != 0) __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += part[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

TEST(Simt, SharedMemoryReadBeforeItIsWrittenIsNaN) {
  std::vector<float> good(128), bad(128);
  EXPECT_EQ(fault_of(block_sum, 64, 256, 1, good.data()), "");
  EXPECT_EQ(fault_of(block_sum, 64, 256, 0, bad.data()), "");
  for (const float v : good) EXPECT_EQ(v, 63 * 32);
  EXPECT_TRUE(std::isnan(bad[0]) || std::isnan(bad[1]) || std::isnan(bad[127]));
}

/// The same through static shared memory, once for each size of block.
template <unsigned Threads>
void planted_block_sum(int barriers, float* out) {
  __shared__ float part[Threads];
  part[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barriers != 0) __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < Threads; ++i) sum += part[i];
  out[blockIdx.x * Threads + threadIdx.x] = sum;
}

TEST(Simt, StaticSharedMemoryIsUnwrittenInEveryLaunch) {
  std::vector<float> good(128), bad(128);
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_EQ(fault_of(planted_block_sum<64>, 64, 0, 1, good.data()), "");
    EXPECT_EQ(fault_of(planted_block_sum<64>, 64, 0, 0, bad.data()), "");
    for (const float v : good) EXPECT_EQ(v, 63 * 32);
    EXPECT_TRUE(std::any_of(bad.begin(), bad.end(), [](float v) { return std::isnan(v); }));
  }
}

TEST(Simt, AWriteBehindDynamicSharedMemoryIsFound) {
#if !defined(__SANITIZE_ADDRESS__)  // which ends the process: sanitizer_test.cpp
  const auto kernel = [](unsigned at) { dynamic_shared()[at] = 1; };
  EXPECT_EQ(fault_of(kernel, 32, 100, 99u), "");
  EXPECT_NE(fault_of(kernel, 32, 100, 100u).find("behind its 100 bytes of dynamic shared memory"), std::string::npos);
  EXPECT_NE(fault_of(kernel, 32, 0, 700u).find("behind its 0 bytes"), std::string::npos);
#endif
}

TEST(Simt, ABarrierThatSomeThreadsSkipIsFound) {
  const auto kernel = [](unsigned reached) {
    if (threadIdx.x < reached) __syncthreads();
  };
  EXPECT_EQ(fault_of(kernel, 64, 0, 64u), "");
  EXPECT_NE(fault_of(kernel, 64, 0, 40u).find("a barrier is not reached by all"), std::string::npos);
}

TEST(Simt, DifferentBarriersAreFound) {
  const auto kernel = [](unsigned half) {
    if (threadIdx.x < half) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_NE(fault_of(kernel, 64, 0, 32u).find("different barriers"), std::string::npos);
}

TEST(Simt, AWarpOperationWithoutAllItsLanesIsFound) {
  const auto kernel = [](unsigned lanes) {
    if (threadIdx.x < lanes) static_cast<void>(__shfl_xor_sync(0xffffffffu, 1.0f, 1));
  };
  EXPECT_EQ(fault_of(kernel, 32, 0, 32u), "");
  EXPECT_NE(fault_of(kernel, 32, 0, 31u).find("lanes are missing"), std::string::npos);
  EXPECT_NE(fault_of(kernel, 20, 0, 32u).find("which this block lacks"), std::string::npos);
}

TEST(Simt, LanesAtDifferentWarpOperationsAreFound) {
  const auto kernel = [] {
    if (threadIdx.x % 2 == 0) {
      static_cast<void>(__shfl_xor_sync(0xffffffffu, 1.0f, 1));
    } else {
      static_cast<void>(__shfl_xor_sync(0xffffffffu, 1.0f, 1));
    }
  };
  EXPECT_NE(fault_of(kernel, 32, 0).find("different warp operations"), std::string::npos);
}

TEST(Simt, AsynchronousCopiesAreThereAfterTheWaitAndNotBefore) {
  alignas(16) static const float source[4] = {1, 2, 3, 4};
  const auto kernel = [](bool wait, float* seen) {
    void* const shared = dynamic_shared() + 16 * threadIdx.x;
    kernels::copy_async_16(shared, source, 1);
    kernels::copies_commit();
    if (wait) kernels::copies_wait<0>();
    seen[threadIdx.x] = static_cast<const float*>(shared)[3];
    kernels::copies_wait<0>();
  };
  std::vector<float> seen(32);
  EXPECT_EQ(fault_of(kernel, 32, 512, true, seen.data()), "");
  EXPECT_EQ(seen[7], 4);
  EXPECT_EQ(fault_of(kernel, 32, 512, false, seen.data()), "");
  // Some copies have happened, some have not.
  const auto late = std::count_if(seen.begin(), seen.end(), [](float v) { return std::isnan(v); });
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 32);
  const auto forgets = [] { kernels::copy_async_16(dynamic_shared(), source, 1); };
  EXPECT_NE(fault_of(forgets, 1, 16).find("never waited"), std::string::npos);
}

TEST(Simt, InvalidLaunchesAreFound) {
  const auto kernel = [] {};
  EXPECT_NE(fault_of(kernel, 1025, 0).find("invalid launch"), std::string::npos);
  EXPECT_NE(fault_of(kernel, 32, 100 * 1024).find("invalid launch"), std::string::npos);
}

/// Bytes loaded and stored by two blocks of 64 threads.
template <class Kernel, class... Args>
Traffic traffic_of(Kernel kernel, Args... args) {
  triax_emulated_count_traffic(1);
  EXPECT_EQ(fault_of(kernel, 64, 0, args...), "");
  triax_emulated_count_traffic(0);
  const char* name = nullptr;
  Traffic traffic;
  EXPECT_EQ(triax_emulated_traffic(&name, &traffic, 1), 1u);
  EXPECT_STREQ(name, "planted");
  return traffic;
}

TEST(Simt, BytesAreCountedBySectorsOfAWarpsAccess) {
  alignas(32) static float x[128 * 8 + 8], y[128];
  using kernels::global_read;
  using kernels::global_write;
  const auto at = [] { return blockIdx.x * blockDim.x + threadIdx.x; };
  const auto once = [at] { global_write(y + at(), global_read(x + at())); };
  Traffic t = traffic_of(once);
  EXPECT_EQ(t.launches, 1u);
  EXPECT_EQ(t.loaded_bytes, 512u);
  EXPECT_EQ(t.stored_bytes, 512u);
  // What a kernel reads twice costs twice, though the addresses are the same.
  t = traffic_of([at] { global_write(y + at(), global_read(x + at()) + global_read(x + at())); });
  EXPECT_EQ(t.loaded_bytes, 1024u);
  // Every lane in its own sector; a run that begins within one; one address for all.
  EXPECT_EQ(traffic_of([at] { global_read(x + 8 * at()); }).loaded_bytes, 8 * 512u);
  EXPECT_EQ(traffic_of([at] { global_read(x + 1 + at()); }).loaded_bytes, 5 * 32 * 4u);
  EXPECT_EQ(traffic_of([] { global_read(x); }).loaded_bytes, 4 * 32u);
  // Rounds of a loop are accesses of their own; lanes in different branches do not share one.
  const auto rounds = [] {
    for (unsigned i = 0; i < threadIdx.x / 32 + 1; ++i) global_read(x);
  };
  EXPECT_EQ(traffic_of(rounds).loaded_bytes, 2 * 3 * 32u);
  const auto branches = [] { threadIdx.x % 2 == 0 ? global_read(x) : global_read(x); };
  EXPECT_EQ(traffic_of(branches).loaded_bytes, 4 * 2 * 32u);
}

TEST(Simt, MisalignedAccessesAreFound) {
  alignas(16) static float x[64];
  const auto kernel = [](unsigned shift) {
    kernels::global_read(reinterpret_cast<const uint4*>(x + shift + 4 * (threadIdx.x % 4)));
  };
  EXPECT_EQ(fault_of(kernel, 32, 0, 4u), "");
  EXPECT_NE(fault_of(kernel, 32, 0, 2u).find("16 bytes to global memory is not aligned"), std::string::npos);
}

/// c[16, 8] = a[16, 16] b[16, 8] with the fragments that ptx.h documents, loaded as the attention kernels load them.
void product(const bf16* a, const bf16* b, bool transposed, float* c) {
  auto* const left = reinterpret_cast<bf16*>(dynamic_shared());
  bf16* const right = left + 16 * 24;
  for (unsigned i = threadIdx.x; i < 256; i += 32) left[i / 16 * 24 + i % 16] = a[i];
  // b by rows of k (16 x 8, padded to 16 columns), or by rows of n (8 x 16, padded to 16 rows).
  for (unsigned i = threadIdx.x; i < 256; i += 32) {
    const unsigned r = i / 16, s = i % 16;
    if (transposed) right[r * 24 + s] = s < 8 ? b[r * 8 + s] : bf16(0.0f);
    if (!transposed) right[r * 24 + s] = r < 8 ? b[s * 8 + r] : bf16(0.0f);
  }
  __syncthreads();
  uint32_t fa[4], fb[4];
  const unsigned l = lane();
  kernels::load_matrices(fa, left + (l % 8 + l / 8 % 2 * 8) * 24 + l / 16 * 8);
  if (transposed) {
    kernels::load_matrices_transposed(fb, right + (l % 8 + l / 8 % 2 * 8) * 24 + l / 16 * 8);
  } else {
    kernels::load_matrices(fb, right + (l % 8 + l / 16 * 8) * 24 + l / 8 % 2 * 8);
  }
  float sum[4] = {0, 0, 0, 0};
  kernels::mma_16x8x16<bf16>(sum, fa, fb[0], fb[1]);
  for (unsigned e = 0; e < 4; ++e) c[(l / 4 + e / 2 * 8) * 8 + l % 4 * 2 + e % 2] = sum[e];
}

TEST(Simt, MatrixProductsAreThoseOfTheDocumentedFragments) {
  std::vector<bf16> a(256), b(128);
  for (size_t i = 0; i < a.size(); ++i) a[i] = bf16(static_cast<float>(i * 7 % 23) - 11.0f);
  for (size_t i = 0; i < b.size(); ++i) b[i] = bf16(static_cast<float>(i * 5 % 19) - 9.0f);
  for (const bool transposed : {false, true}) {
    std::vector<float> c(128);
    EXPECT_EQ(fault_of(product, 32, 4096, a.data(), b.data(), transposed, c.data()), "");
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 8; ++j) {
        float want = 0;
        for (size_t k = 0; k < 16; ++k) want += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[k * 8 + j]);
        ASSERT_EQ(c[i * 8 + j], want) << transposed << " " << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace triax::simt
