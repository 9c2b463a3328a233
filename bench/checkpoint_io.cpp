#include "bench/checkpoint_io.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "bench/timing.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/reader.h"
#include "train/save_checkpoint.h"

namespace triax::bench {
namespace {

constexpr int64_t kCols = 1024;

/// This rank's rows of a matrix [rows * ranks, kCols].
io::Piece piece_of(comm::Communicator& all, std::vector<float>& values, int64_t rows) {
  io::Piece piece;
  piece.kind = io::kWeight;
  piece.tensor = "bench.weight";
  piece.spec.global_shape = {rows * all.size(), kCols};
  piece.spec.cut_dim = 0;
  piece.spec.begin = rows * all.rank();
  piece.spec.count = rows;
  piece.end = rows * kCols;
  piece.data = Tensor(values.data(), DType::Float32, {rows * kCols});
  return piece;
}

/// Named after rank 0's process, so that no other job has it; removed when this goes, and what was made to hold it.
class Scratch {
 public:
  Scratch(comm::Communicator& all, const std::string& parent, int64_t bytes) : all_(&all) {
    int64_t process = getpid();
    all.broadcast(Tensor(&process, DType::Int64, {1}), 0).wait();
    path_ = (std::filesystem::path(parent) / fmt::format("triax-bench-io-{}", process)).string();
    std::error_code error;
    if (all.rank() == 0) {
      std::error_code unknown;
      for (std::filesystem::path above = parent; !above.empty() && !std::filesystem::exists(above, unknown);
           above = above.parent_path()) {
        made_.push_back(above);
      }
      std::filesystem::create_directories(path_, error);
    }
    double failed = error ? 1 : 0;
    failed = over_ranks(all, failed, comm::ReduceOp::Max);
    if (failed > 0) {
      remove();
      throw RunTimeError(fmt::format("bench io: cannot make a directory in {}: give another --dir", parent));
    }
    double room = static_cast<double>(io::free_bytes(path_));
    room = -over_ranks(all, -room, comm::ReduceOp::Max);
    if (room < 2.0 * static_cast<double>(bytes)) {
      remove();
      throw RunTimeError(
          fmt::format("bench io: {} has {:.0f} bytes free, and a step needs {}; use a smaller --bytes or "
                      "another --dir",
                      parent, room, 2 * bytes));
    }
  }
  ~Scratch() { remove(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  void remove() {
    std::error_code ignored;
    if (all_->rank() != 0) return;
    std::filesystem::remove_all(path_, ignored);
    for (const std::filesystem::path& directory : made_) std::filesystem::remove(directory, ignored);  // only if empty
  }
  comm::Communicator* all_;
  std::string path_;
  std::vector<std::filesystem::path> made_;  ///< directories above it that were not there, the innermost first
};

}  // namespace

CheckpointIo measure_checkpoint_io(comm::Communicator& all, const std::string& directory, int64_t bytes_per_rank,
                                   int repeats) {
  const int64_t rows = std::max<int64_t>(1, bytes_per_rank / (kCols * 4));
  std::vector<float> values(static_cast<size_t>(rows * kCols), 0.01F);
  CheckpointIo result;
  result.bytes = rows * kCols * 4 * all.size();
  const Scratch scratch(all, directory, result.bytes);
  std::vector<double> writes, reads;
  for (int i = 0; i <= repeats; ++i) {
    train::SaveJob job;
    job.directory = scratch.path();
    job.header.weights.iteration = i + 1;
    job.pieces = {piece_of(all, values, rows)};
    for (int rank = 0; rank < all.size(); ++rank) job.writer.push_back(rank);
    job.retention.keep_latest = 1;
    all.barrier();
    Stopwatch watch;
    train::save_checkpoint(all, job);
    const double write_s = over_ranks(all, watch.elapsed_s(), comm::ReduceOp::Max);
    all.barrier();
    watch.restart();
    io::CheckpointReader(io::step_path(scratch.path(), i + 1)).read(job.pieces[0]);
    const double read_s = over_ranks(all, watch.elapsed_s(), comm::ReduceOp::Max);
    if (i == 0) continue;
    writes.push_back(write_s);
    reads.push_back(read_s);
  }
  all.barrier();
  result.write_s = statistics(std::move(writes)).median_s;
  result.read_s = statistics(std::move(reads)).median_s;
  return result;
}

}  // namespace triax::bench
