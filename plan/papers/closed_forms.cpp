// Numbers that formulas or the simulator give exactly: memory under ZeRO (arXiv 1910.02054), activations (Korthikanti
// 2022), bubbles of schedules (Qi 2023, arXiv 2401.10241).
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/units.h"
#include "model/memory_formulas.h"
#include "parallel/simulator.h"
#include "plan/papers/csv.h"
#include "plan/papers/results.h"

namespace triax::plan {
namespace {

using parallel::ScheduleKind;

PaperLine closed(const std::string& preset, std::string series, std::string x, const char* unit, double published,
                 double predicted, const char* source) {
  return paper_line(PaperKind::ClosedForm, preset, std::move(series), std::move(x), unit, published, predicted, source);
}

/// Rows of a table of `directory`; none where it is not there.
CsvFile table_of(const std::string& directory, const char* name) {
  CsvFile file;
  const std::string path = fmt::format("{}/{}", directory, name);
  if (!directory.empty() && std::filesystem::exists(path)) read_csv(path, file);
  return file;
}

/// 16-bit Adam with 16-bit gradients, ZeRO's 2 + 2 + 12 bytes, in units of 1e9 bytes.
double zero_gb(double parameters, int stage, int64_t d) {
  const auto psi = static_cast<int64_t>(std::llround(parameters));
  return static_cast<double>(model::state_bytes(psi, {2, 2, 12}, {stage, d, d, 0}).total()) * 1e-9;
}

/// GB of one cell; `stage` as the paper writes it.
PaperLine zero_cell(const std::string& model, int64_t d, const std::string& stage, double printed) {
  const double parameters = model == "7.5B" ? 7.5e9 : model == "128B" ? 128e9 : 1e12;
  const int number = stage == "Pos" ? 1 : stage == "Pos+g" ? 2 : 3;
  return closed("zero19-table1", model, fmt::format("{} of {}", stage, d), "GB", printed,
                zero_gb(parameters, number, d), "arXiv 1910.02054 Table 1");
}

PaperPreset zero_table1(const std::string& directory) {
  PaperPreset preset{
      "zero19-table1", "Rajbhandari 2019 Table 1: GB of model states per device", {}, "one unit of the last digit"};
  const CsvFile table = table_of(directory, "zero2019_table1_memory.csv");
  for (const CsvRow& r : table.rows) {
    preset.lines.push_back(
        zero_cell(r.text("model"), r.integer("dp_degree"), r.text("stage"), r.number("gb_per_device_printed")));
  }
  if (!table.rows.empty()) return preset;
  for (const auto& [stage, printed] : {std::pair{"Pos", 31.4}, std::pair{"Pos+g", 16.6}, std::pair{"Pos+g+p", 1.88}}) {
    preset.lines.push_back(zero_cell("7.5B", 64, stage, printed));
  }
  return preset;
}

/// "7.6B", "0.5T" in units of 1e9.
double billions_of(const std::string& text) {
  return text.empty() ? 0 : std::stod(text) * (text.back() == 'T' ? 1000 : 1);
}

PaperPreset zero_table2(const std::string& directory) {
  PaperPreset preset{
      "zero19-table2", "Rajbhandari 2019 Table 2: largest model in 32 GB, 64 replicas", {}, "last digit"};
  const char* const names[] = {"baseline", "Pos", "Pos+g", "Pos+g+p"};
  std::map<int, std::array<double, 4>> printed{
      {1, {2, 7.6, 14.4, 128}}};  // theory, 1e9 parameters, by model parallelism
  const CsvFile table = table_of(directory, "zero2019_table2_max_model.csv");
  for (const CsvRow& r : table.rows) {
    for (size_t stage = 0; stage < 4; ++stage) {
      printed[static_cast<int>(r.integer("mp"))][stage] = billions_of(r.text(fmt::format("theory_{}", names[stage])));
    }
  }
  for (const int mp : {1, 2, 4, 8, 16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const double bytes = zero_gb(1e9, stage, 64);  // of a parameter
      preset.lines.push_back(closed(preset.name, names[stage], fmt::format("mp {}", mp), "1e9 parameters",
                                    printed[mp][static_cast<size_t>(stage)], mp * 32 / bytes,
                                    "arXiv 1910.02054 Table 2, theory"));
    }
  }
  return preset;
}

PaperPreset zero_figure1() {
  PaperPreset preset{"zero19-fig1", "Rajbhandari 2019 Figure 1: 7.5B, 64 replicas", {}, "last digit"};
  const double printed[] = {120, 31.4, 16.6, 1.88};
  for (int stage = 0; stage <= 3; ++stage) {
    preset.lines.push_back(closed(preset.name, "7.5B", fmt::format("stage {}", stage), "GB", printed[stage],
                                  zero_gb(7.5e9, stage, 64), "arXiv 1910.02054 Figure 1"));
  }
  return preset;
}

struct KorthikantiModel {
  const char* name;
  int64_t layers, hidden, heads, micro_batch;
  int pipeline, chunks;
};
constexpr KorthikantiModel kKorthikantiModels[] = {{"22B", 48, 6144, 64, 4, 1, 1},
                                                   {"175B", 96, 12288, 96, 1, 8, 3},
                                                   {"530B", 105, 20480, 128, 1, 35, 3},
                                                   {"1T", 128, 25600, 160, 1, 64, 1}};

model::ModelConfig config_of(const KorthikantiModel& m) {
  model::ModelConfig c;
  c.num_layers = m.layers;
  c.hidden_size = m.hidden;
  c.ffn_hidden_size = 4 * m.hidden;
  c.num_attention_heads = c.num_query_groups = m.heads;
  c.kv_channels = m.hidden / m.heads;
  c.seq_length = 2048;
  c.vocab_size = 51200;
  return c;
}

double layer_bytes(const KorthikantiModel& m, parallel::SequenceParallel sp, bool scores) {
  model::ActivationShape shape;
  shape.micro_batch = m.micro_batch;
  shape.tensor_parallel = 8;
  shape.sequence_parallel = sp;
  shape.attention = model::AttentionMemory::Unfused;
  const model::LayerActivations a = model::layer_activations(config_of(m), shape);
  return static_cast<double>(scores ? a.total() : a.hidden + a.inner);
}

PaperPreset korthikanti_figure1(const std::string& directory) {
  PaperPreset preset{"korthikanti22-fig1", "Korthikanti 2022 Figure 1: GiB of the first stage", {}, "4 decimals"};
  std::map<std::string, std::array<double, 3>> printed{{"175B", {45.5625, 66.84375, 12.3515625}}};
  const CsvFile table = table_of(directory, "korthikanti2022_fig1_memory_gib.csv");
  for (const CsvRow& r : table.rows) {
    printed[r.text("model")] = {r.number("params_opt_gib"), r.number("activations_tp_baseline_gib"),
                                r.number("activations_selseq_gib")};
  }
  for (const KorthikantiModel& m : kKorthikantiModels) {
    const double p = m.pipeline;
    const auto h = static_cast<double>(m.hidden);
    const double states = 18.0 * 12 * static_cast<double>(m.layers) * h * h / (8 * p) / kGiB;
    // Layers of a whole replica, the interleaved schedule keeps 1 + (p-1)/(pv) of them alive on the first stage.
    const double alive = static_cast<double>(m.layers) * (m.chunks > 1 ? 1 + (p - 1) / (p * m.chunks) : 1) / kGiB;
    const double none = layer_bytes(m, parallel::SequenceParallel::No, true) * alive;
    const double both = layer_bytes(m, parallel::SequenceParallel::Yes, false) * alive;
    const double predicted[] = {states, none, both};
    const char* const what[] = {"parameters and optimizer", "activations, baseline",
                                "activations, selective + sequence"};
    for (size_t k = 0; k < 3; ++k) {
      preset.lines.push_back(closed(preset.name, m.name, what[k], "GiB", printed[m.name][k], predicted[k],
                                    "arXiv 2205.05198 Figure 1, as Calculon's validation has it"));
    }
  }
  return preset;
}

PaperPreset korthikanti_figure7(const std::string& directory) {
  PaperPreset preset{
      "korthikanti22-fig7", "Korthikanti 2022 Figure 7: activations in % of the tp baseline", {}, "0.15 points"};
  std::map<std::string, std::array<double, 4>> printed{{"175B", {62.04, 56.53, 18.49, 8.71}}};
  const CsvFile table = table_of(directory, "korthikanti2022_fig7_activation_pct.csv");
  for (const CsvRow& r : table.rows) {
    printed[r.text("model")] = {r.number("seq_pct"), r.number("sel_pct"), r.number("seqsel_pct"), r.number("full_pct")};
  }
  for (const KorthikantiModel& m : kKorthikantiModels) {
    const double base = layer_bytes(m, parallel::SequenceParallel::No, true);
    const double full = 2.0 * 2048 * static_cast<double>(m.micro_batch * m.hidden);
    const double predicted[] = {layer_bytes(m, parallel::SequenceParallel::Yes, true) / base,
                                layer_bytes(m, parallel::SequenceParallel::No, false) / base,
                                layer_bytes(m, parallel::SequenceParallel::Yes, false) / base, full / base};
    const char* const what[] = {"sequence", "selective", "selective + sequence", "full"};
    for (size_t k = 0; k < 4; ++k) {
      preset.lines.push_back(closed(preset.name, m.name, what[k], "%", printed[m.name][k], 100 * predicted[k],
                                    "arXiv 2205.05198 Figure 7, read by Calculon"));
    }
  }
  return preset;
}

/// MFU and HFU of the paper's equations 7 and 8 from the printed times, in % of 312 TFLOP/s.
PaperPreset korthikanti_utilization(const std::string& directory) {
  PaperPreset preset{
      "korthikanti22-mfu", "Korthikanti 2022 Table 5: MFU and HFU from the printed times", {}, "0.2 points"};
  struct Row {
    std::string name;
    double layers, hidden, batch, gpus, time_s, mfu, hfu;
  };
  std::vector<Row> rows{{"22B", 48, 6144, 4, 8, 1.10, 41.5, 43.7}};
  const CsvFile table = table_of(directory, "korthikanti2022_tables3_5.csv");
  if (!table.rows.empty()) rows.clear();
  for (const CsvRow& r : table.rows) {
    if (r.number("mfu_pct") <= 0) continue;
    rows.push_back({r.text("model"), r.number("layers"), r.number("hidden"), r.number("global_batch"), r.number("gpus"),
                    r.number("iter_time_s"), r.number("mfu_pct"), r.number("hfu_pct")});
  }
  for (const Row& r : rows) {
    const double s = 2048;
    const double each = 100 * 72 * r.batch * r.layers * s * r.hidden * r.hidden / (r.time_s * r.gpus * 312e12);
    const double head = 51200 / (12 * r.hidden * r.layers);
    preset.lines.push_back(closed(preset.name, r.name, "MFU", "%", r.mfu, each * (1 + s / (6 * r.hidden) + head),
                                  "arXiv 2205.05198 equation 7"));
    preset.lines.push_back(closed(preset.name, r.name, "HFU", "%", r.hfu, each * (1 + s / (3 * r.hidden) + head),
                                  "arXiv 2205.05198 equation 8"));
  }
  return preset;
}

struct BubbleRow {
  std::string id;
  int pipeline, micro_batches, chunks;
  double forward_ms, input_ms, weight_ms, message_ms;
  std::array<double, 4> bubbles;  // 1F1B, interleaved, ZB-H1, ZB-H2; 0: not at hand
};

double bubble_of(const BubbleRow& row, ScheduleKind kind) {
  parallel::ProgramOptions options;
  options.schedule.kind = kind;
  options.schedule.pipeline = row.pipeline;
  options.schedule.chunks = kind == ScheduleKind::Interleaved ? row.chunks : 1;
  options.schedule.num_micro_batches = row.micro_batches;
  options.layers = parallel::placement_of(options.schedule);
  options.layers.stage_layers.assign(static_cast<size_t>(row.pipeline * options.schedule.chunks), {0, 1});
  parallel::UniformCosts costs;
  const auto ps = [](double ms) { return static_cast<int64_t>(std::llround(ms * 1e9)); };
  costs.forward_ps = {ps(row.forward_ms)};
  costs.backward_input_ps = {ps(row.input_ms)};
  costs.backward_weight_ps = {ps(row.weight_ms)};
  costs.latency_ps = {ps(row.message_ms)};
  const auto table = parallel::make_cost_table(costs, row.pipeline, options.schedule.chunks);
  return parallel::simulate(parallel::make_training_program(options), table).bubble_of_total;
}

PaperPreset zero_bubble_table5(const std::string& directory) {
  PaperPreset preset{"zerobubble23-table5", "Qi 2023 Table 5: bubble rates from the times of Table 9", {}, ""};
  std::vector<BubbleRow> rows{{"zb_1.5B_24", 8, 24, 3, 18.522, 18.086, 9.337, 0.601, {0.2431, 0.1055, 0.1585, 0.1083}}};
  const CsvFile table = table_of(directory, "zerobubble_tables_4_5_9.csv");
  if (!table.rows.empty()) rows.clear();
  for (const CsvRow& r : table.rows) {
    rows.push_back(
        {r.text("id"),
         static_cast<int>(r.integer("p")),
         static_cast<int>(r.integer("m")),
         static_cast<int>(r.integer("1F1B-I chunks per device (one layer each)", 1)),
         r.number("T_F_ms"),
         r.number("T_B_ms"),
         r.number("T_W_ms"),
         r.number("T_comm_ms"),
         {r.number("bubble_1F1B"), r.number("bubble_1F1B-I"), r.number("bubble_ZB-H1"), r.number("bubble_ZB-H2")}});
  }
  const std::pair<const char*, ScheduleKind> kinds[] = {{"1F1B", ScheduleKind::OneFOneB},
                                                        {"1F1B-I", ScheduleKind::Interleaved},
                                                        {"ZB-H1", ScheduleKind::ZeroBubbleH1},
                                                        {"ZB-H2", ScheduleKind::ZeroBubbleH2}};
  for (const BubbleRow& row : rows) {
    for (size_t k = 0; k < 4; ++k) {
      PaperLine line = closed(preset.name, kinds[k].first, row.id, "of total", row.bubbles[k],
                              bubble_of(row, kinds[k].second), "arXiv 2401.10241 Tables 5 and 9");
      preset.lines.push_back(std::move(line));
    }
  }
  return preset;
}

}  // namespace

std::vector<PaperPreset> closed_form_presets(const std::string& directory) {
  return {zero_table1(directory),         zero_table2(directory),         zero_figure1(),
          korthikanti_figure1(directory), korthikanti_figure7(directory), korthikanti_utilization(directory),
          zero_bubble_table5(directory)};
}

}  // namespace triax::plan
