// Korthikanti 2022 (arXiv 2205.05198), ZeRO (arXiv 1910.02054) and zero-bubble schedules (arXiv 2401.10241) made small.
#include <fmt/format.h>

#include "plan/scaled/scaled.h"

namespace triax::plan {
namespace {

using Words = std::vector<std::string>;

PointRequest request(SweepMode mode, Words model, std::vector<Setting> settings, const Words& more) {
  model.insert(model.end(), more.begin(), more.end());
  return {mode, std::move(model), std::move(settings), 1};
}

struct Technique {
  const char* recompute;
  bool sequence;
};

ScaledPoint technique_point(std::string series, std::string x, std::vector<std::string> rows, const Technique& t) {
  Words more = {"--tensor-model-parallel-size", "2", "--micro-batch-size", "4", "--global-batch-size", "8"};
  if (std::string(t.recompute) == "full") {
    more.insert(more.end(), {"--recompute-method", "uniform", "--recompute-num-layers", "1"});
  }
  const std::vector<Setting> settings = {{"recompute-granularity", t.recompute},
                                         {"sequence-parallel", t.sequence ? "true" : "false"}};
  return {std::move(series), std::move(x), std::move(rows),
          request(SweepMode::Real, scaled_gpt({4, 256, 8, 128, 512}), settings, more)};
}

ScaledExperiment techniques(std::vector<ScaledPoint> points) {
  ScaledExperiment e;
  e.cut = "t 2 for 8, 4 layers, hidden 256 for 6144, b 4, s 128; a whole step";
  e.metric = "step_ms";
  e.unit = "ms";
  e.missing = "selective recomputation's cost: attention is tiled, without an s x s matrix to make again";
  e.points = std::move(points);
  return e;
}

/// Table 4: a layer's forward and backward, by technique.
ScaledExperiment table4() {
  const std::pair<const char*, Technique> all[] = {{"baseline no recompute", {"none", false}},
                                                   {"sequence parallelism", {"none", true}},
                                                   {"baseline with full recompute", {"full", false}},
                                                   {"selective recompute", {"selective", false}},
                                                   {"selective + sequence", {"selective", true}}};
  std::vector<ScaledPoint> points;
  for (int i = 0; i < 5; ++i) {
    points.push_back(technique_point("forward + backward", all[i].first,
                                     {fmt::format("k22t4_{}_forward", i), fmt::format("k22t4_{}_backward", i)},
                                     all[i].second));
  }
  return techniques(std::move(points));
}

/// Table 5, 22B: full recomputation against selective with sequence parallelism.
ScaledExperiment table5() {
  return techniques({technique_point("full", "22B", {"k22t5_22B_full"}, {"full", false}),
                     technique_point("selective", "22B", {"k22t5_22B_selseq"}, {"selective", true})});
}

/// Bytes that a rank holds between steps, by ZeRO stage: weights in 16 bit, gradients and Adam in 32.
ScaledPoint zero_point(std::string series, std::string x, std::string row, int stage, int d) {
  Words more = {"--bf16", "--micro-batch-size", "1", "--num-microbatches", "1", "--ddp-bucket-size", "40000"};
  if (stage == 3) more.insert(more.end(), {"--zero-param-persistence-threshold", "0"});
  const std::vector<Setting> settings = {{"zero-stage", std::to_string(stage)},
                                         {"data-parallel-size", std::to_string(d)}};
  return {std::move(series),
          std::move(x),
          {std::move(row)},
          request(SweepMode::Real, scaled_gpt({4, 128, 4, 64, 512}), settings, more)};
}

ScaledExperiment zero(const std::string& preset) {
  ScaledExperiment e;
  e.cut =
      "d 4 for 64, 0.9M parameters for 7.5B and more, 2 + 4 + 12 bytes per parameter for 2 + 2 + 12: gradients are "
      "fp32 "
      "here";
  e.metric = "memory_bytes";
  e.unit = "MB held";
  e.factor = 1e-6;
  const char* const names[] = {"baseline", "Pos", "Pos+g", "Pos+g+p"};
  if (preset == "zero19-fig1") {
    for (int stage = 0; stage <= 3; ++stage) {
      const std::string x = fmt::format("stage {}", stage);
      e.points.push_back(zero_point("7.5B", x, fmt::format("zero19-fig1/7.5B/{}", x), stage, 4));
    }
  } else if (preset == "zero19-table1") {
    e.cut = "d 2 and 4 for 16 and 64, " + e.cut.substr(e.cut.find("0.9M"));
    for (const int d : {2, 4}) {
      const int published = d == 2 ? 16 : 64;
      for (int stage = 1; stage <= 3; ++stage) {
        const std::string row = fmt::format("zero19-table1/7.5B/{} of {}", names[stage], published);
        e.points.push_back(zero_point(fmt::format("of {}", published), names[stage], row, stage, d));
      }
    }
  } else {
    // The largest model is the memory over the bytes of a parameter.
    e.sense = Sense::Inverse;
    for (int stage = 0; stage <= 3; ++stage) {
      e.points.push_back(
          zero_point(names[stage], "mp 1", fmt::format("zero19-table2/{}/mp 1", names[stage]), stage, 4));
    }
  }
  return e;
}

/// Table 5 of the zero-bubble paper, first row: the same ranks, micro-batches and times, a narrow model.
ScaledExperiment zero_bubble() {
  ScaledExperiment e;
  e.cut =
      "8 real ranks exchange real messages of a narrow model, p 8 and m 24 as published; times are Table 9's on the "
      "virtual clock";
  e.metric = "bubble_fraction";
  e.unit = "of total";
  const std::pair<const char*, const char*> schedules[] = {
      {"1F1B", "1f1b"}, {"1F1B-I", "interleaved"}, {"ZB-H1", "zb-h1"}, {"ZB-H2", "zb-h2"}};
  for (const auto& [series, schedule] : schedules) {
    Words model = scaled_gpt({24, 32, 2, 16, 64});
    model.insert(model.end(), {"--train-iters", "2"});
    const std::vector<Setting> settings = {
        {"pipeline-schedule", schedule},
        {"num-virtual-stages-per-pipeline-rank", std::string(schedule) == "interleaved" ? "3" : "-"}};
    e.points.push_back({series,
                        "zb_1.5B_24",
                        {fmt::format("zerobubble23-table5/{}/zb_1.5B_24", series)},
                        request(SweepMode::Virtual, model, settings,
                                {"--pipeline-model-parallel-size", "8", "--micro-batch-size", "1", "--num-microbatches",
                                 "24", "--cost", "F=18.522,I=18.086,W=9.337,P2P=0.601"})});
  }
  return e;
}

}  // namespace

ScaledExperiment scaled_method(const std::string& preset) {
  if (preset == "korthikanti22-table4") return table4();
  if (preset == "korthikanti22-table5") return table5();
  if (preset.starts_with("zero19-")) return zero(preset);
  if (preset == "zerobubble23-table5") return zero_bubble();
  return {};
}

}  // namespace triax::plan
