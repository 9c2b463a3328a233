#include "train/fp8_checkpoint.h"

namespace triax::train {
namespace {

constexpr int64_t kParts = 3;

io::Piece piece_of(const std::string& tensor, std::vector<float>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  io::Piece piece{kFp8Amax, tensor, {}, 0, count, Tensor(rows.data(), DType::Float32, {count}), io::PieceMemory::Host};
  piece.spec.global_shape = {count / kParts, kParts};
  piece.spec.count = count / kParts;
  return piece;
}

}  // namespace

std::vector<io::Piece> fp8_pieces(const parallel::Fp8Scales& scales, const comm::GridCoord& coord,
                                  std::vector<std::vector<float>>& rows) {
  std::vector<io::Piece> pieces;
  rows.clear();
  if (coord.tensor != 0 || coord.data != 0) return pieces;
  rows.reserve(scales.held().size());
  for (const parallel::Fp8Scales::Held& held : scales.held()) {
    rows.push_back(scales.history(held.site));
    pieces.push_back(piece_of(held.tensor, rows.back()));
  }
  return pieces;
}

int64_t load_fp8(parallel::Fp8Scales& scales, io::CheckpointReader& reader) {
  int64_t missing = 0;
  for (const parallel::Fp8Scales::Held& held : scales.held()) {
    const io::TensorInfo* const stored = reader.has_kind(kFp8Amax) ? reader.find(kFp8Amax, held.tensor) : nullptr;
    if (stored == nullptr || stored->shape.size() != 2 || stored->shape[1] != kParts) {
      ++missing;
      continue;
    }
    std::vector<float> rows(static_cast<size_t>(stored->shape[0] * kParts));
    reader.read(piece_of(held.tensor, rows));
    scales.set_history(held.site, rows);
  }
  return missing;
}

}  // namespace triax::train
