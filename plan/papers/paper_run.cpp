#include "plan/papers/paper_run.h"

namespace triax::plan {

const char* unit_of(Metric metric) {
  switch (metric) {
    case Metric::Seconds:
      return "s";
    case Metric::Tflops:
    case Metric::TflopsModel:
      return "TFLOP/s";
    case Metric::SequencesPerS:
      return "sequences/s";
    case Metric::ForwardMs:
    case Metric::BackwardMs:
      return "ms";
    case Metric::AllReduce:
      return "us";
    case Metric::Estimated:
      return "relative";
  }
  return "";
}

StepShape gpt_shape(int64_t layers, int64_t hidden, int64_t heads, int64_t seq, int64_t vocab) {
  StepShape s;
  s.layers = layers;
  s.hidden = hidden;
  s.ffn = 4 * hidden;
  s.heads = s.kv_heads = heads;
  s.head_size = hidden / heads;
  s.seq = seq;
  s.vocab = vocab;
  s.dtype = DType::Float16;
  s.gradient_bytes = 2;
  s.overlap_p2p = false;
  s.overlap_grad_reduce = false;
  return s;
}

double figure_of(const PaperRun& run, const StepTime& step, const LayerCosts& costs) {
  const double ranks = run.shape.ranks();
  const PassTimes& layer = costs.layer;
  switch (run.metric) {
    case Metric::Seconds:
      return step.step_s;
    case Metric::Tflops:
      return step_flops_of(run.shape, FlopCount::Hardware) / step.step_s / ranks * 1e-12;
    case Metric::TflopsModel:
      return step_flops_of(run.shape, FlopCount::Model) / step.step_s / ranks * 1e-12;
    case Metric::Estimated: {
      const auto batch = static_cast<double>(run.batch);
      const double passes = batch / static_cast<double>(run.shape.micro_batch) + run.stages - 1;
      return batch / (passes * step.step_s);
    }
    case Metric::SequencesPerS:
      return static_cast<double>(run.shape.global_batch()) / step.step_s;
    case Metric::ForwardMs:
      return 1e3 * layer.forward.total();
    case Metric::AllReduce:
      return 0;  // not of a step
    case Metric::BackwardMs:
      return 1e3 * (layer.backward_input.total() + layer.backward_weight.total() + layer.recompute.total());
  }
  return 0;
}

}  // namespace triax::plan
