// Every access of the memory-bound kernels to global memory: a plain load or store under nvcc; where threads are fibers
// also an entry in the traffic of the kernel (tests/emulated/traffic.h), by the place in the source that makes it.
#pragma once

#include <type_traits>

#include "kernels/cuda/platform.h"

#if !defined(TRIAX_EMULATED)
#define TRIAX_NOTE_LOAD(pointer, bytes, site)
#define TRIAX_NOTE_STORE(pointer, bytes, site)
namespace triax::kernels {
struct Site {
  static __device__ constexpr Site current() { return {}; }
};
}  // namespace triax::kernels
#endif

namespace triax::kernels {

template <class T>
__device__ __forceinline__ T global_read(const T* p, [[maybe_unused]] Site site = Site::current()) {
  TRIAX_NOTE_LOAD(p, sizeof(T), site);
  return *p;
}

template <class T>
__device__ __forceinline__ void global_write(T* p, std::type_identity_t<T> value,
                                             [[maybe_unused]] Site site = Site::current()) {
  TRIAX_NOTE_STORE(p, sizeof(T), site);
  *p = value;
}

// Templates, since the C++ compiler also reads this header and knows no atomicAdd.
template <class T>
__device__ __forceinline__ void global_atomic_add(T* p, std::type_identity_t<T> value,
                                                  [[maybe_unused]] Site site = Site::current()) {
  TRIAX_NOTE_LOAD(p, sizeof(T), site);
  TRIAX_NOTE_STORE(p, sizeof(T), site);
  atomicAdd(p, value);
}

template <class T>
__device__ __forceinline__ void global_atomic_max(T* p, std::type_identity_t<T> value,
                                                  [[maybe_unused]] Site site = Site::current()) {
  TRIAX_NOTE_LOAD(p, sizeof(T), site);
  TRIAX_NOTE_STORE(p, sizeof(T), site);
  atomicMax(p, value);
}

}  // namespace triax::kernels
