#include "comm/phantom.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm/copy_bytes.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

/// Whole pages go back to the kernel, which reads them as zeros: messages of models that this machine could not hold
/// cost no memory. (Phantom ranks share no memory, so every page is private.)
void make_zero(std::byte* begin, size_t size_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t head = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
  const size_t pages = size_bytes > head ? (size_bytes - head) / page * page : 0;
  if (pages < 16 * page || madvise(begin + head, pages, MADV_DONTNEED) != 0) {
    std::memset(begin, 0, size_bytes);
    return;
  }
  std::memset(begin, 0, head);
  std::memset(begin + head + pages, 0, size_bytes - head - pages);
}

/// The piece of `in` that begins at byte `from`, to byte `to` of `out`.
void copy_piece(Tensor out, int64_t to, Tensor in, int64_t from, int64_t bytes) {
  copy_bytes(bytes_of(out) + to, bytes_of(in) + from, std::min(bytes, in.bytes() - from));
}

/// Of a peer. Codes stand between their scales, at other places in every rank's piece: a peer's are zeros.
void copy_of_peer(Tensor out, int64_t to, Tensor in, int64_t from, int64_t bytes) {
  if (in.dtype() != DType::UInt8) return copy_piece(out, to, in, from, bytes);
  std::memset(bytes_of(out) + to, 0, static_cast<size_t>(bytes));
}

/// Within +-1/16, by index.
template <class T, class Convert>
void fill_small(Tensor t, Convert convert) {
  T* values = t.as<T>();
  uint32_t state = 12345;
  for (int64_t i = 0; i < t.numel(); ++i) {
    state = state * 1664525U + 1013904223U;
    values[i] = convert((static_cast<float>(state >> 8) * 0x1p-24F - 0.5F) * 0.125F);
  }
}

void make_small(Tensor t) {
  const auto same = [](float x) { return x; };
  switch (t.dtype()) {
    case DType::Float64:
      return fill_small<double>(t, same);
    case DType::Float32:
      return fill_small<float>(t, same);
    case DType::BFloat16:
      return fill_small<bf16>(t, [](float x) { return bf16(x); });
    case DType::Float16:
      return fill_small<fp16>(t, [](float x) { return fp16(x); });
    default:
      return make_zero(bytes_of(t), static_cast<size_t>(t.bytes()));
  }
}

}  // namespace

Work PhantomCommunicator::all_reduce(Tensor t, ReduceOp op) {
  constexpr double kLittle = 0x1p-40;
  if (echoes() && op == ReduceOp::Sum && t.dtype() == DType::Float64 && t.numel() == 1) *t.as<double>() += kLittle;
  return Work();
}

Work PhantomCommunicator::all_gather(Tensor in, Tensor out) {
  if (!echoes()) return Work();
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) copy_of_peer(out, r * in.bytes(), in, 0, in.bytes());
  }
  copy_piece(out, rank() * in.bytes(), in, 0, in.bytes());
  return Work();
}

Work PhantomCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  if (!echoes()) return Work();
  const auto element = static_cast<int64_t>(size_of(out.dtype()));
  int64_t at = 0;
  for (int r = 0; r < size(); ++r) {
    const int64_t count = counts[static_cast<size_t>(r)];
    if (r == rank()) {
      copy_piece(out, at * element, in, 0, count * element);
    } else {
      copy_of_peer(out, at * element, in, 0, count * element);
    }
    at += count;
  }
  return Work();
}

Work PhantomCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp) {
  if (echoes()) copy_piece(out, 0, in, rank() * out.bytes(), out.bytes());
  return Work();
}

Work PhantomCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp) {
  if (!echoes()) return Work();
  int64_t begin = 0;
  for (int r = 0; r < rank(); ++r) begin += counts[static_cast<size_t>(r)];
  copy_piece(out, 0, in, begin * static_cast<int64_t>(size_of(in.dtype())), out.bytes());
  return Work();
}

Work PhantomCommunicator::all_to_all(Tensor in, Tensor out) {
  if (!echoes()) return Work();
  const int64_t piece = in.bytes() / size();
  for (int r = 0; r < size(); ++r) copy_of_peer(out, r * piece, in, rank() * piece, piece);
  copy_piece(out, rank() * piece, in, rank() * piece, piece);
  return Work();
}

Work PhantomCommunicator::recv(Tensor t, int, int) {
  if (echoes()) {
    make_small(t);
    return Work();
  }
  if (t.bytes() > 0) make_zero(static_cast<std::byte*>(t.data()), static_cast<size_t>(t.bytes()));
  return Work();
}

Tensor PhantomCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

}  // namespace triax::comm
