#include "io/checkpoint/box.h"

#include <algorithm>

#include "base/error.h"

namespace triax::io {

int64_t columns_of(const std::vector<int64_t>& global_shape) { return global_shape.size() == 2 ? global_shape[1] : 1; }

std::vector<PlacedBox> boxes_of(const parallel::ShardSpec& spec, int64_t begin, int64_t end) {
  ensure(spec.global_shape.size() == 1 || spec.global_shape.size() == 2,
         "boxes_of: tensors have one or two dimensions");
  const bool by_columns = spec.cut_dim == 1;
  const int64_t cols = by_columns ? spec.count : columns_of(spec.global_shape);
  const int64_t row0 = by_columns || spec.cut_dim < 0 ? 0 : spec.begin;
  const int64_t col0 = by_columns ? spec.begin : 0;
  std::vector<PlacedBox> boxes;
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / cols;
    const int64_t col = at % cols;
    Box box{row0 + row, col0 + col, 1, std::min(cols - col, end - at)};
    if (col == 0 && end - at >= cols) box.rows = (end - at) / cols;
    boxes.push_back({box, at - begin});
    at += box.numel();
  }
  return boxes;
}

Box intersection(const Box& a, const Box& b) {
  Box both;
  both.row = std::max(a.row, b.row);
  both.col = std::max(a.col, b.col);
  both.rows = std::min(a.row + a.rows, b.row + b.rows) - both.row;
  both.cols = std::min(a.col + a.cols, b.col + b.cols) - both.col;
  if (both.rows <= 0 || both.cols <= 0) both.rows = both.cols = 0;
  return both;
}

}  // namespace triax::io
