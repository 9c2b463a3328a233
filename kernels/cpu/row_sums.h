// CpuDevice::sum_over_rows: sums over rows that do not depend on the number of threads.
#pragma once

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace triax::kernels {

template <class F>
void CpuDevice::sum_over_rows(int64_t rows, DType compute, std::initializer_list<Tensor> into, int64_t cols, F&& f) {
  constexpr int64_t kRowsPerBlock = 32;
  constexpr int64_t kMaxBlocks = 64;
  if (rows <= 0) return;
  const int64_t blocks = std::min((rows + kRowsPerBlock - 1) / kRowsPerBlock, kMaxBlocks);
  const int64_t width = cols * static_cast<int64_t>(into.size());
  const auto size = static_cast<int64_t>(size_of(compute));
  const Buffer buffer = workspace_.allocate(compute, blocks * width, MemoryCategory::Workspace);
  char* partial = static_cast<char*>(buffer.data());
  threads_.ranges(blocks, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) f(rows * i / blocks, rows * (i + 1) / blocks, partial + i * width * size);
  });
  kernels(compute).sum_partials(partial, blocks, width, width);
  int64_t offset = 0;
  for (const Tensor& t : into) {
    if (t) kernels(compute).add[static_cast<size_t>(t.dtype())](partial + offset * size, t.data(), cols);
    offset += cols;
  }
}

}  // namespace triax::kernels
