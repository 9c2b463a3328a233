// Host versions of kernels/cuda/ptx_hopper.h: the same functions, lane for lane. What is checked beside simt.h's:
//   barriers in shared memory that are used before they are made, or by the copy engine before the fence; a copy whose
//   bytes nobody waits for, or that lands where it may not; a wait that nothing will end;
//   products of a warpgroup without their fence, not waited for, or outside of shared memory. Copies land at any later
//   moment, in any order, and their destination is NaN until then; a product reads its operands at its issue or at its
//   wait, by chance, and its sums are NaN in between.
#pragma once

#include <cuda.h>
#include <simt_ptx.h>

#define __grid_constant__

namespace triax::simt {

void barrier_init(const void* barrier, int arrivals);
void fence_async_proxy();
void barrier_arrive(const void* barrier, unsigned bytes);
void wait_barrier(const void* barrier, unsigned parity, const char* file, int line);
void copy_box(void* shared, const CUtensorMap& tensor, const int (&at)[4], const void* barrier);
/// As the hardware counts it: not the host's address.
unsigned shared_address(const void* shared);

/// One product as a lane sees it: rows 16 w + g and + 8 of its 64, columns 2 t and 2 t + 1 of each tile of eight.
struct LaneProduct {
  float* sums = nullptr;  // [tiles][4]
  int tiles = 0;
  float (*value)(uint16_t bits) = nullptr;
  bool left_shared = false, accumulate = false;
  uint64_t left = 0, right = 0;  // descriptors
  float left_rows[2][16] = {};   // where it comes from registers
};
void issue_product(const LaneProduct& product);
void products_fence();
void products_commit();
void products_wait(size_t groups_left);

}  // namespace triax::simt

namespace triax::kernels {

inline unsigned shared_address(const void* p) { return simt::shared_address(p); }
inline void barrier_init(uint64_t* barrier, int arrivals) { simt::barrier_init(barrier, arrivals); }
inline void fence_async_proxy() { simt::fence_async_proxy(); }
inline void barrier_arrive(uint64_t* barrier) { simt::barrier_arrive(barrier, 0); }
inline void barrier_arrive_expecting(uint64_t* barrier, unsigned bytes) { simt::barrier_arrive(barrier, bytes); }
#define barrier_wait(barrier, parity) ::triax::simt::wait_barrier((barrier), (parity), __FILE__, __LINE__)
inline void copy_box(void* shared, const CUtensorMap* tensor, int c0, int c1, int c2, int c3, uint64_t* barrier) {
  simt::copy_box(shared, *tensor, {c0, c1, c2, c3}, barrier);
}
template <int N>
void give_registers_back() {}
template <int N>
void take_registers() {}

inline void products_fence() { simt::products_fence(); }
inline void products_commit() { simt::products_commit(); }
template <int N>
void products_wait() {
  simt::products_wait(N);
}
template <int Tiles>
void products_done(float (&)[Tiles][4]) {}

template <class T>
float value_of_bits(uint16_t bits) {
  T v;
  v.bits = bits;
  return static_cast<float>(v);
}

template <class T, int Tiles>
void wgmma_shared(float (&d)[Tiles][4], uint64_t a, uint64_t b, int accumulate) {
  simt::share(0xffffffffu, nullptr, 0, "wgmma", Tiles);
  simt::LaneProduct p;
  p.sums = d[0];
  p.tiles = Tiles;
  p.value = value_of_bits<T>;
  p.left_shared = true;
  p.accumulate = accumulate != 0;
  p.left = a;
  p.right = b;
  simt::issue_product(p);
}

template <class T, int Tiles>
void wgmma_registers(float (&d)[Tiles][4], const uint32_t (&a)[4], uint64_t b) {
  const unsigned char* const slots = simt::share(0xffffffffu, a, sizeof a, "wgmma", -Tiles);
  simt::LaneProduct p;
  p.sums = d[0];
  p.tiles = Tiles;
  p.value = value_of_bits<T>;
  p.accumulate = true;
  p.right = b;
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned half = 0; half < 2; ++half) {
      uint32_t r;
      const unsigned from = simt::lane() / 4 * 4 + k % 8 / 2;
      std::memcpy(&r, slots + from * simt::kSlotBytes + 4 * (half + k / 8 * 2), 4);
      p.left_rows[half][k] = unpack<T>(r, static_cast<int>(k & 1));
    }
  }
  simt::issue_product(p);
}

}  // namespace triax::kernels
