#include "kernels/null_device.h"

#include <sys/mman.h>

#include <new>

namespace triax::kernels {

void* ReserveProvider::allocate(size_t size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return data;
}

void ReserveProvider::deallocate(void* data, size_t size_bytes) noexcept { munmap(data, size_bytes); }

}  // namespace triax::kernels
