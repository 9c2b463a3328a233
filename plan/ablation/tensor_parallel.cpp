// What tensor parallelism costs: step time, bytes and exposed communication over its degree, with and without sequence
// parallelism.
#include <fmt/format.h>

#include <cmath>

#include "plan/ablation/common.h"

namespace triax::plan {
namespace {

constexpr int kTensorDegrees[] = {1, 2, 4};

std::vector<Setting> tensor_parallel_settings(int t, bool sequence) {
  return {{"tensor-model-parallel-size", std::to_string(t)}, {"sequence-parallel", sequence ? "true" : "-"}};
}

std::vector<PointRequest> tensor_parallel_points() {
  std::vector<PointRequest> all;
  for (const int t : kTensorDegrees) {
    for (const bool sequence : {false, true}) {
      if (t == 1 && sequence) continue;
      all.push_back(
          real_point(tensor_parallel_settings(t, sequence), {"--micro-batch-size", "4", "--global-batch-size", "8"}));
    }
  }
  return all;
}

/// Bytes that a rank sends for the layers of one step: 4 all-reduces of bsh elements per layer and micro-batch, two
/// forward and two backward: 4 x 2 (t-1)/t bsh (Shoeybi 2019 section 3). With sequence parallelism each is an
/// all-gather and a reduce-scatter, the same bytes, and the backward gathers the two inputs that it kept as shards once
/// more: 10 instead of 8 (Korthikanti 2022 section 4.2.2).
double tensor_formula_bytes(const io::RunOptions& o) {
  const double t = o.parallel.grid.tensor;
  const double elements = static_cast<double>(o.batch.micro_batch_size * o.model.seq_length * o.model.hidden_size);
  const double size = static_cast<double>(size_of(io::compute_dtype(o.control.precision)));
  return static_cast<double>(o.batch.num_micro_batches * o.model.num_layers) * (o.parallel.sequence_parallel ? 10 : 8) *
         (t - 1) / t * elements * size;
}

double sent_for_layers(const AblationRow& one) {
  double sum = 0;
  for (const char* name : {"tp_attention_sent_bytes", "tp_mlp_sent_bytes"}) {
    const double value = one.row.mean(name);
    if (std::isfinite(value)) sum += value;
  }
  return sum;
}

AblationResult conclude_tensor_parallel(const AblationData& data) {
  AblationResult result;
  io::Figure time{.name = "tensor-parallel",
                  .title = "Tensor parallelism: step time over its degree",
                  .x_label = "tensor-parallel ranks t",
                  .y_label = "step time in ms",
                  .categories = {"1", "2", "4"}};
  io::Figure bytes{.name = "tensor-parallel-bytes",
                   .title = "Tensor parallelism: bytes that a rank sends for its layers",
                   .x_label = "tensor-parallel ranks t",
                   .y_label = "MB sent per rank and step",
                   .categories = {"1", "2", "4"}};
  io::Series plain{.label = "t alone", .look = io::SeriesLook::Bars},
      sequence{.label = "with sequence parallelism", .look = io::SeriesLook::Bars};
  io::Series exposed{.label = "of it waiting (t alone)", .look = io::SeriesLook::Bars};
  io::Series sent{.label = "measured, t alone", .look = io::SeriesLook::Bars},
      sent_sp{.label = "measured, sequence parallel", .look = io::SeriesLook::Bars};
  io::Series theory{.label = "8 (t-1)/t bsh L m", .look = io::SeriesLook::Bars};
  io::Series theory_sp{.label = "10 (t-1)/t bsh L m", .look = io::SeriesLook::Bars};
  std::string list;
  for (int place = 0; place < 3; ++place) {
    const int t = kTensorDegrees[place];
    for (const bool with : {false, true}) {
      const AblationRow* one = data.find(tensor_parallel_settings(t, with));
      if (one == nullptr || !one->options || one->row.done == 0) continue;
      add_point(with ? sequence : plain, place, one, "step_ms");
      if (!with) add_point(exposed, place, one, "exposed_comm_ms");
      io::Series& series = with ? sent_sp : sent;
      series.x.push_back(place);
      series.y.push_back(sent_for_layers(*one) * 1e-6);
      const double formula = tensor_formula_bytes(*one->options);
      io::Series& line = with ? theory_sp : theory;
      line.x.push_back(place);
      line.y.push_back(formula * 1e-6);
      if (t > 1) {
        list += fmt::format("{}t {}{} {} ({})", list.empty() ? "" : "; ", t, with ? " sp" : "",
                            mb_text(sent_for_layers(*one)), against(sent_for_layers(*one), formula));
      }
    }
  }
  time.series = {plain, sequence, exposed};
  bytes.series = {sent, theory, sent_sp, theory_sp};
  const double one = data.mean(tensor_parallel_settings(1, false), "step_ms"),
               two = data.mean(tensor_parallel_settings(2, false), "step_ms");
  const double two_sp = data.mean(tensor_parallel_settings(2, true), "step_ms");
  result.lines = {
      fmt::format("Sent per rank and step, measured (against the formula): {}.", list),
      fmt::format("Step: t 1 {}, t 2 {} (speed-up {:.2f}), t 2 with sequence parallelism {} (speed-up {:.2f}).",
                  ms_text(one), ms_text(two), one / two, ms_text(two_sp), one / two_sp),
      cores_note(4)};
  time.notes = {result.lines[1], result.lines[2]};
  bytes.notes = {result.lines[0],
                 "Formula: four all-reduces of bsh elements per layer and micro-batch (arXiv 1909.08053); sequence "
                 "parallelism gathers two "
                 "inputs once more in the backward (arXiv 2205.05198)."};
  result.figures = {time, bytes};
  return result;
}

}  // namespace

Ablation tensor_parallel_ablation() {
  return {"tensor-parallel", "what tensor parallelism costs over its degree, with and without sequence parallelism",
          "a rank sends 8 (t-1)/t b s h elements per layer and micro-batch, 10 with sequence parallelism (arXiv "
          "1909.08053, "
          "2205.05198)",
          tensor_parallel_points, conclude_tensor_parallel};
}

}  // namespace triax::plan
