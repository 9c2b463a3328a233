// index.h5: every tensor whole, as a virtual dataset over the boxes of the shards.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/header.h"
#include "io/checkpoint/shard.h"

namespace triax::io {

/// Of a tensor of one or two dimensions, as HDF5 wants them.
std::vector<hsize_t> to_dims(int64_t rows, int64_t cols, size_t rank);

inline constexpr const char* kIndexFile = "index.h5";
inline constexpr const char* kChecksumFile = "checksums.xxh128";

/// "shard_00003.h5".
std::string shard_name(int writer);

/// Writes <directory>/index.h5 and <directory>/checksums.xxh128 (lines of `xxh128sum`, for the shards and the index),
/// and makes them and the directory durable. Missing elements of a virtual dataset read as NaN. Throws std::logic_error
/// when the boxes of a tensor do not cover it exactly once.
void write_index(const std::string& directory, const CheckpointHeader& header, const std::vector<ShardSummary>& shards,
                 const SaveHook& hook = {});

/// "<32 hex digits>  <file>" of each line of <directory>/checksums.xxh128, in its order. Throws RunTimeError.
struct FileChecksumLine {
  std::string checksum, file;
};
std::vector<FileChecksumLine> read_checksum_file(const std::string& directory);

}  // namespace triax::io
