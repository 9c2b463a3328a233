#include "train/compression_checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "train/host_values.h"

namespace triax::train {

using parallel::Parameter;

namespace {

std::string residual_kind(int64_t data_rank) { return fmt::format("{}.dp{}", comm::kGradResidual, data_rank); }

const Parameter& parameter_of(const parallel::ParameterStore& store, const comm::StateTensor& state) {
  for (const Parameter& p : store.parameters()) {
    if (state.begin >= p.offset && state.begin < p.offset + p.numel) return p;
  }
  ensure(false, "compression state of a tensor that is not in the store");
  return store.parameters()[0];
}

io::Piece piece_of(const comm::StateTensor& state, const Parameter& p, const comm::GridCoord& coord) {
  io::Piece piece{state.kind, p.name, p.spec, state.begin - p.offset, state.end - p.offset, state.values};
  if (std::string_view(state.kind) == comm::kGradResidual) piece.kind = residual_kind(coord.data);
  if (std::string_view(state.kind) != comm::kPowerSgdQ) return piece;
  piece.kind = fmt::format("{}.tp{}", comm::kPowerSgdQ, coord.tensor);
  piece.spec = {};
  piece.spec.global_shape = {state.values.rows(), state.values.cols()};
  piece.spec.count = state.values.rows();
  piece.begin = 0;
  piece.end = state.values.numel();
  piece.data = state.values.flat();
  return piece;
}

template <class T>
void add(const std::vector<std::byte>& from, std::vector<std::byte>& to) {
  for (size_t at = 0; at < to.size(); at += sizeof(T)) {
    T value, sum;
    std::memcpy(&value, &from[at], sizeof(T));
    std::memcpy(&sum, &to[at], sizeof(T));
    sum += value;
    std::memcpy(&to[at], &sum, sizeof(T));
  }
}

/// residual of dp rank D = sum of the checkpoint's D, D + d, D + 2 d, ...
bool load_residual(const comm::StateTensor& state, io::Piece piece, int first, int data_ranks,
                   io::CheckpointReader& reader, kernels::Device& device) {
  const bool found = reader.has_kind(residual_kind(0)) && reader.find(residual_kind(0), piece.tensor) != nullptr;
  const DType dtype = state.values.dtype();
  const auto size = static_cast<size_t>(state.values.bytes());
  std::vector<std::byte> sum, next(size);
  piece.data = Tensor(next.data(), dtype, {state.values.numel()});
  for (int64_t d = first; reader.has_kind(residual_kind(d)); d += data_ranks) {
    piece.kind = residual_kind(d);
    if (reader.find(piece.kind, piece.tensor) == nullptr) return false;
    reader.read(piece);
    if (sum.empty()) {
      sum = next;
    } else {
      dtype == DType::Float64 ? add<double>(next, sum) : add<float>(next, sum);
    }
  }
  if (!sum.empty()) device.upload(Tensor(sum.data(), dtype, {state.values.numel()}), state.values.flat());
  return found;
}

}  // namespace

std::vector<io::Piece> compression_pieces(const GradientCompression& compression, const parallel::ParameterStore& store,
                                          const comm::GridCoord& coord) {
  std::vector<io::Piece> pieces;
  for (const comm::StateTensor& state : compression.state()) {
    const Parameter& p = parameter_of(store, state);
    if (p.spec.replica != 0 || p.tied_copy || (state.replicated && coord.data != 0)) continue;
    pieces.push_back(piece_of(state, p, coord));
  }
  return pieces;
}

int64_t load_compression(const GradientCompression& compression, const parallel::ParameterStore& store,
                         const comm::GridCoord& coord, int data_ranks, io::CheckpointReader& reader,
                         kernels::Device& device) {
  int64_t missing = 0;
  for (const comm::StateTensor& state : compression.state()) {
    const io::Piece piece = piece_of(state, parameter_of(store, state), coord);
    if (std::string_view(state.kind) == comm::kGradResidual) {
      missing += load_residual(state, piece, coord.data, data_ranks, reader, device) ? 0 : 1;
      continue;
    }
    const io::TensorInfo* stored = reader.find(piece.kind, piece.tensor);
    if (stored == nullptr || stored->shape != piece.spec.global_shape) {
      ++missing;
      continue;
    }
    read_piece(reader, piece, device);
  }
  return missing;
}

}  // namespace triax::train
