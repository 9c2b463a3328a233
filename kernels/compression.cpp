#include "kernels/compression.h"

namespace triax::kernels {

int64_t blocks_of(const CodeSegment& segment) {
  int64_t blocks = 0;
  for_blocks(segment, [&](int64_t, int64_t) { ++blocks; });
  return blocks;
}

int64_t packed_bytes(Codec codec, const CodeSegment& segment) {
  int64_t scales = 0, codes = 0;
  switch (codec) {
    case Codec::BFloat16:
      codes = 2 * segment.count;
      break;
    case Codec::Int8:
    case Codec::Qsgd:
      scales = 4 * blocks_of(segment);
      codes = segment.count;
      break;
    case Codec::Sign:
      scales = 4 * blocks_of(segment);
      for_blocks(segment, [&](int64_t, int64_t n) { codes += (n + 7) / 8; });
      break;
  }
  return scales + (codes + 3) / 4 * 4;
}

}  // namespace triax::kernels
