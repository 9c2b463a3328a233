// Traces as PyTorch's profiler writes them, one file per rank, which Holistic Trace Analysis and its like load: device
// kernels by stream, each started by a runtime call of the same correlation, inside a step mark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace triax::io {

/// Streams of a device as the files number them.
enum class DeviceStream { Compute = 7, Data = 20, Tensor = 24, Pipeline = 28 };

struct DeviceKernel {
  std::string name;  ///< collectives begin with "nccl", copies with "Memcpy": that is how the tools know them
  DeviceStream stream = DeviceStream::Compute;
  int64_t start_ps = 0, stop_ps = 0;
};

struct RankTrace {
  int rank = 0, world_size = 1, device = 0;  ///< device: of the rank's node
  int64_t step_ps = 0;
  std::vector<DeviceKernel> kernels;  ///< none of one stream overlap
};

/// The JSON of one rank. Times are microseconds with six decimals: whole picoseconds.
std::string hta_json(const RankTrace& trace);

/// Writes `text` as gzip without name or date, so that equal texts make equal files. Throws RunTimeError.
void write_gzip_file(const std::string& path, const std::string& text);

}  // namespace triax::io
