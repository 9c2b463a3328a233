#include "train/host_values.h"

#include <algorithm>
#include <vector>

namespace triax::train {
namespace {

constexpr int64_t kPartBytes = int64_t{64} << 20;

}  // namespace

void make_on_host(kernels::Device& device, Tensor values,
                  const std::function<void(int64_t begin, int64_t end, Tensor part)>& make) {
  if (device.on_host()) return make(0, values.numel(), values);
  const int64_t step = kPartBytes / static_cast<int64_t>(size_of(values.dtype()));
  std::vector<std::byte> host(static_cast<size_t>(std::min(kPartBytes, values.bytes())));
  for (int64_t begin = 0; begin < values.numel(); begin += step) {
    const int64_t end = std::min(begin + step, values.numel());
    const Tensor part(host.data(), values.dtype(), {end - begin});
    make(begin, end, part);
    device.upload(part, values.range(begin, end));
  }
}

void read_piece(io::CheckpointReader& reader, const io::Piece& piece, kernels::Device& device) {
  if (device.on_host()) return reader.read(piece);
  std::vector<std::byte> host(static_cast<size_t>(piece.data.bytes()));
  io::Piece there = piece;
  there.data = Tensor(host.data(), piece.data.dtype(), {piece.data.numel()});
  reader.read(there);
  device.upload(there.data, piece.data);
}

double scalar_of(kernels::Device& device, Tensor value) {
  double host = 0;
  device.download(value.flat(), Tensor(&host, DType::Float64, {1}));
  return host;
}

}  // namespace triax::train
