#include "apps/mem_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/version.h"
#include "model/counts.h"
#include "plan/step_shape.h"

namespace triax::apps {

using nlohmann::ordered_json;

const char* const kMemUsage =
    "usage: triax mem [options]\n\n"
    "Memory of one rank of every pipeline stage, by category. Neither ranks nor a GPU are needed.\n\n"
    "  triax mem --model llama3-70b --seq-length 4096 --tensor-model-parallel-size 8 --sequence-parallel \\\n"
    "    --pipeline-model-parallel-size 4 --data-parallel-size 2 --num-microbatches 8 --zero-stage 1\n"
    "  triax mem --num-parameters 7.5e9 --data-parallel-size 64 --zero-stage 3 --bf16 --grad-reduce-in-bf16\n\n"
    "With --hw also whether the fullest stage fits one device of that machine; exit code 3 when it does not.\n"
    "Options of model, layout, precision and optimizer are those of triax train ('triax options' lists them). Its "
    "own:\n";

const char* const kMemDescription =
    "Bytes of tensor rank 0, replica 0 of each pipeline stage; the other ranks of the stage need the same (or less by\n"
    "the rounding of shards). JSON and CSV hold whole bytes; the table says its unit: GB = 10^9, GiB = 2^30 bytes.\n\n"
    "engine formula   closed forms: states (2 + 4 + 12)-style under ZeRO, activations by Korthikanti et al. 2022 with\n"
    "                 attention as --attention-backend says, times what the schedule keeps alive. Not counted: norm\n"
    "                 statistics, gradients of activations inside a layer, alignment, workspace of libraries.\n"
    "engine exact     the trainer's own code, run on reserved address space: equals the allocator's high-water mark "
    "of\n"
    "                 the run byte for byte. It adds what the formulas leave out (activation gradients, statistics,\n"
    "                 messages, staging, alignment) and keeps less where the trainer does: dropout masks are\n"
    "                 recomputed, attention never keeps s x s scores, logits exist once. Its categories are peaks of\n"
    "                 their own; total is the peak of the sum, so it may be below the sum of the columns.\n"
    "Neither counts   code, MPI and CUDA contexts, library scratch outside the arenas, the page cache.\n\n"
    "stage            pipeline position; layers: [first, last] of each of its chunks\n"
    "parameters       elements of the rank, padded vocabulary included\n"
    "in_flight        most chunk activations alive at once (v = 1: micro-batches)\n"
    "weights          parameters in the compute type; exact: stage 3 keeps tensors below\n"
    "                 --zero-param-persistence-threshold whole\n"
    "gradients        main gradients: fp32, bf16 under --grad-reduce-in-bf16\n"
    "optimizer        master weights (16-bit types) and moments\n"
    "model_states     the sum of these three\n"
    "activations      of layers in flight; full recomputation: inputs of the recomputed groups. exact: all "
    "activations\n"
    "embedding_head   mask of the embedding's dropout; final norm, head input, logits in compute type and fp32\n"
    "working          what a recomputation holds while it runs\n"
    "buffers          two messages between stages; stage 2: two gradient buckets; stage 3: gathered units\n"
    "                 (current and prefetched) and one unit's gradients. exact: the category communication;\n"
    "                 its buckets are whole units\n"
    "other            exact: workspace and staging\n"
    "total            formula: the sum; exact: the peak, reached at peak_op\n"
    "padding          elements: vocabulary (rows that no token has, all tensor ranks), shard (rounding up to whole\n"
    "                 elements per rank, whole shard group), alignment (exact: between tensors of the flat arrays)\n";

namespace {

const plan::ExactStage* exact_of(const MemReport& report, size_t stage) {
  for (const plan::ExactStage& exact : report.exact) {
    if (exact.position == static_cast<int>(stage)) return &exact;
  }
  return nullptr;
}

/// One line of table and CSV; -1: the engine does not know this column.
struct MemoryRow {
  const char* engine;
  int64_t parameters, in_flight;
  std::array<int64_t, 9> bytes;
};
constexpr std::array kMemoryColumns = {"weights",        "gradients", "optimizer", "model_states", "activations",
                                       "embedding_head", "working",   "buffers",   "other"};

MemoryRow formula_row(const model::StageMemory& m) {
  const model::StateBytes& s = m.states;
  return {"formula",
          m.parameters,
          m.in_flight,
          {s.weights, s.gradients, s.optimizer, s.total(), m.activations, m.ends, m.working, m.buffers, -1}};
}

int64_t peak(const train::MemoryForecast& f, MemoryCategory category) {
  return f.ledger.peak[static_cast<size_t>(category)];
}

MemoryRow exact_row(const train::MemoryForecast& f, int64_t in_flight) {
  const int64_t w = peak(f, MemoryCategory::Parameters), g = peak(f, MemoryCategory::Gradients),
                o = peak(f, MemoryCategory::Optimizer);
  return {"exact",
          f.parameters,
          in_flight,
          {w, g, o, w + g + o, peak(f, MemoryCategory::Activations), -1, -1, peak(f, MemoryCategory::Communication),
           peak(f, MemoryCategory::Workspace) + peak(f, MemoryCategory::Staging)}};
}

struct BytesUnit {
  const char* name;
  double bytes;
};

BytesUnit unit_of(const MemReport& report) {
  int64_t most = 0;
  for (const model::StageMemory& m : report.stages) most = std::max(most, m.total());
  if (most >= int64_t{1} << 30) return {"GiB", kGiB};
  return most >= int64_t{1} << 20 ? BytesUnit{"MiB", 0x1p20} : BytesUnit{"KiB", 0x1p10};
}

bool bare(const MemReport& report) { return report.request.num_parameters > 0; }

std::string layers_text(const MemReport& report, int position) {
  std::vector<std::string> parts;
  for (int chunk = 0; chunk < report.layers.chunks; ++chunk) {
    const parallel::LayerRange& range = report.layers.layers(position, chunk);
    if (range.size() > 0) parts.push_back(fmt::format("{}-{}", range.begin, range.end - 1));
  }
  if (parts.size() > 2) parts = {parts.front(), "..", parts.back()};
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

const char* precision_text(const MemReport& report) {
  switch (report.request.options.control.precision) {
    case io::Precision::Fp64:
      return "fp64";
    case io::Precision::Fp32:
      return "fp32";
    case io::Precision::Bf16:
      return "bf16";
    default:
      return "fp16";
  }
}

std::string zero_text(const model::ZeroSharding& zero) {
  std::string text = fmt::format("ZeRO {}", zero.stage);
  if (zero.stage > 0) text += fmt::format(" over {}", zero.shard_group);
  if (zero.parameter_group > 0) text += fmt::format(", weights over {}", zero.parameter_group);
  return text;
}

std::string mem_headline(const MemReport& report) {
  const io::RunOptions& o = report.request.options;
  const comm::GridShape& grid = o.parallel.grid;
  const model::ZeroSharding& zero = report.request.terms.zero;
  std::string text =
      fmt::format("{}: {:.2f} B parameters, {}: {} + {} + {} bytes each (weights, gradients, optimizer)\n",
                  bare(report) ? "model" : o.model.name, static_cast<double>(report.parameters) / 1e9,
                  precision_text(report), report.widths.weights, report.widths.gradients, report.widths.optimizer);
  text +=
      fmt::format("t {}{}, p {}, v {}, d {} ({} ranks), {}", grid.tensor,
                  o.parallel.sequence_parallel ? " with sequence parallelism" : "", grid.pipeline, o.parallel.chunks,
                  zero.data_parallel, zero.data_parallel * grid.tensor * grid.pipeline, zero_text(zero));
  if (bare(report)) return text + "\n";
  text += fmt::format("; b {}, s {}, m {}, {}, recompute {}, attention {}", o.batch.micro_batch_size,
                      o.model.seq_length, o.batch.num_micro_batches, name_of(o.parallel.schedule),
                      plan::name_of(o.parallel.recompute.granularity),
                      report.request.terms.attention == model::AttentionMemory::Flash ? "flash" : "unfused");
  if (!report.program.positions.empty()) text += fmt::format("; program {:016x}", parallel::hash_of(report.program));
  return text + "\n";
}

std::string table_row(const std::string& stage, const std::string& layers, const MemoryRow& row, int64_t total,
                      const BytesUnit& unit) {
  std::string text = fmt::format("{:>5} {:<11} {:<8} {:>9}", stage, layers, row.engine,
                                 row.in_flight > 0 ? std::to_string(row.in_flight) : "-");
  for (size_t i = 0; i < kMemoryColumns.size(); ++i) {
    if (i == 3) continue;  // model_states is a sum
    text += row.bytes[i] < 0 ? fmt::format(" {:>11}", "-")
                             : fmt::format(" {:>11.2f}", static_cast<double>(row.bytes[i]) / unit.bytes);
  }
  return text + fmt::format(" {:>11.2f}\n", static_cast<double>(total) / unit.bytes);
}

std::string room_line(const plan::DeviceRoom& room) {
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
  return fmt::format(
      "{}: the fullest stage takes {:.2f} GiB, {:.2f} of them the runtime's, of {:.2f}: {}\n", room.machine,
      gib(room.needed_bytes), gib(room.runtime_bytes), gib(room.device_bytes),
      room.fits() ? "fits" : fmt::format("DOES NOT FIT, {:.2f} missing", gib(room.needed_bytes - room.device_bytes)));
}

std::string closing_lines(const MemReport& report, const BytesUnit& unit) {
  size_t largest = 0;
  for (size_t i = 0; i < report.stages.size(); ++i) {
    if (report.stages[i].total() > report.stages[largest].total()) largest = i;
  }
  const model::StageMemory& m = report.stages[largest];
  std::string text =
      fmt::format("largest: {}{} bytes by formula ({:.2f} GB, {:.2f} GiB), model states {} ({:.2f} GB)\n",
                  bare(report) ? "" : fmt::format("stage {}, ", largest), m.total(), m.total() / 1e9,
                  static_cast<double>(m.total()) / kGiB, m.states.total(), m.states.total() / 1e9);
  const plan::ExactStage* most = nullptr;
  for (const plan::ExactStage& exact : report.exact) {
    if (most == nullptr || exact.forecast.ledger.peak_total > most->forecast.ledger.peak_total) most = &exact;
  }
  if (most != nullptr) {
    text += fmt::format("exact: stage {} peaks at {} bytes ({:.2f} {}) in {}; ", most->position,
                        most->forecast.ledger.peak_total,
                        static_cast<double>(most->forecast.ledger.peak_total) / unit.bytes, unit.name,
                        most->forecast.peak_op < 0 ? "construction" : most->forecast.peak_op_text);
  } else {
    text += "exact: ";
  }
  text += report.exact_note + "\n";
  text += fmt::format("padding of stage {}: vocabulary {}, shard {}", largest, m.vocabulary_padding,
                      m.states.padding_elements);
  if (const plan::ExactStage* exact = exact_of(report, largest)) {
    text += fmt::format(", alignment {}", exact->forecast.alignment);
  }
  return text + " elements\n" + (report.room ? room_line(*report.room) : "");
}

ordered_json formula_json(const model::StageMemory& m) {
  ordered_json json;
  const MemoryRow row = formula_row(m);
  for (size_t i = 0; i + 1 < kMemoryColumns.size(); ++i) json[kMemoryColumns[i]] = row.bytes[i];
  json["total"] = m.total();
  return json;
}

ordered_json exact_json(const train::MemoryForecast& f) {
  ordered_json json;
  json["parameters"] = f.parameters;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    json["peak"][std::string(name_of(static_cast<MemoryCategory>(i)))] = f.ledger.peak[i];
  }
  const MemoryRow row = exact_row(f, 0);
  json["model_states"] = row.bytes[3];
  json["live_after_step"] = f.ledger.live_total;
  json["total"] = f.ledger.peak_total;
  json["peak_op"] = f.peak_op < 0 ? ordered_json(nullptr) : ordered_json(f.peak_op_text);
  return json;
}

ordered_json stage_json(const MemReport& report, size_t i) {
  const model::StageMemory& m = report.stages[i];
  const plan::ExactStage* exact = exact_of(report, i);
  ordered_json json;
  json["stage"] = bare(report) ? ordered_json(nullptr) : ordered_json(i);
  json["layers"] = ordered_json::array();
  for (int chunk = 0; !bare(report) && chunk < report.layers.chunks; ++chunk) {
    const parallel::LayerRange& range = report.layers.layers(static_cast<int>(i), chunk);
    json["layers"].push_back({range.begin, range.end - 1});
  }
  json["parameters"] = m.parameters;
  json["in_flight"] = m.in_flight;
  json["formula"] = formula_json(m);
  json["exact"] = exact == nullptr ? ordered_json(nullptr) : exact_json(exact->forecast);
  json["padding"] = {{"vocabulary_elements", m.vocabulary_padding},
                     {"shard_elements", m.states.padding_elements},
                     {"alignment_elements", exact ? ordered_json(exact->forecast.alignment) : ordered_json(nullptr)}};
  return json;
}

}  // namespace

std::string table_text(const MemReport& report) {
  const BytesUnit unit = unit_of(report);
  std::string text = mem_headline(report);
  for (const std::string& note : report.request.notes) text += "note: " + note + "\n";
  text += fmt::format("{} per rank\n{:>5} {:<11} {:<8} {:>9}", unit.name, "stage", "layers", "engine", "in flight");
  for (size_t i = 0; i < kMemoryColumns.size(); ++i) {
    const std::string name = kMemoryColumns[i];
    if (i != 3) text += fmt::format(" {:>11}", name == "embedding_head" ? "emb+head" : name);
  }
  text += fmt::format(" {:>11}\n", "total");
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const model::StageMemory& m = report.stages[i];
    const std::string stage = bare(report) ? "-" : std::to_string(i);
    const std::string layers = bare(report) ? "-" : layers_text(report, static_cast<int>(i));
    text += table_row(stage, layers, formula_row(m), m.total(), unit);
    if (const plan::ExactStage* exact = exact_of(report, i)) {
      const train::MemoryForecast& f = exact->forecast;
      text += table_row("", "", exact_row(f, m.in_flight), f.ledger.peak_total, unit);
    }
  }
  return text + closing_lines(report, unit);
}

std::string json_text(const MemReport& report) {
  const io::RunOptions& o = report.request.options;
  const comm::GridShape& grid = o.parallel.grid;
  const model::ZeroSharding& zero = report.request.terms.zero;
  ordered_json json;
  json["schema"] = "triax-mem";
  json["version"] = 1;
  json["commit"] = build_info().commit;
  json["model"] = bare(report) ? ordered_json(nullptr) : ordered_json(o.model.name);
  json["parameters"] = report.parameters;
  json["precision"] = precision_text(report);
  json["bytes_per_parameter"] = {{"weights", report.widths.weights},
                                 {"gradients", report.widths.gradients},
                                 {"optimizer", report.widths.optimizer}};
  json["tensor_parallel"] = grid.tensor;
  json["sequence_parallel"] = o.parallel.sequence_parallel;
  json["pipeline"] = grid.pipeline;
  json["chunks"] = o.parallel.chunks;
  json["data_parallel"] = zero.data_parallel;
  json["zero_stage"] = zero.stage;
  json["zero_shard_group"] = zero.shard_group;
  json["zero_hpz_partition_size"] = std::max<int64_t>(1, zero.parameter_group);
  if (!bare(report)) {
    json["micro_batch_size"] = o.batch.micro_batch_size;
    json["num_microbatches"] = o.batch.num_micro_batches;
    json["schedule"] = name_of(o.parallel.schedule);
    json["recompute"] = plan::name_of(o.parallel.recompute.granularity);
    json["attention"] = report.request.terms.attention == model::AttentionMemory::Flash ? "flash" : "unfused";
  }
  const bool made = !report.program.positions.empty();
  json["program_hash"] =
      made ? ordered_json(fmt::format("{:016x}", parallel::hash_of(report.program))) : ordered_json(nullptr);
  json["notes"] = report.request.notes;
  json["exact_note"] = report.exact_note;
  json["exact_micro_batches"] = report.exact.empty() ? ordered_json(nullptr) : ordered_json(report.exact_micro_batches);
  for (size_t i = 0; i < report.stages.size(); ++i) json["stages"].push_back(stage_json(report, i));
  if (report.room) {
    json["device"] = {{"machine", report.room->machine},
                      {"bytes", report.room->device_bytes},
                      {"runtime_bytes", report.room->runtime_bytes},
                      {"needed_bytes", report.room->needed_bytes},
                      {"fits", report.room->fits()}};
  }
  return json.dump(2) + "\n";
}

std::string csv_text(const MemReport& report) {
  std::string text = fmt::format("stage,engine,parameters,in_flight,{},total\n", fmt::join(kMemoryColumns, ","));
  const auto add = [&](size_t stage, const MemoryRow& row, int64_t total) {
    text += fmt::format("{},{},{},{}", bare(report) ? "" : std::to_string(stage), row.engine, row.parameters,
                        row.in_flight);
    for (const int64_t bytes : row.bytes) text += bytes < 0 ? "," : fmt::format(",{}", bytes);
    text += fmt::format(",{}\n", total);
  };
  for (size_t i = 0; i < report.stages.size(); ++i) {
    add(i, formula_row(report.stages[i]), report.stages[i].total());
    if (const plan::ExactStage* exact = exact_of(report, i)) {
      add(i, exact_row(exact->forecast, report.stages[i].in_flight), exact->forecast.ledger.peak_total);
    }
  }
  return text;
}

}  // namespace triax::apps
