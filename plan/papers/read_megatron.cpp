// Runs of the Megatron papers from their tables' CSV files.
#include "plan/papers/read_runs.h"

namespace triax::plan {
namespace {

using parallel::RecomputeGranularity;
using parallel::ScheduleKind;

void take_layout(const CsvRow& row, StepShape& s) {
  s.tensor = static_cast<int>(row.integer("tp", row.integer("tp(inferred)", 1)));
  s.pipeline = static_cast<int>(row.integer("pp", row.integer("pp(inferred)", 1)));
  s.data = static_cast<int>(row.integer("dp", 1));
  s.chunks = static_cast<int>(row.integer("vpp_chunks", 1));
  s.schedule = s.chunks > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneFOneB;
  s.micro_batch = row.integer("micro_batch", 1);
  const int64_t batch = row.integer("global_batch", s.micro_batch * s.data);
  s.num_micro_batches = std::max<int64_t>(1, batch / (s.micro_batch * s.data));
  s.shard_group = s.data;
}

void recompute_all(StepShape& s) {
  s.recompute = RecomputeGranularity::Full;
  s.recomputed_layers = s.layers;
}

/// DeepSpeed's pipeline sends each message in t parts (runtime/pipe/engine.py, is_pipe_partitioned).
bool partitioned(const StepShape& s) { return s.pipeline > 1 && s.tensor > 1; }

PaperRun run_of(const CsvRow& row, const char* preset, const char* machine, const char* software) {
  PaperRun run;
  run.id = row.text("id");
  run.preset = preset;
  run.machine = machine;
  run.software = software;
  run.certainty = row.text("certainty");
  run.source = row.text("source");
  run.shape = gpt_shape(row.integer("layers"), row.integer("hidden"), row.integer("heads"), row.integer("seq", 2048),
                        row.integer("vocab", 51200));
  take_layout(row, run.shape);
  return run;
}

}  // namespace

void read_megatron21_table1(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    PaperRun run = run_of(row, "megatron21-table1", "a100-80gb", "megatron-2021");
    recompute_all(run.shape);
    run.x = row.text("params_b") + "B";
    // Section 5.1: "the interleaved pipeline schedule with the scatter/gather optimization", also where the script of
    // the repository names no virtual stages; two chunks are the least.
    if (run.shape.pipeline > 1 && run.shape.chunks == 1) {
      run.shape.chunks = 2;
      run.shape.schedule = ScheduleKind::Interleaved;
    }
    run.shape.scatter_gather = run.shape.pipeline > 1 && run.shape.tensor > 1;
    run.shape.overlap_grad_reduce = row.text("ddp_impl") == "torch";
    run.metric = Metric::Tflops;
    run.published = row.number("tflops_per_gpu");
    runs.push_back(std::move(run));
  }
}

void read_megatron21_table2(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    const bool zero = row.text("scheme") == "zero3";
    PaperRun run = run_of(row, "megatron21-table2", "a100-80gb", zero ? "megatron-2021-zero3" : "megatron-2021");
    recompute_all(run.shape);
    run.series = row.text("scheme");
    run.x = row.text("params_b") + "B on " + row.text("gpus");
    if (zero) {
      run.shape.zero = 3;
      run.shape.overlap_grad_reduce = run.shape.overlap_param_gather = true;
    } else {
      run.shape.scatter_gather = true;
    }
    run.metric = Metric::Tflops;
    run.published = row.number("tflops_per_gpu");
    runs.push_back(std::move(run));
  }
}

void read_megatron21_figures(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    const int64_t figure = row.integer("figure");
    const std::string preset = "megatron21-fig" + std::to_string(figure);
    PaperRun run = run_of(row, preset.c_str(), "a100-80gb", "megatron-2021");
    run.series = row.text("series");
    run.x = row.text("x_name") + " " + row.text("x");
    if (row.text("recompute") != "none" && row.text("recompute") != "off") recompute_all(run.shape);
    const bool plain = run.series.find("unopt") != std::string::npos || run.series.find("no") == 0;
    run.shape.scatter_gather = run.shape.pipeline > 1 && run.shape.tensor > 1 && !(figure == 18 && plain);
    run.metric = row.text("unit").starts_with("TFLOP")  ? Metric::Tflops
                 : row.text("unit").starts_with("norm") ? Metric::Estimated
                                                        : Metric::SequencesPerS;
    if (run.metric == Metric::Estimated) {  // by equation 1 from times of one device
      run.batch = row.integer("global_batch");
      run.stages = run.shape.pipeline;
      run.shape.tensor = run.shape.pipeline = run.shape.data = run.shape.shard_group = 1;
      run.shape.num_micro_batches = 1;
      run.shape.scatter_gather = false;
    }
    run.published = row.number("y");
    runs.push_back(std::move(run));
  }
}

void read_korthikanti22_table5(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    PaperRun run = run_of(row, "korthikanti22-table5", "a100-80gb", "megatron-2022");
    run.series = row.text("recompute");
    run.x = row.text("model");
    run.shape.sequence_parallel = row.integer("sequence_parallel") != 0;
    run.shape.scatter_gather = !run.shape.sequence_parallel && run.shape.pipeline > 1;
    run.shape.gradient_bytes = 4;
    if (row.text("recompute") == "full") recompute_all(run.shape);
    if (row.text("recompute") == "selective") run.shape.recompute = RecomputeGranularity::Selective;
    run.published = row.number("iter_time_s");
    runs.push_back(std::move(run));
  }
}

void read_korthikanti22_table4(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    for (const Metric metric : {Metric::ForwardMs, Metric::BackwardMs}) {
      PaperRun run;
      const bool forward = metric == Metric::ForwardMs;
      run.id = row.text("id") + (forward ? "_forward" : "_backward");
      run.preset = "korthikanti22-table4";
      run.machine = "a100-80gb";
      run.software = "megatron-2022";
      run.series = forward ? "forward" : "backward";
      run.x = row.text("experiment");
      run.certainty = row.text("certainty");
      run.source = row.text("note");
      run.shape = gpt_shape(1, 6144, 64, 2048, 51200);
      run.shape.tensor = 8;
      run.shape.micro_batch = 4;
      if (run.x.find("full") != std::string::npos) recompute_all(run.shape);
      if (run.x.find("selective") != std::string::npos) run.shape.recompute = RecomputeGranularity::Selective;
      run.shape.sequence_parallel = run.x.find("sequence") != std::string::npos;
      run.metric = metric;
      run.published = row.number(forward ? "forward_ms" : "backward_ms");
      runs.push_back(std::move(run));
    }
  }
}

void read_megatron20_readme(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    const bool v100 = row.text("hardware").starts_with("V100");
    PaperRun run = run_of(row, "megatron20-readme", v100 ? "v100-dgx2" : "a100-40gb", "megatron-2020");
    run.x = row.text("case") + " on " + row.text("gpus");
    run.series = row.text("hardware");
    run.shape.seq = 1024;
    run.shape.vocab = 51200;
    run.shape.micro_batch = row.integer("batch") / run.shape.data;
    run.shape.num_micro_batches = 1;
    run.shape.overlap_grad_reduce = true;
    recompute_all(run.shape);
    run.published = 1e-3 * row.number("iter_ms");
    runs.push_back(std::move(run));
  }
}

void read_megatron_core24(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    PaperRun run = run_of(row, "megatron-core24", "h100", "megatron-core-2024");
    run.x = row.text("params_b") + "B";
    run.shape.sequence_parallel = run.shape.tensor > 1;
    run.shape.zero = 1;
    run.shape.dtype = DType::BFloat16;
    run.shape.gradient_bytes = 4;
    run.shape.overlap_grad_reduce = run.shape.overlap_param_gather = run.shape.overlap_p2p = true;
    run.shape.hidden_dropout = run.shape.attention_dropout = false;
    run.metric = Metric::TflopsModel;
    run.published = row.number("tflops_per_gpu");
    runs.push_back(std::move(run));
  }
}

void read_mtnlg(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    PaperRun run = run_of(row, "mtnlg-530b", "a100-80gb", "megatron-deepspeed");
    run.x = row.text("gpus") + " GPUs";
    run.shape.vocab = 50272;
    run.shape.scatter_gather = partitioned(run.shape);
    recompute_all(run.shape);
    run.published = row.number("iter_time_s");
    runs.push_back(std::move(run));
  }
}

void read_vtrain(const CsvFile& file, VTrainNodes nodes, std::vector<PaperRun>& runs) {
  const char* preset = nodes == VTrainNodes::One ? "vtrain-single" : "vtrain-multi";
  // One node: the text names no memory; where the device decides, passes over memory take what 1.56 TB/s gives.
  const char* machine = nodes == VTrainNodes::One ? "a100-40gb" : "a100-80gb";
  for (const CsvRow& row : file.rows) {
    PaperRun run = run_of(row, preset, machine, "megatron-deepspeed");
    // On one node a layer more costs what forward and backward cost: those runs did not recompute.
    if (nodes == VTrainNodes::Many) recompute_all(run.shape);
    // Its configurations say 50257 and cut that over tp: rows of logits are aligned where 8 divides the part.
    run.shape.vocab = 50257 / run.shape.tensor * run.shape.tensor;
    run.shape.scatter_gather = partitioned(run.shape);
    run.published = 1e-3 * row.number("iter_time_ms");
    runs.push_back(std::move(run));
  }
}

void read_nccl(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    PaperRun run;
    run.id = row.text("id");
    run.preset = "vtrain-nccl";
    run.series = row.text("gpu") + " x" + row.text("ranks");
    run.machine = row.text("gpu") == "a100" ? "a100-80gb" : "v100-dgx2";
    run.software = "megatron-2021";
    run.x = row.text("bytes") + " B";
    run.certainty = row.text("certainty");
    run.shape = gpt_shape(1, 1024, 16, 1024, 51200);
    run.shape.tensor = static_cast<int>(row.integer("ranks"));
    run.metric = Metric::AllReduce;
    run.bytes = row.number("bytes");
    run.published = row.number("out_of_place_us");
    runs.push_back(std::move(run));
  }
}

}  // namespace triax::plan
