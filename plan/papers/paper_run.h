// One published measurement and the run it was taken from.
#pragma once

#include <string>
#include <vector>

#include "plan/step_time.h"

namespace triax::plan {

enum class Metric {
  Seconds,        ///< of an iteration
  Tflops,         ///< per device, the recomputed forward counted (Narayanan 2021, eq. 3)
  TflopsModel,    ///< per device, without it (Korthikanti 2022, eq. 7)
  SequencesPerS,  ///< of the job
  ForwardMs,      ///< of one layer
  BackwardMs,     ///< of one layer, recomputation included
  AllReduce,      ///< microseconds of one all-reduce of `bytes` over t ranks
  Estimated,      ///< B / ((B/b + p - 1) t) with the time t of one micro-batch, against the first run of the series
};
const char* unit_of(Metric metric);

struct PaperRun {
  std::string id, preset, series, x;
  std::string machine, software;  ///< presets of plan/hardware_presets.h or of papers/stacks.h
  StepShape shape;
  Metric metric = Metric::Seconds;
  double bytes = 0;      ///< Metric::AllReduce
  int64_t batch = 0;     ///< Metric::Estimated: B
  int stages = 1;        ///< Metric::Estimated: p
  double published = 0;  ///< 0: no published number at hand
  std::string certainty, source;
  bool fitted = false;  ///< in the rows that constants were fitted on
};

/// GPT as Megatron-LM builds it: f = 4h, GELU, LayerNorm, learned positions, biases, tied head, dropout 0.1.
StepShape gpt_shape(int64_t layers, int64_t hidden, int64_t heads, int64_t seq, int64_t vocab);

/// The figure in the run's metric from a predicted step.
double figure_of(const PaperRun& run, const StepTime& step, const LayerCosts& costs);

}  // namespace triax::plan
