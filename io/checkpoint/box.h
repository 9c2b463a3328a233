// Rectangles of a tensor: what a checkpoint stores and what a rank asks for are lists of them.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace triax::io {

/// Rows [row, row + rows) and columns [col, col + cols) of a global tensor; a vector is a matrix of one column.
struct Box {
  int64_t row = 0, col = 0;
  int64_t rows = 0, cols = 0;
  int64_t numel() const { return rows * cols; }
  bool operator==(const Box&) const = default;
};

/// A box whose elements lie in row-major order from element `offset` of some buffer on.
struct PlacedBox {
  Box box;
  int64_t offset = 0;
};

/// Elements [begin, end) of what a rank holds of a tensor (local row-major order, padding excluded) as boxes in that
/// order: one for a vector or for whole rows; up to three where a range begins and ends inside a row.
std::vector<PlacedBox> boxes_of(const parallel::ShardSpec& spec, int64_t begin, int64_t end);

/// What two boxes share; rows = 0 when nothing.
Box intersection(const Box& a, const Box& b);

/// Columns of a global shape [n] or [rows, cols].
int64_t columns_of(const std::vector<int64_t>& global_shape);

}  // namespace triax::io
