// What one iteration, one evaluation and a whole run report. Plain values: the trainer fills them, the writers print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace triax::io {

/// One optimizer step. Times in ms, rates per second; sums and maxima over ranks are already taken.
struct IterationRecord {
  int64_t iteration = 0;  ///< 1-based
  int64_t consumed_samples = 0;
  int64_t consumed_tokens = 0;
  int64_t global_batch_size = 0;
  double lm_loss = 0;    ///< mean over the global batch's tokens
  double grad_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;        ///< overflow: weights unchanged
  bool nan = false;            ///< the loss is not finite
  double step_ms = 0;          ///< slowest rank
  double tokens_per_s = 0;     ///< whole job
  double comm_bytes = 0;       ///< bytes sent, sum over ranks
  double model_tflops = 0;     ///< per rank, causal half, no recompute
  double hardware_tflops = 0;  ///< per rank, with recompute
  double mfu = 0;              ///< model_tflops / peak; 0: peak unknown
  double bubble_fraction = 0;  ///< idle / total, mean over stages
  double data_wait_ms = 0;
  double exposed_comm_ms = 0;  ///< time the slowest rank stood waiting for communication
  int64_t memory_bytes = 0;    ///< live bytes of the fullest rank
  int64_t peak_memory_bytes = 0;
  std::optional<int64_t> num_zeros;
  std::optional<double> params_norm;
};

struct EvaluationRecord {
  int64_t iteration = 0;
  std::string split = "validation";  ///< "validation" or "test"
  double lm_loss = 0;
  std::optional<double> bits_per_byte;
  int64_t tokens = 0;
};

/// Why a run ended.
enum class EndReason { Finished, ExitInterval, ExitDuration, Signal, Failed };
const char* text_of(EndReason reason);

}  // namespace triax::io
