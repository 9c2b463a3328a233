// MosaicML's MPT runs under PyTorch FSDP (llm-foundry scripts/train/benchmarking).
#include <map>

#include "plan/papers/read_runs.h"

namespace triax::plan {
namespace {

struct MptModel {
  int64_t layers, hidden, heads;
};

/// Shapes of llm-foundry's MPT configurations.
const std::map<std::string, MptModel>& mpt_models() {
  static const std::map<std::string, MptModel> kModels{
      {"125m", {12, 768, 12}}, {"350m", {24, 1024, 16}}, {"760m", {24, 1536, 12}},
      {"1b", {24, 2048, 16}},  {"3b", {32, 2560, 20}},   {"7b", {32, 4096, 32}},
      {"13b", {40, 5120, 40}}, {"30b", {48, 7168, 56}},  {"70b", {80, 8192, 64}}};
  return kModels;
}

const char* machine_of(const std::string& gpu) {
  if (gpu.starts_with("h100")) return "h100";
  return gpu == "a100_40gb" ? "a100-40gb" : "a100-80gb";
}

}  // namespace

void read_llmfoundry(const CsvFile& file, std::vector<PaperRun>& runs) {
  for (const CsvRow& row : file.rows) {
    const auto model = mpt_models().find(row.text("model"));
    if (model == mpt_models().end()) continue;
    PaperRun run;
    run.id = row.text("id");
    run.preset = "llmfoundry-fsdp";
    run.machine = machine_of(row.text("gpu"));
    run.software = "llm-foundry";
    run.series = row.text("gpu") + (row.text("precision") == "amp_fp8" ? " fp8" : "");
    run.x = row.text("model") + " s" + row.text("seq") + " on " + row.text("gpus");
    run.certainty = row.text("certainty");
    run.source = "mosaicml/llm-foundry scripts/train/benchmarking/README.md";
    StepShape& s = run.shape;
    s = gpt_shape(model->second.layers, model->second.hidden, model->second.heads, row.integer("seq"), 50368);
    s.biases = false;
    s.hidden_dropout = s.attention_dropout = false;
    s.dtype = row.text("precision") == "amp_fp8" ? DType::Float8E4M3 : DType::BFloat16;
    s.element_bytes = 2;
    s.data = static_cast<int>(row.integer("gpus"));
    s.shard_group = s.data;
    s.zero = row.text("sharding") == "SHARD_GRAD_OP" ? 2 : 3;
    s.overlap_grad_reduce = s.overlap_param_gather = true;
    s.micro_batch = row.integer("micro_batch");
    s.num_micro_batches = row.integer("grad_accum");
    s.gradient_bytes = row.text("mp_mode") == "PURE" ? 2 : 4;
    if (row.text("act_ckpt") == "True") {
      s.recompute = parallel::RecomputeGranularity::Full;
      s.recomputed_layers = s.layers;
    }
    run.published = row.number("global_batch") * row.number("seq") / row.number("tok_per_s", 1);
    runs.push_back(std::move(run));
  }
}

}  // namespace triax::plan
