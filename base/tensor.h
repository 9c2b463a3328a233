// Non-owning view of device or host memory: pointer, dtype and shape travel together.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace triax {

/// Elements of a shape.
int64_t elements_of(const std::vector<int64_t>& shape);

/// Up to four dimensions. The last dimension is contiguous; `row_stride` is the distance in elements between
/// consecutive rows (index of all dimensions but the last, flattened), and equals the last dimension unless the view
/// is a column slice. Copying a Tensor copies the view. A default Tensor is empty (`!t`).
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape);

  explicit operator bool() const { return data_ != nullptr; }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[static_cast<size_t>(i)]; }
  /// Product of all dimensions but the last (1 for a vector).
  int64_t rows() const;
  /// The last dimension.
  int64_t cols() const { return shape_[static_cast<size_t>(rank_ - 1)]; }
  int64_t numel() const { return rows() * cols(); }
  int64_t bytes() const { return numel() * static_cast<int64_t>(size_of(dtype_)); }
  int64_t row_stride() const { return row_stride_; }
  bool contiguous() const { return rows() == 1 || row_stride_ == cols(); }

  /// Typed pointer; the element type must be the tensor's.
  template <class T>
  T* as() const {
    ensure(DTypeOf<T>::value == dtype_, "Tensor::as: element type differs from the tensor's");
    return static_cast<T*>(data_);
  }

  /// Rows [begin, end) of a matrix: [end - begin, cols].
  Tensor row_slice(int64_t begin, int64_t end) const;
  /// Columns [begin, end) of a matrix: [rows, end - begin], not contiguous unless it is one row or all columns.
  Tensor col_slice(int64_t begin, int64_t end) const;
  /// Same elements of a contiguous tensor under another shape.
  Tensor reshape(std::initializer_list<int64_t> shape) const;
  /// All elements of a contiguous tensor as a vector [numel].
  Tensor flat() const { return reshape({numel()}); }
  /// Elements [begin, end) of a vector.
  Tensor range(int64_t begin, int64_t end) const;
  /// "fp32 [4, 8]".
  std::string describe() const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::Float32;
  int rank_ = 1;
  std::array<int64_t, 4> shape_{0, 0, 0, 0};
  int64_t row_stride_ = 0;
};

}  // namespace triax
