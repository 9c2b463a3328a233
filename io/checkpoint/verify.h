// Integrity and content of checkpoints.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/reader.h"

namespace triax::io {

/// Every file of a step's directory against its checksum. One text per fault: file missing, cut or changed, with the
/// tensors whose values are hit (by the checksum of each dataset). A path to a plain file: only whether its tensors can
/// be read.
std::vector<std::string> verify(const std::string& path);

/// The same for the files whose number is `index` modulo `count`; throws RunTimeError with all faults. A plain file has
/// no checksums and passes.
void verify_share(const std::string& path, int index, int count);

/// 64-bit XXH3 of the values of a whole tensor in row-major order.
std::string content_hash(CheckpointReader& reader, const TensorInfo& tensor);
/// Of names, kinds, types, shapes and values of all tensors: the same from every layout, whatever the files look like.
std::string content_hash(CheckpointReader& reader);

struct Tolerance {
  double absolute = 0, relative = 0;  ///< |a - b| <= absolute + relative * |b|
};
struct TensorDifference {
  std::string kind, name;
  std::string fault;      ///< "only in a", "only in b", "shape [..] and [..]"; empty: compared
  int64_t differing = 0;  ///< elements beyond the tolerance (with none: of other bits, types alike)
  double largest = 0;     ///< largest |a - b|
};
/// Tensors that differ, sorted; values of different types are compared as numbers. Empty: equal within the tolerance.
/// Kinds outside `kinds` (empty: all) are left out.
std::vector<TensorDifference> differences(CheckpointReader& a, CheckpointReader& b, const Tolerance& tolerance,
                                          const std::vector<std::string>& kinds);

}  // namespace triax::io
