#include "base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

namespace triax {
namespace {

void* advance(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

}  // namespace

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Tensor::Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape)
    : data_(data), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
  ensure(rank_ >= 1 && rank_ <= 4, "Tensor: one to four dimensions");
  size_t i = 0;
  for (const int64_t dim : shape) {
    ensure(dim >= 0, "Tensor: negative dimension");
    shape_[i++] = dim;
  }
  row_stride_ = cols();
}

int64_t Tensor::rows() const {
  int64_t n = 1;
  for (int i = 0; i + 1 < rank_; ++i) n *= shape_[static_cast<size_t>(i)];
  return n;
}

Tensor Tensor::row_slice(int64_t begin, int64_t end) const {
  ensure(rank_ == 2 && 0 <= begin && begin <= end && end <= dim(0), "Tensor::row_slice: out of range");
  Tensor t(advance(data_, begin * row_stride_, dtype_), dtype_, {end - begin, cols()});
  t.row_stride_ = row_stride_;
  return t;
}

Tensor Tensor::col_slice(int64_t begin, int64_t end) const {
  ensure(rank_ == 2 && 0 <= begin && begin <= end && end <= cols(), "Tensor::col_slice: out of range");
  Tensor t(advance(data_, begin, dtype_), dtype_, {rows(), end - begin});
  t.row_stride_ = row_stride_;
  return t;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> shape) const {
  ensure(contiguous(), "Tensor::reshape: not contiguous");
  Tensor t(data_, dtype_, shape);
  ensure(t.numel() == numel(), "Tensor::reshape: number of elements differs");
  return t;
}

Tensor Tensor::range(int64_t begin, int64_t end) const {
  ensure(rank_ == 1 && 0 <= begin && begin <= end && end <= cols(), "Tensor::range: out of range");
  return Tensor(advance(data_, begin, dtype_), dtype_, {end - begin});
}

std::string Tensor::describe() const {
  return fmt::format("{} [{}]", name_of(dtype_), fmt::join(shape_.begin(), shape_.begin() + rank_, ", "));
}

}  // namespace triax
