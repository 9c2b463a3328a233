// Bytes that kernels load from and store to global memory, as a GPU's memory system counts them: the lanes of a warp
// that are at the same place of the source for the same time make one access, and an access costs every sector of 32
// bytes that it touches once. What kernels reach through kernels/cuda/global_memory.h and asynchronous copies is
// counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace triax::simt {

struct Traffic {
  uint64_t launches = 0;
  uint64_t loaded_bytes = 0, stored_bytes = 0;
};

/// Fills up to `most` entries of kernels (by their names at the launch), in the order of their first launch since
/// counting began; returns how many there are.
using ReadTraffic = size_t (*)(const char** names, Traffic* traffic, size_t most);
/// 1: counting begins, from zero. 0: it ends.
using CountTraffic = void (*)(int on);

}  // namespace triax::simt

// The module's, by dlsym.
extern "C" size_t triax_emulated_traffic(const char** names, triax::simt::Traffic* traffic, size_t most);
extern "C" void triax_emulated_count_traffic(int on);
