// Construction, elementwise operations and reductions.
#include "kernels/cpu/cpu_device.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>

#include "kernels/cpu/blas_gemm.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/row_sums.h"

namespace triax::kernels {
namespace {

constexpr int64_t kReduceBlock = 65536;  // elements of one partial sum of squares

/// Calls f(x run, y run, elements) in parallel over two tensors of one shape: whole runs when both are contiguous,
/// else row by row.
template <class F>
void for_runs(const Threads& threads, const Tensor& x, const Tensor& y, F&& f) {
  const auto xs = static_cast<int64_t>(size_of(x.dtype()));
  const auto ys = static_cast<int64_t>(size_of(y.dtype()));
  char* px = static_cast<char*>(x.data());
  char* py = static_cast<char*>(y.data());
  if (x.contiguous() && y.contiguous()) {
    threads.ranges(x.numel(), kElementGrain, [&](int64_t b, int64_t e) { f(px + b * xs, py + b * ys, e - b); });
    return;
  }
  const int64_t cols = x.cols();
  threads.ranges(x.rows(), kElementGrain / std::max<int64_t>(cols, 1) + 1, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) f(px + r * x.row_stride() * xs, py + r * y.row_stride() * ys, cols);
  });
}

}  // namespace

int resolve_threads(int threads) {
  ensure(threads >= 0, "CpuDeviceOptions::threads is negative");
  if (threads > 0) return threads;
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr && std::atoi(text) > 0) return std::atoi(text);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : threads_(resolve_threads(options.threads)),
      compression_(threads_),
      table_(cpu_kernel_table()),
      packed_bf16_(table_.bf16_products && !cpu_has_bf16_tiles()),
      workspace_(heap_),
      dnnl_(workspace_, threads_.count()) {}

std::string CpuDevice::describe() const {
  const std::string blas = blas_description();
  const std::string single = dnnl_.description().empty() ? blas : dnnl_.description();
  return fmt::format("{}, {} thread{}, fp32 and bf16 GEMM by {}{}, fp64 by {}", table_.isa, threads_.count(),
                     threads_.count() == 1 ? "" : "s", single,
                     packed_bf16_ ? " (bf16 weight gradients by our own kernel)" : "", blas);
}

const TypeKernels& CpuDevice::kernels(DType dtype) const {
  ensure(is_math_type(dtype), "the CPU device computes in fp64, fp32, bf16 and fp16");
  return table_.type[static_cast<size_t>(dtype)];
}

void CpuDevice::bias_backward(Tensor dy, Tensor dbias) {
  const TypeKernels& k = kernels(dy.dtype());
  check_vector("bias_backward", "dbias", dbias, dbias.dtype(), dy.cols());
  sum_over_rows(
      dy.rows(), compute_type(dy.dtype()), {dbias}, dy.cols(),
      [&](int64_t begin, int64_t end, void* partial) { k.column_sum(view_of(dy), dy.cols(), begin, end, partial); });
}

void CpuDevice::fill(Tensor x, double value) {
  // One row is made by conversion, the others are copies of it: any dtype that `copy` knows, and zeros of all.
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  if (x.numel() == 0) return;
  if (value == 0) {
    for_runs(threads_, x, x, [&](char* run, char*, int64_t n) { memset(run, 0, static_cast<size_t>(n * size)); });
    return;
  }
  char element[8];
  kernels(DType::Float64)
      .copy[static_cast<size_t>((ensure(is_math_type(x.dtype()), "fill: dtype"), x.dtype()))](&value, element, 1);
  for_runs(threads_, x, x, [&](char* run, char*, int64_t n) {
    memcpy(run, element, static_cast<size_t>(size));
    for (int64_t done = 1; done < n; done *= 2) {  // copies of what is there already
      memcpy(run + done * size, run, static_cast<size_t>(std::min(done, n - done) * size));
    }
  });
}

namespace {

// The text is made only for a fault: a steady step takes nothing from the heap.
void check_same_shape(const char* operation, const Tensor& x, const Tensor& y) {
  if (x.rows() == y.rows() && x.cols() == y.cols()) return;
  ensure(false, std::string(operation) + ": shapes differ: " + x.describe() + ", " + y.describe());
}

}  // namespace

void CpuDevice::copy(Tensor x, Tensor y) {
  check_same_shape("copy", x, y);
  if (x.dtype() == y.dtype()) {
    const auto size = static_cast<int64_t>(size_of(x.dtype()));
    for_runs(threads_, x, y,
             [&](char* from, char* to, int64_t n) { memmove(to, from, static_cast<size_t>(n * size)); });
    return;
  }
  if (!is_math_type(y.dtype())) ensure(false, "copy: no conversion to " + std::string(name_of(y.dtype())));
  const auto convert = kernels(x.dtype()).copy[static_cast<size_t>(y.dtype())];
  for_runs(threads_, x, y, [&](char* from, char* to, int64_t n) { convert(from, to, n); });
}

void CpuDevice::add(Tensor x, Tensor y) {
  check_same_shape("add", x, y);
  ensure(is_math_type(y.dtype()), "add: y's dtype");
  const auto sum = kernels(x.dtype()).add[static_cast<size_t>(y.dtype())];
  for_runs(threads_, x, y, [&](char* from, char* to, int64_t n) { sum(from, to, n); });
}

void CpuDevice::scale(Tensor x, double factor) {
  const auto multiply = kernels(x.dtype()).scale;
  for_runs(threads_, x, x, [&](char* run, char*, int64_t n) { multiply(run, factor, n); });
}

void CpuDevice::sum_of_squares(Tensor x, Tensor out) {
  check_vector("sum_of_squares", "out", out, DType::Float64, 1);
  ensure(x.contiguous(), "sum_of_squares: x is not contiguous");
  const TypeKernels& k = kernels(x.dtype());
  const int64_t n = x.numel();
  const int64_t blocks = (n + kReduceBlock - 1) / kReduceBlock;
  if (blocks == 0) return;
  const Buffer buffer = workspace_.allocate(DType::Float64, blocks, MemoryCategory::Workspace);
  double* partial = static_cast<double*>(buffer.data());
  const char* data = static_cast<const char*>(x.data());
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  threads_.ranges(blocks, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      partial[i] = k.sum_of_squares(data + i * kReduceBlock * size, std::min(kReduceBlock, n - i * kReduceBlock));
    }
  });
  double total = 0;
  for (int64_t i = 0; i < blocks; ++i) total += partial[i];
  *out.as<double>() += total;
}

void CpuDevice::count_nonfinite(Tensor x, Tensor out) {
  check_vector("count_nonfinite", "out", out, DType::Float64, 1);
  ensure(x.contiguous(), "count_nonfinite: x is not contiguous");
  const TypeKernels& k = kernels(x.dtype());
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  const char* data = static_cast<const char*>(x.data());
  int64_t total = 0;
  threads_.ranges(x.numel(), kElementGrain, [&](int64_t b, int64_t e) {
    const int64_t count = k.count_nonfinite(data + b * size, e - b);
#pragma omp atomic
    total += count;
  });
  *out.as<double>() += static_cast<double>(total);
}

}  // namespace triax::kernels
