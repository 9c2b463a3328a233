// Hopper's part of the emulation finds what it is there to find: every check has a kernel with the fault planted, and a
// sound one beside it; products and copies have the layouts that kernels/cuda/ptx_hopper.h documents.
#include <gtest/gtest.h>
#include <kernels/cuda/ptx_hopper.h>

#include <cstdlib>

namespace triax::simt {
namespace {

using kernels::barrier_arrive;
using kernels::barrier_arrive_expecting;
using kernels::barrier_init;
using kernels::fence_async_proxy;

constexpr unsigned kAlign = 1024;

/// On an emulated Hopper.
class Hopper : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TRIAX_EMULATED_COMPUTE_CAPABILITY", "9.0", 1); }
  void TearDown() override { ::unsetenv("TRIAX_EMULATED_COMPUTE_CAPABILITY"); }

  template <class Kernel, class... Args>
  std::string fault_of(Kernel kernel, Args... args) {
    try {
      launch("planted", dim3(2), dim3(128), 64 << 10, kernel, args...);
    } catch (const KernelFault& e) {
      return e.what();
    }
    return "";
  }
};

/// The map of [rows, cols], row by row, for boxes of `box_rows` rows and row_bytes.
CUtensorMap map_of(const std::vector<bf16>& m, unsigned rows, unsigned cols, unsigned box_rows, unsigned row_bytes) {
  CUtensorMap map{};
  map.address = reinterpret_cast<const unsigned char*>(m.data());
  for (int d = 0; d < 4; ++d) map.extent[d] = map.box[d] = 1;
  map.extent[0] = cols;
  map.extent[3] = rows;
  for (uint64_t& stride : map.stride) stride = 2 * cols;
  map.box[0] = row_bytes / 2;
  map.box[3] = box_rows;
  map.row_bytes = row_bytes;
  return map;
}

unsigned char* aligned() {
  unsigned char* const memory = dynamic_shared();
  return memory + (kAlign - kernels::shared_address(memory) % kAlign) % kAlign;
}

/// What a product kernel leaves out, or does wrongly.
enum class Plant { Nothing, NoCopyWait, NoProductsWait, NoFence, OperandOverwritten, Unaligned };

/// c[64, 64] = a[64, 16] b^T, b [64, 16]; or, from registers, c = a b, b [16, 64]. Boxes of RowBytes.
template <int RowBytes>
void product(CUtensorMap a, CUtensorMap b, bool registers, Plant plant, float* c) {
  static uint64_t barrier;
  constexpr int kCols = RowBytes / 2;
  unsigned char* const left = aligned() + (plant == Plant::Unaligned ? 128 : 0);
  unsigned char* const right = left + 64 * RowBytes;
  if (threadIdx.x == 0) {
    barrier_init(&barrier, 1);
    fence_async_proxy();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const int parts = registers ? 64 / kCols : 1, rows = registers ? 16 : 64;
    barrier_arrive_expecting(&barrier, static_cast<unsigned>((64 + parts * rows) * RowBytes));
    kernels::copy_box(left, &a, 0, 0, 0, 0, &barrier);
    for (int p = 0; p < parts; ++p) kernels::copy_box(right + p * rows * RowBytes, &b, p * kCols, 0, 0, 0, &barrier);
  }
  if (plant != Plant::NoCopyWait || threadIdx.x == 0) barrier_wait(&barrier, 0);
  const unsigned l = lane(), row = threadIdx.x / 32 * 16 + l / 4, col = l % 4 * 2;
  float sum[8][4] = {};
  uint32_t packed[4];
  for (unsigned i = 0; i < 4; ++i) {  // a is unswizzled by hand
    const unsigned at = kernels::shared_address(left) + (row + i % 2 * 8) * RowBytes + 2 * (col + i / 2 * 8);
    const unsigned moved = RowBytes == 128 ? at ^ (at >> 7 & 7) << 4 : at ^ (at >> 7 & 3) << 4;
    std::memcpy(&packed[i], left + (moved - kernels::shared_address(left)), 4);
  }
  if (plant != Plant::NoFence) kernels::products_fence();
  const uint64_t b_at = kernels::matrix_descriptor<RowBytes>(kernels::shared_address(right), 16 * RowBytes);
  if (registers) {
    kernels::wgmma_registers<bf16>(sum, packed, b_at);
  } else {
    kernels::wgmma_shared<bf16>(sum, kernels::matrix_descriptor<RowBytes>(kernels::shared_address(left), 0), b_at, 0);
  }
  kernels::products_commit();
  if (plant == Plant::OperandOverwritten) std::memset(right, 0, 64 * RowBytes);
  if (plant != Plant::NoProductsWait) kernels::products_wait<0>();
  for (unsigned n = 0; n < 8; ++n) {
    for (unsigned e = 0; e < 4; ++e) c[(row + e / 2 * 8) * 64 + 8 * n + col + e % 2] = sum[n][e];
  }
}

struct Problem {
  std::vector<bf16> a, by_rows, by_columns;  // [64, 64], [64, 64], [16, 64]; k = 0 .. 15 are used
  std::vector<float> want_rows, want_columns;

  Problem() : a(64 * 64), by_rows(64 * 64), by_columns(16 * 64), want_rows(64 * 64), want_columns(64 * 64) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = bf16(static_cast<float>(i * 7 % 23) - 11.0f);
    for (size_t i = 0; i < by_rows.size(); ++i) by_rows[i] = bf16(static_cast<float>(i * 5 % 19) - 9.0f);
    for (size_t i = 0; i < by_columns.size(); ++i) by_columns[i] = bf16(static_cast<float>(i * 3 % 17) - 8.0f);
    for (size_t i = 0; i < 64; ++i) {
      for (size_t j = 0; j < 64; ++j) {
        for (size_t k = 0; k < 16; ++k) {
          const auto left = static_cast<float>(a[i * 64 + k]);
          want_rows[i * 64 + j] += left * static_cast<float>(by_rows[j * 64 + k]);
          want_columns[i * 64 + j] += left * static_cast<float>(by_columns[k * 64 + j]);
        }
      }
    }
  }
};

TEST_F(Hopper, ProductsAndCopiesHaveTheDocumentedLayouts) {
  const Problem p;
  std::vector<float> c(64 * 64);
  const auto maps = [&](unsigned bytes, bool registers) {
    return registers ? map_of(p.by_columns, 16, 64, 16, bytes) : map_of(p.by_rows, 64, 64, 64, bytes);
  };
  for (const bool registers : {false, true}) {
    const std::vector<float>& want = registers ? p.want_columns : p.want_rows;
    EXPECT_EQ(
        fault_of(product<128>, map_of(p.a, 64, 64, 64, 128), maps(128, registers), registers, Plant::Nothing, c.data()),
        "");
    EXPECT_EQ(c, want) << "rows of 128 bytes, left operand in registers: " << registers;
    EXPECT_EQ(
        fault_of(product<64>, map_of(p.a, 64, 64, 64, 64), maps(64, registers), registers, Plant::Nothing, c.data()),
        "");
    EXPECT_EQ(c, want) << "rows of 64 bytes, left operand in registers: " << registers;
  }
}

TEST_F(Hopper, WhatAProductLeavesOutIsFound) {
  const Problem p;
  std::vector<float> c(64 * 64);
  const auto fault = [&](Plant plant) {
    std::fill(c.begin(), c.end(), 0.0f);
    return fault_of(product<128>, map_of(p.a, 64, 64, 64, 128), map_of(p.by_rows, 64, 64, 64, 128), false, plant,
                    c.data());
  };
  EXPECT_NE(fault(Plant::NoFence).find("without wgmma.fence"), std::string::npos);
  EXPECT_NE(fault(Plant::NoProductsWait).find("never waited for"), std::string::npos);
  EXPECT_TRUE(std::isnan(c[0])) << "sums are not there before the wait";
  EXPECT_EQ(fault(Plant::OperandOverwritten), "");
  EXPECT_NE(c, p.want_rows) << "a product reads its operands until it is waited for";
  EXPECT_EQ(fault(Plant::NoCopyWait), "");
  EXPECT_NE(c, p.want_rows) << "copies land late";
  EXPECT_NE(fault(Plant::Unaligned).find("swizzle"), std::string::npos);
}

TEST_F(Hopper, ZerosLieOutsideOfATensor) {
  const Problem p;
  std::vector<float> seen(2);
  const auto kernel = [](CUtensorMap map, float* out) {
    static uint64_t barrier;
    if (threadIdx.x != 0) return;
    barrier_init(&barrier, 1);
    fence_async_proxy();
    barrier_arrive_expecting(&barrier, 64 * 128);
    kernels::copy_box(aligned(), &map, 0, 0, 0, 63, &barrier);
    barrier_wait(&barrier, 0);
    out[0] = static_cast<float>(*reinterpret_cast<const bf16*>(aligned()));
    out[1] = static_cast<float>(*reinterpret_cast<const bf16*>(aligned() + 128));
  };
  EXPECT_EQ(fault_of(kernel, map_of(p.a, 64, 64, 64, 128), seen.data()), "");
  EXPECT_EQ(seen[0], static_cast<float>(p.a[63 * 64]));
  EXPECT_EQ(seen[1], 0);
}

TEST_F(Hopper, FaultsOfBarriersAreFound) {
  const Problem p;
  enum Fault { Bytes, Fence, Unmade, Arrivals, NotWaited };
  const auto kernel = [](CUtensorMap map, Fault fault) {
    static uint64_t barrier, other;
    if (threadIdx.x != 0) return;
    barrier_init(&barrier, 1);
    if (fault != Fence) fence_async_proxy();
    barrier_arrive_expecting(&barrier, 64 * 128 + (fault == Bytes ? 16 : 0));
    kernels::copy_box(aligned(), &map, 0, 0, 0, 0, fault == Unmade ? &other : &barrier);
    if (fault == NotWaited) return;
    if (fault == Arrivals) barrier_arrive(&barrier);
    barrier_wait(&barrier, 0);
  };
  const auto fault = [&](Fault f) { return fault_of(kernel, map_of(p.a, 64, 64, 64, 128), f); };
  EXPECT_NE(fault(Bytes).find("waits for an mbarrier"), std::string::npos);
  EXPECT_NE(fault(Fence).find("no fence made visible"), std::string::npos);
  EXPECT_NE(fault(Unmade).find("no mbarrier was made"), std::string::npos);
  EXPECT_NE(fault(Arrivals).find("more arrivals"), std::string::npos);
  EXPECT_NE(fault(NotWaited).find("while a copy"), std::string::npos);
  ::unsetenv("TRIAX_EMULATED_COMPUTE_CAPABILITY");
  EXPECT_NE(fault(Bytes).find("needs compute capability 9.0"), std::string::npos);
}

}  // namespace
}  // namespace triax::simt
