// Values that the host makes or reads, of tensors that may lie in a device's memory.
#pragma once

#include <functional>

#include "io/checkpoint/reader.h"
#include "kernels/device.h"

namespace triax::train {

/// values = what `make(begin, end, part)` writes into part, elements begin .. end of them: in place where the device's
/// memory is the host's, else through host memory in parts of 64 MiB.
void make_on_host(kernels::Device& device, Tensor values,
                  const std::function<void(int64_t begin, int64_t end, Tensor part)>& make);

/// reader.read(piece), wherever the piece lies.
void read_piece(io::CheckpointReader& reader, const io::Piece& piece, kernels::Device& device);

/// One fp64 of the device's memory, when all work is done.
double scalar_of(kernels::Device& device, Tensor value);

}  // namespace triax::train
