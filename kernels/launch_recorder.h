// Operations put off and launched many at a time (CUDA graphs).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace triax::kernels {

class Device;

/// So far, of one device.
struct RecorderCounts {
  int64_t graphs = 0;             ///< held now
  int64_t made = 0;               ///< so far
  int64_t launches = 0;           ///< of graphs
  int64_t graph_operations = 0;   ///< operations in these launches
  int64_t single_operations = 0;  ///< operations of passes that were launched one by one
  int64_t passes = 0;
  int64_t replayed_passes = 0;  ///< in which every stretch of two operations or more was a graph's launch
};

/// One line of a run's results; the counts are rank 0's.
std::string describe(const RecorderCounts& counts);

/// Puts off the operations that are given to device() between begin() and end(). What else is given to the GPU in
/// between, a communication or a copy, comes after what was put off before it, and cuts the pass into stretches. A
/// stretch whose operations and arguments, to the last one, are those of an earlier stretch is launched as its graph.
class LaunchRecorder {
 public:
  virtual ~LaunchRecorder() = default;
  virtual Device& device() = 0;
  virtual void begin() = 0;
  virtual void end() = 0;
  /// In place of end(): what is put off is not done.
  virtual void discard() noexcept = 0;
  virtual RecorderCounts counts() const = 0;
};

/// One pass; a pass that an exception leaves is discarded.
class RecordedPass {
 public:
  /// Null: operations are done as they come.
  explicit RecordedPass(LaunchRecorder* recorder) : recorder_(recorder) {
    if (recorder_ != nullptr) recorder_->begin();
  }
  ~RecordedPass() {
    if (recorder_ != nullptr) recorder_->discard();
  }
  RecordedPass(const RecordedPass&) = delete;
  RecordedPass& operator=(const RecordedPass&) = delete;
  void finish() {
    if (LaunchRecorder* const recorder = std::exchange(recorder_, nullptr); recorder != nullptr) recorder->end();
  }

 private:
  LaunchRecorder* recorder_;
};

}  // namespace triax::kernels
