// What a rank gives to a checkpoint or asks from it: a range of what it holds of one tensor.
#pragma once

#include <cstdint>
#include <string>

#include "base/tensor.h"
#include "parallel/parameter.h"

namespace triax::io {

/// Kinds of tensor; each is a group of the file. Others are allowed: a kind is a name.
inline constexpr const char* kWeight = "weight";        ///< in the compute type
inline constexpr const char* kMaster = "master";        ///< in the state type; absent when weights have that type
inline constexpr const char* kExpAvg = "exp_avg";       ///< Adam's first moment
inline constexpr const char* kExpAvgSq = "exp_avg_sq";  ///< Adam's second moment
inline constexpr const char* kMomentum = "momentum";    ///< SGD's buffer

/// Where a piece lies when it is saved: with the tensors of the device, or with the host whatever the device.
enum class PieceMemory { Device, Host };

/// Elements [begin, end) of the local elements (row-major, padding excluded) of a tensor cut as `spec` says.
struct Piece {
  std::string kind;
  std::string tensor;  ///< global name
  parallel::ShardSpec spec;
  int64_t begin = 0, end = 0;
  Tensor data;  ///< [end - begin], host; read from when saving, filled when loading
  PieceMemory memory = PieceMemory::Device;

  int64_t bytes() const { return data.bytes(); }
};

}  // namespace triax::io
