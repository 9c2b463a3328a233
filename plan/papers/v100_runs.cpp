// Runs on V100 whose throughput is published as a few figures only: ZeRO's 40 configurations (SC20 artifact appendix)
// and the weak scaling of Megatron-LM 2019 (arXiv 1909.08053 figure 5).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "plan/papers/csv.h"
#include "plan/papers/results.h"

namespace triax::plan {
namespace {

PaperRun v100_run(int64_t layers, int64_t hidden, int64_t heads, int tensor, int data, int64_t micro_batch) {
  PaperRun run;
  run.machine = "v100-dgx2";
  run.software = "megatron-2019";
  run.metric = Metric::Tflops;
  run.shape = gpt_shape(layers, hidden, heads, 1024, 51200);
  run.shape.tensor = tensor;
  run.shape.data = run.shape.shard_group = data;
  run.shape.micro_batch = micro_batch;
  run.shape.recompute = parallel::RecomputeGranularity::Full;
  run.shape.recomputed_layers = layers;
  run.shape.overlap_grad_reduce = true;
  return run;
}

/// GB of model states (2 + 2 + 12 bytes, Pos+g for ZeRO) and of checkpoints, cut over mp for ZeRO (Pa).
double memory_gb(const StepShape& s) {
  const ShapeParameters p = parameters_of(s);
  const double psi = p.layer * static_cast<double>(s.layers) + p.embedding + p.head;
  const double states = s.zero == 2 ? 2 * psi + 14 * psi / s.data : 16 * psi;
  const double checkpoints = 2.0 * static_cast<double>(s.tokens() * s.hidden * s.layers) / (s.zero == 2 ? s.tensor : 1);
  return (states + checkpoints) * 1e-9;
}

PaperLine line_of(const std::string& preset, std::string series, std::string x, const char* unit, double published,
                  double predicted, const char* source) {
  return paper_line(PaperKind::Prediction, preset, std::move(series), std::move(x), unit, published, predicted, source);
}

constexpr const char* kAppendix = "SC20 artifact appendix of arXiv 1910.02054: no published number";

double tflops_of(const PaperRun& run) { return predict(run, paper_constants()).figure; }

PaperPreset zero_configs(const std::string& directory) {
  PaperPreset preset{"zero19-configs", "Rajbhandari 2019: 40 configurations on V100, and the text's figures", {}, ""};
  const std::string path = directory + "/zero2019_appendix_configs.csv";
  double sum = 0;
  int count = 0;
  if (!directory.empty() && std::filesystem::exists(path)) {
    CsvFile file;
    read_csv(path, file);
    for (const CsvRow& r : file.rows) {
      const bool zero = r.text("system") == "ZeRO";
      const auto gpus = static_cast<int>(r.integer("gpus"));
      const auto mp = static_cast<int>(r.integer("mp", 1));
      PaperRun run = v100_run(r.integer("layers"), r.integer("hidden"), r.integer("heads"), mp, std::max(1, gpus / mp),
                              r.integer("batch_per_replica", 1));
      run.shape.zero = zero && run.shape.data > 1 ? 2 : 0;
      const std::string x = fmt::format("{} {} on {}, mp {}", r.text("figure"), r.text("model"), gpus, mp);
      const double tflops = tflops_of(run);
      preset.lines.push_back(line_of(preset.name, r.text("system"), x, "TFLOP/s", 0, tflops, kAppendix));
      preset.lines.push_back(
          line_of(preset.name, r.text("system") + " memory", x, "GB", 0, memory_gb(run.shape), kAppendix));
      const double billions = r.number("model");
      if (zero && r.text("figure") == "fig2" && billions >= 8 && billions <= 100) {
        sum += tflops;
        ++count;
      }
    }
  }
  const char* const text = "arXiv 1910.02054, text";
  if (count > 0) {
    preset.lines.push_back(line_of(preset.name, "text", "8B to 100B on 400, mean", "TFLOP/s", 38, sum / count, text));
  }
  PaperRun thirteen = v100_run(62, 4096, 32, 1, 128, 2);
  thirteen.shape.zero = 2;
  preset.lines.push_back(
      line_of(preset.name, "text", "13B without mp on 128 (over 40)", "TFLOP/s", 40, tflops_of(thirteen), text));
  preset.lines.back().bound = Bound::Over;
  const PaperRun baseline = v100_run(40, 1536, 16, 1, 128, 1);
  preset.lines.push_back(
      line_of(preset.name, "text", "1.4B baseline DP (less than 20)", "TFLOP/s", 20, tflops_of(baseline), text));
  preset.lines.back().bound = Bound::Under;
  return preset;
}

/// Weak scaling: parameters per device and second against one device.
PaperPreset megatron19_figure5() {
  PaperPreset preset{"megatron19-fig5", "Shoeybi 2019 Figure 5: weak scaling on V100", {}, ""};
  const auto run_of = [](int64_t layers, int64_t hidden, int64_t heads, int tensor, int data) {
    PaperRun run = v100_run(layers, hidden, heads, tensor, data, 8);
    run.software = "megatron-2019";
    return run;
  };
  struct Row {
    const char* name;
    double billions;
    int64_t layers, hidden, heads;
    int tensor;
    double model_parallel, both;  // percent as printed
  };
  const Row rows[] = {{"1.2B", 1.2, 40, 1536, 16, 1, 100, 96},
                      {"2.5B", 2.5, 54, 1920, 20, 2, 0, 0},
                      {"4.2B", 4.2, 64, 2304, 24, 4, 0, 0},
                      {"8.3B", 8.3, 72, 3072, 32, 8, 77, 74}};
  const PaperRun one = run_of(40, 1536, 16, 1, 1);
  const char* const source = "arXiv 1909.08053 Table 1 and Figure 5";
  preset.lines.push_back(line_of(preset.name, "baseline", "1.2B on one device", "TFLOP/s", 39, tflops_of(one),
                                 "Megatron-LM README: 39 TFLOP/s, 30 % of peak"));
  preset.lines.back().fitted = true;
  const double base_s = predict(one, paper_constants()).step.step_s;
  for (const Row& row : rows) {
    for (const int data : {1, 64}) {
      const PaperRun run = run_of(row.layers, row.hidden, row.heads, row.tensor, data);
      const double s = predict(run, paper_constants()).step.step_s;
      const double percent = 100 * base_s / s * row.billions / 1.2 / row.tensor;
      const bool model_only = data == 1;
      if (model_only && row.tensor == 1) continue;  // 100 % by definition
      preset.lines.push_back(line_of(preset.name, model_only ? "model parallel" : "model + data parallel", row.name,
                                     "%", model_only ? row.model_parallel : row.both, percent, source));
    }
  }
  return preset;
}

}  // namespace

std::vector<PaperPreset> v100_presets(const std::string& directory) {
  return {megatron19_figure5(), zero_configs(directory)};
}

}  // namespace triax::plan
