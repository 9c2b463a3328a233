#include "plan/papers/preset_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "plan/papers/fit_rows.h"
#include "plan/papers/read_runs.h"

namespace triax::plan {
namespace {

using parallel::ScheduleKind;

constexpr const char* kNarayanan = "arXiv 2104.04473";
constexpr const char* kScripts = "configuration: Megatron-LM examples/academic_paper_scripts/sc21";

/// One point of a figure or a row of a table.
struct PresetPoint {
  std::string id, series, x;
  int64_t layers, hidden, heads;
  int tensor, pipeline, data, chunks;
  int64_t micro_batch, global_batch;
  double published = 0;
};

enum class Checkpoints { All, None };

PaperRun megatron21(const std::string& preset, const PresetPoint& p, Checkpoints checkpoints = Checkpoints::All) {
  PaperRun run;
  run.id = p.id;
  run.preset = preset;
  run.series = p.series;
  run.x = p.x;
  run.machine = "a100-80gb";
  run.software = "megatron-2021";
  run.metric = Metric::Tflops;
  run.published = p.published;
  run.certainty.assign(p.published > 0 ? 1 : 0, 'D');
  run.source = p.published > 0 ? std::string(kNarayanan) + ", digitised; " + kScripts : kScripts;
  StepShape& s = run.shape;
  s = gpt_shape(p.layers, p.hidden, p.heads, 2048, 51200);
  s.tensor = p.tensor;
  s.pipeline = p.pipeline;
  s.data = s.shard_group = p.data;
  s.chunks = p.chunks;
  s.schedule = p.chunks > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneFOneB;
  s.micro_batch = p.micro_batch;
  s.num_micro_batches = std::max<int64_t>(1, p.global_batch / (p.micro_batch * p.data));
  s.scatter_gather = p.pipeline > 1 && p.tensor > 1;
  if (checkpoints == Checkpoints::All) {
    s.recompute = parallel::RecomputeGranularity::Full;
    s.recomputed_layers = s.layers;
  }
  return run;
}

void add_table1(std::vector<PaperRun>& runs) {
  struct Row {
    double billions;
    PresetPoint point;
  };
  // 39B and 1T: section 5.1 says interleaved where the script names no virtual stages; two chunks are the least.
  const Row rows[] = {{1.7, {"m21t1_1.7", "", "", 24, 2304, 24, 1, 1, 32, 1, 16, 512}},
                      {3.6, {"m21t1_3.6", "", "", 30, 3072, 32, 2, 1, 32, 1, 16, 512}},
                      {7.5, {"m21t1_7.5", "", "", 36, 4096, 32, 4, 1, 32, 1, 16, 512}},
                      {18.4, {"m21t1_18.4", "", "", 40, 6144, 48, 8, 1, 32, 1, 8, 1024}},
                      {39.1, {"m21t1_39.1", "", "", 48, 8192, 64, 8, 2, 32, 2, 4, 1536}},
                      {76.1, {"m21t1_76.1", "", "", 60, 10240, 80, 8, 4, 32, 3, 2, 1792}},
                      {145.6, {"m21t1_145.6", "", "", 80, 12288, 96, 8, 8, 24, 2, 2, 2304, 148}},
                      {310.1, {"m21t1_310.1", "", "", 96, 16384, 128, 8, 16, 15, 2, 1, 2160}},
                      {529.6, {"m21t1_529.6", "", "", 105, 20480, 128, 8, 35, 9, 3, 1, 2520}},
                      {1008, {"m21t1_1008", "", "", 128, 25600, 160, 8, 64, 6, 2, 1, 3072, 163}}};
  for (const Row& row : rows) {
    PaperRun run = megatron21("megatron21-table1", row.point);
    run.x = fmt::format("{}B", row.billions);
    run.certainty.assign(run.published > 0 ? 1 : 0, 'A');
    run.source = std::string(kNarayanan) + " Table 1; " + kScripts;
    run.shape.overlap_grad_reduce = run.shape.pipeline == 1;  // torch's DDP there, Megatron's own elsewhere
    runs.push_back(std::move(run));
  }
}

void add_table2(std::vector<PaperRun>& runs) {
  struct Row {
    PresetPoint point;
    bool zero;
  };
  const Row rows[] = {
      {{"m21t2_zero3_174.6_384", "zero3", "174.6B on 384", 96, 12288, 96, 1, 1, 384, 1, 4, 1536, 144}, true},
      {{"m21t2_zero3_529.6_1120", "zero3", "529.6B on 1120", 105, 20480, 128, 1, 1, 1120, 1, 2, 2240}, true},
      {{"m21t2_ptdp_174.6_384", "ptdp", "174.6B on 384", 96, 12288, 96, 8, 12, 4, 1, 1, 1536, 153}, false},
      {{"m21t2_ptdp_529.6_560", "ptdp", "529.6B on 560", 105, 20480, 128, 8, 35, 2, 1, 1, 2240}, false}};
  for (const Row& row : rows) {
    PaperRun run = megatron21("megatron21-table2", row.point);
    run.certainty.assign(1, 'A');
    run.source = std::string(kNarayanan) + " Table 2";
    if (row.zero) {
      run.software = "megatron-2021-zero3";
      run.shape.zero = 3;
      run.shape.overlap_grad_reduce = run.shape.overlap_param_gather = true;
    }
    runs.push_back(std::move(run));
  }
}

/// Figure 7: one device. Figure 8: its times in equation 1, (b'/b + p - 1)(f + b), for p = 8.
void add_fig7_fig8(std::vector<PaperRun>& runs) {
  for (int i = 0; i < 5; ++i) {
    const int64_t b = int64_t{1} << i;
    const std::string x = fmt::format("micro_batch {}", b);
    runs.push_back(megatron21("megatron21-fig7", {fmt::format("m21f7_single_{}", b), "single", x, 4, 4096, 128, 1, 1, 1,
                                                  1, b, b, b == 4 ? 86.0 : 0}));
  }
  for (int series = 0; series < 2; ++series) {
    const int64_t batch = series == 0 ? 128 : 512;
    for (int i = 0; i < 5; ++i) {
      const int64_t b = int64_t{1} << i;
      PaperRun run = megatron21("megatron21-fig8", {fmt::format("m21f8_bs{}_{}", batch, b), fmt::format("bs{}", batch),
                                                    fmt::format("micro_batch {}", b), 4, 4096, 128, 1, 1, 1, 1, b, b});
      run.metric = Metric::Estimated;
      run.batch = batch;
      run.stages = 8;
      runs.push_back(std::move(run));
    }
  }
}

void add_fig11_fig12(std::vector<PaperRun>& runs) {
  for (int series = 0; series < 2; ++series) {
    const int64_t batch = series == 0 ? 8 : 128;
    for (int i = 0; i < 4; ++i) {
      const int p = 1 << i;
      const double published = batch == 8 && p == 8 ? 87 : batch == 128 && p == 1 ? 175 : 0;
      runs.push_back(megatron21("megatron21-fig11",
                                {fmt::format("m21f11_bs{}_{}", batch, p), fmt::format("bs{}", batch),
                                 fmt::format("pp {}", p), 3 * p, 20480, 128, 8, p, 1, 1, 1, batch, published}));
    }
  }
  for (const int chunks : {1, 4}) {
    const std::string series = chunks == 1 ? "non-interleaved" : "interleaved";
    for (int64_t batch = 12; batch <= 60; batch += 12) {
      runs.push_back(
          megatron21("megatron21-fig12", {fmt::format("m21f12_{}_{}", series, batch), series,
                                          fmt::format("batch {}", batch), 96, 12288, 96, 8, 12, 1, chunks, 1, batch}));
    }
  }
}

void add_fig13_to_fig15(std::vector<PaperRun>& runs) {
  for (int i = 1; i <= 5; ++i) {
    const int n = 1 << i;
    for (const int64_t batch : {32, 128, 512}) {
      const std::string series = fmt::format("bs{}", batch);
      const auto add = [&](int figure, const char* axes, int64_t hidden, int64_t heads, int t, int p, int d, double y) {
        const int first = figure == 15 ? t : p;
        const int second = figure == 13 ? t : d;
        runs.push_back(
            megatron21(fmt::format("megatron21-fig{}", figure),
                       {fmt::format("m21f{}_{}_{},{}", figure, series, first, second), series,
                        fmt::format("{} {},{}", axes, first, second), 32, hidden, heads, t, p, d, 1, 1, batch, y}));
      };
      if (batch != 512) add(13, "pp,tp", 20480, 128, 64 / n, n, 1, 0);
      if (batch != 128 && batch >= 64 / n) add(14, "pp,dp", 3840, 32, 1, n, 64 / n, batch == 512 && n == 2 ? 148 : 0);
      add(15, "tp,dp", 3840, 32, n, 1, 64 / n, batch == 128 && n == 8 ? 71 : 0);
    }
  }
}

void add_fig16_to_fig18(std::vector<PaperRun>& runs) {
  for (const int64_t batch : {128, 512}) {
    for (const int64_t b : {1, 2, 4, 8}) {
      runs.push_back(
          megatron21("megatron21-fig16", {fmt::format("m21f16_bs{}_{}", batch, b), fmt::format("bs{}", batch),
                                          fmt::format("micro_batch {}", b), 32, 15360, 128, 8, 8, 1, 1, b, batch}));
    }
  }
  for (const Checkpoints checkpoints : {Checkpoints::All, Checkpoints::None}) {
    const std::string series = checkpoints == Checkpoints::All ? "recompute" : "no recompute";
    for (int64_t batch = 1; batch <= 256; batch *= 2) {
      PaperRun run = megatron21("megatron21-fig17",
                                {fmt::format("m21f17_{}_{}", checkpoints == Checkpoints::All ? "on" : "off", batch),
                                 series, fmt::format("batch {}", batch), 80, 12288, 96, 8, 16, 1, 1, 1, batch},
                                checkpoints);
      run.metric = Metric::SequencesPerS;
      runs.push_back(std::move(run));
    }
  }
  for (const bool scattered : {true, false}) {
    for (int64_t batch = 12; batch <= 60; batch += 12) {
      PaperRun run =
          megatron21("megatron21-fig18", {fmt::format("m21f18_{}_{}", scattered ? "on" : "off", batch),
                                          scattered ? "scatter/gather" : "unoptimized", fmt::format("batch {}", batch),
                                          96, 12288, 96, 8, 12, 1, 4, 1, batch});
      run.shape.scatter_gather = scattered;
      runs.push_back(std::move(run));
    }
  }
}

void add_korthikanti(std::vector<PaperRun>& runs) {
  struct Model {
    const char* name;
    int64_t layers, hidden, heads, micro_batch, batch;
    int pipeline, chunks;
    double full_s, selective_s;
  };
  const Model models[] = {{"22B", 48, 6144, 64, 4, 4, 1, 1, 1.42, 1.10},
                          {"175B", 96, 12288, 96, 1, 64, 8, 3, 18.13, 0},
                          {"530B", 105, 20480, 128, 1, 280, 35, 3, 0, 0},
                          {"1T", 128, 25600, 160, 1, 512, 64, 1, 0, 0}};
  for (const Model& m : models) {
    for (const bool full : {true, false}) {
      PaperRun run = megatron21(
          "korthikanti22-table5",
          {fmt::format("k22t5_{}_{}", m.name, full ? "full" : "selseq"), full ? "full" : "selective", m.name, m.layers,
           m.hidden, m.heads, 8, m.pipeline, 1, m.chunks, m.micro_batch, m.batch, full ? m.full_s : m.selective_s},
          full ? Checkpoints::All : Checkpoints::None);
      run.software = "megatron-2022";
      run.metric = Metric::Seconds;
      run.certainty.assign(run.published > 0 ? 1 : 0, 'A');
      run.source = "arXiv 2205.05198 Tables 3 and 5";
      run.shape.gradient_bytes = 4;
      run.shape.sequence_parallel = !full;
      run.shape.scatter_gather = full && m.pipeline > 1;
      if (!full) run.shape.recompute = parallel::RecomputeGranularity::Selective;
      runs.push_back(std::move(run));
    }
  }
}

/// The baseline of Megatron-LM 2019: one V100 of a DGX-2H.
void add_megatron19(std::vector<PaperRun>& runs) {
  PaperRun run =
      megatron21("megatron19-fig5", {"m19_baseline", "baseline", "1.2B", 40, 1536, 16, 1, 1, 1, 1, 8, 8, 39});
  run.machine = "v100-dgx2";
  run.software = "megatron-2019";
  run.shape.seq = 1024;
  run.source = "Megatron-LM README: 39 TFLOP/s, 30 % of peak";
  runs.push_back(std::move(run));
}

struct Reader {
  const char* preset;
  std::function<void(const CsvFile&, std::vector<PaperRun>&)> read;
};

const std::vector<std::pair<std::string, Reader>>& readers() {
  static const std::vector<std::pair<std::string, Reader>> kReaders{
      {"megatron2021_table1.csv", {"megatron21-table1", read_megatron21_table1}},
      {"megatron2021_table2_zero3.csv", {"megatron21-table2", read_megatron21_table2}},
      {"megatron2021_figures_7_8_11_to_18.csv", {"megatron21-fig", read_megatron21_figures}},
      {"korthikanti2022_table4_layer_times.csv", {"korthikanti22-table4", read_korthikanti22_table4}},
      {"korthikanti2022_tables3_5.csv", {"korthikanti22-table5", read_korthikanti22_table5}},
      {"megatron2020_readme_scaling.csv", {"megatron20-readme", read_megatron20_readme}},
      {"megatron_core_2024_h100.csv", {"megatron-core24", read_megatron_core24}},
      {"mtnlg_530b.csv", {"mtnlg-530b", read_mtnlg}},
      {"vtrain_multi.csv",
       {"vtrain-multi", [](const CsvFile& f, std::vector<PaperRun>& r) { read_vtrain(f, VTrainNodes::Many, r); }}},
      {"vtrain_single.csv",
       {"vtrain-single", [](const CsvFile& f, std::vector<PaperRun>& r) { read_vtrain(f, VTrainNodes::One, r); }}},
      {"vtrain_nccl_allreduce_lut.csv", {"vtrain-nccl", read_nccl}},
      {"llmfoundry_fsdp.csv", {"llmfoundry-fsdp", read_llmfoundry}}};
  return kReaders;
}

bool same_configuration(const PaperRun& a, const PaperRun& b) {
  const StepShape& x = a.shape;
  const StepShape& y = b.shape;
  const auto key = [](const StepShape& s) {
    return std::make_tuple(s.layers, s.hidden, s.tensor, s.pipeline, s.data, s.chunks, s.micro_batch,
                           s.num_micro_batches, s.recompute, s.scatter_gather, s.sequence_parallel, s.zero);
  };
  return a.preset == b.preset && a.metric == b.metric && a.batch == b.batch && key(x) == key(y);
}

}  // namespace

const std::vector<RunPreset>& run_presets() {
  static const std::vector<RunPreset> kPresets = [] {
    std::vector<RunPreset> all{
        {"megatron21-table1", "Narayanan 2021 Table 1: weak scaling, 1.7B to 1T on 32 to 3072 A100",
         "megatron2021_table1.csv"},
        {"megatron21-table2", "Narayanan 2021 Table 2: PTD-P and ZeRO-3", "megatron2021_table2_zero3.csv"}};
    for (const int figure : {7, 8, 11, 12, 13, 14, 15, 16, 17, 18}) {
      all.push_back({fmt::format("megatron21-fig{}", figure), fmt::format("Narayanan 2021 Figure {}", figure),
                     "megatron2021_figures_7_8_11_to_18.csv"});
    }
    all.push_back({"korthikanti22-table4", "Korthikanti 2022 Table 4: one 22B layer",
                   "korthikanti2022_table4_layer_times.csv", true});
    all.push_back({"korthikanti22-table5", "Korthikanti 2022 Table 5: full against selective recomputation",
                   "korthikanti2022_tables3_5.csv"});
    all.push_back({"megatron20-readme", "Megatron-LM 2020: tensor-parallel weak scaling on V100 and A100",
                   "megatron2020_readme_scaling.csv", true});
    all.push_back({"megatron-core24", "Megatron Core 2024: weak scaling on H100", "megatron_core_2024_h100.csv", true});
    all.push_back({"mtnlg-530b", "Smith 2022: Megatron-Turing NLG 530B", "mtnlg_530b.csv", true});
    all.push_back(
        {"vtrain-multi", "vTrain (MICRO 2024): Megatron-DeepSpeed on up to 512 A100", "vtrain_multi.csv", true});
    all.push_back({"vtrain-single", "vTrain: Megatron-DeepSpeed on one node", "vtrain_single.csv", true});
    all.push_back({"llmfoundry-fsdp", "llm-foundry: MPT under FSDP on A100 and H100", "llmfoundry_fsdp.csv", true});
    all.push_back({"vtrain-nccl", "vTrain: NCCL all-reduce inside one server", "vtrain_nccl_allreduce_lut.csv", true});
    return all;
  }();
  return kPresets;
}

std::vector<PaperRun> compiled_runs() {
  std::vector<PaperRun> runs;
  add_table1(runs);
  add_table2(runs);
  add_fig7_fig8(runs);
  add_fig11_fig12(runs);
  add_fig13_to_fig15(runs);
  add_fig16_to_fig18(runs);
  add_korthikanti(runs);
  add_megatron19(runs);
  mark_fitted(runs);
  return runs;
}

std::vector<PaperRun> paper_runs(const std::string& directory, std::vector<std::string>& absent) {
  std::vector<PaperRun> read;
  for (const auto& [name, reader] : readers()) {
    const std::string path = directory + "/" + name;
    if (directory.empty() || !std::filesystem::exists(path)) {
      absent.push_back(name);
      continue;
    }
    CsvFile file;
    read_csv(path, file);
    reader.read(file, read);
  }
  std::vector<PaperRun> runs = compiled_runs();
  std::erase_if(runs, [&](const PaperRun& run) {
    return std::any_of(read.begin(), read.end(),
                       [&](const PaperRun& other) { return other.id == run.id || same_configuration(run, other); });
  });
  runs.insert(runs.end(), read.begin(), read.end());
  mark_fitted(runs);
  return runs;
}

}  // namespace triax::plan
