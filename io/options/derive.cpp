// What follows from other options, by Megatron-LM's rules.
#include <fmt/format.h>

#include <tuple>

#include "io/options/given.h"
#include "io/options/validate.h"
#include "io/options/values.h"
#include "model/presets.h"

namespace triax::io {
namespace {

class Deriver {
 public:
  Deriver(const DeriveInput& input, ParsedOptions& parsed, std::vector<std::string>& faults)
      : given_(*input.last_given), preset_(input.preset), parsed_(parsed), options_(parsed.options), faults_(faults) {}

  void run() {
    query_groups();
    widths();
    gelu();
    chunks();
    schedule();
    clock();
    recompute();
    zero();
    bucket();
    sequence_parallel();
    tensorboard();
    tokenizer_files();
  }

 private:
  bool given(const char* name) const { return given_.contains(name); }
  std::string value(const char* name) const { return given(name) ? given_.at(name) : std::string(); }

  // Megatron ignores --num-query-groups without --group-query-attention; ignoring it here would be silent.
  void query_groups() {
    model::ModelConfig& m = options_.model;
    const bool preset_grouped = preset_ != nullptr && preset_->num_query_groups < preset_->num_attention_heads;
    const bool grouped = given("group-query-attention") ? value("group-query-attention") == "true" : preset_grouped;
    if (grouped) {
      if (!given("num-query-groups") && !preset_grouped) {
        m.num_query_groups = 1;
        parsed_.notes.push_back("--group-query-attention without --num-query-groups: 1 KV head, as in Megatron-LM");
      }
      return;
    }
    if (given("num-query-groups") && m.num_query_groups != m.num_attention_heads) {
      faults_.push_back(
          fmt::format("--num-query-groups {}: needs --group-query-attention (without it every head has "
                      "its own keys and values)",
                      m.num_query_groups));
    }
    m.num_query_groups = m.num_attention_heads;
  }

  void widths() {
    model::ModelConfig& m = options_.model;
    const bool reshaped = given("hidden-size") || given("num-attention-heads");
    if (!given("kv-channels") && (m.kv_channels == 0 || reshaped) && m.num_attention_heads > 0) {
      m.kv_channels = m.hidden_size % m.num_attention_heads == 0 ? m.hidden_size / m.num_attention_heads : 0;
    }
    if (!given("ffn-hidden-size") && (m.ffn_hidden_size == 0 || given("hidden-size") || given("swiglu"))) {
      m.ffn_hidden_size = model::default_ffn_hidden_size(m.hidden_size, m.activation);
    }
    // Only learned positions have rows; a preset keeps its number when the sequence is cut shorter.
    const bool any_length = m.max_position_embeddings == 0 || m.position != model::PositionType::Learned;
    if (!given("max-position-embeddings") && any_length) {
      m.max_position_embeddings = std::max(m.max_position_embeddings, m.seq_length);
    }
    if (given("disable-bias-linear") && !given("add-qkv-bias")) m.add_qkv_bias = m.add_bias_linear;
    if (preset_ != nullptr && (reshaped || given("num-layers")) && !given("model-name")) m.name += "-custom";
  }

  void gelu() {
    if (value("bias-gelu-fusion") == "false" && options_.model.activation == model::ActivationType::Gelu) {
      faults_.push_back(
          "--no-bias-gelu-fusion: asks for the erf form of GELU; only the tanh form is here; leave it out");
    }
  }

  void chunks() {
    ParallelOptions& p = options_.parallel;
    const int64_t pipeline = p.grid.pipeline;
    const std::optional<int64_t> per_stage = parse_integer(value("num-layers-per-virtual-pipeline-stage"));
    if (given("num-layers-per-virtual-pipeline-stage")) {
      const int64_t layers = options_.model.num_layers;
      if (layers == 0) return;  // a fault of its own
      if (!per_stage || *per_stage < 1 || *per_stage > layers || layers % (pipeline * *per_stage) != 0) {
        faults_.push_back(fmt::format(
            "--num-layers-per-virtual-pipeline-stage {}: must divide the {} layers of a stage ({} layers / {} stages); "
            "uneven splits: --num-virtual-stages-per-pipeline-rank",
            value("num-layers-per-virtual-pipeline-stage"), layers / pipeline, layers, pipeline));
        return;
      }
      set_chunks(layers / pipeline / *per_stage, "--num-layers-per-virtual-pipeline-stage");
    }
    if (!p.layer_list.empty()) {
      const auto stages = static_cast<int64_t>(p.layer_list.size());
      if (stages % pipeline != 0) {
        faults_.push_back(
            fmt::format("--pipeline-model-parallel-layout: {} stages are not a multiple of "
                        "--pipeline-model-parallel-size {}; nearest: {}",
                        stages, pipeline, std::max<int64_t>(stages / pipeline, 1) * pipeline));
        return;
      }
      set_chunks(stages / pipeline, "--pipeline-model-parallel-layout");
    }
  }

  void set_chunks(int64_t chunks, const char* source) {
    if (given("num-virtual-stages-per-pipeline-rank") && options_.parallel.chunks != chunks) {
      faults_.push_back(fmt::format("--num-virtual-stages-per-pipeline-rank {}: {} means {}; give one of the two",
                                    options_.parallel.chunks, source, chunks));
    }
    options_.parallel.chunks = static_cast<int>(chunks);
  }

  // Some schedules say themselves how many chunks a position has.
  void chunks_of_schedule() {
    if (options_.parallel.schedule == parallel::ScheduleKind::ZeroBubbleV) options_.parallel.chunks = 2;
    if (options_.parallel.schedule != parallel::ScheduleKind::Csv) return;
    try {
      options_.parallel.chunks = schedule_options_of(options_).chunks;
    } catch (const ConfigError& error) {
      faults_.push_back(error.what());
    }
  }

  void schedule() {
    if (given("pipeline-schedule")) {
      if (!given("num-virtual-stages-per-pipeline-rank")) chunks_of_schedule();
      return;
    }
    options_.parallel.schedule =
        options_.parallel.chunks > 1 ? parallel::ScheduleKind::Interleaved : parallel::ScheduleKind::OneFOneB;
  }

  // Buckets in bytes: of gradients in their own width.
  void bucket() {
    if (!given("bucket-cap-mb")) return;
    const std::string word = value("bucket-cap-mb");
    const std::optional<double> mib = parse_real(word);
    if (!mib || !(*mib > 0) || *mib > 1e6) {
      faults_.push_back(fmt::format("--bucket-cap-mb {}: must be a number of MiB, above 0 and at most 1e6", word));
    } else if (given("ddp-bucket-size")) {
      faults_.push_back(fmt::format("--bucket-cap-mb {} and --ddp-bucket-size {}: give one of the two", word,
                                    value("ddp-bucket-size")));
    } else {
      const auto width = static_cast<double>(size_of(state_dtype(options_.control.precision)));
      options_.parallel.ddp_bucket_size = std::max<int64_t>(1, static_cast<int64_t>(*mib * 1048576.0 / width));
    }
  }

  // Megatron-LM's and FSDP's words for the stages of ZeRO. Words that mean different stages are a fault.
  void zero() {
    ParallelOptions& p = options_.parallel;
    std::vector<std::pair<std::string, int>> meant;
    if (given("zero-stage")) meant.emplace_back("--zero-stage " + value("zero-stage"), p.zero_stage);
    if (given("data-parallel-sharding-strategy")) {
      const std::map<std::string, int> stages{
          {"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}};
      const std::string word = value("data-parallel-sharding-strategy");
      const auto stage = stages.find(word);
      if (stage == stages.end()) {
        faults_.push_back(fmt::format(
            "--data-parallel-sharding-strategy {}: must be no_shard, optim, optim_grads or optim_grads_params", word));
        return;
      }
      meant.emplace_back("--data-parallel-sharding-strategy " + word, stage->second);
    } else {
      for (const char* name : {"use-megatron-fsdp", "use-torch-fsdp2"}) {
        if (value(name) == "true") meant.emplace_back(fmt::format("--{}", name), 3);
      }
    }
    // Megatron-LM's FSDP asks for the distributed optimizer as well.
    if (value("use-distributed-optimizer") == "true" && meant.empty()) meant.emplace_back("", 1);
    for (const auto& [word, stage] : meant) {
      if (stage == meant[0].second) continue;
      faults_.push_back(fmt::format("{} and {}: mean ZeRO stages {} and {}; give one of the two", meant[0].first, word,
                                    meant[0].second, stage));
    }
    if (value("use-distributed-optimizer") == "true" && !meant.empty() && meant[0].second == 0) {
      faults_.push_back(fmt::format("--use-distributed-optimizer and {}: mean ZeRO stages 1 and 0; give one of the two",
                                    meant[0].first));
    }
    if (!meant.empty()) p.zero_stage = meant[0].second;
    if (p.zero_stage == 3) return;
    // One command line for all stages is what an ablation wants: said, not refused.
    const ParallelOptions defaults;
    for (const auto& [name, set] : {std::pair{"zero-prefetch", p.zero_prefetch != defaults.zero_prefetch},
                                    std::pair{"zero-param-persistence-threshold",
                                              p.zero_persistence_threshold != defaults.zero_persistence_threshold}}) {
      if (set) parsed_.notes.push_back(fmt::format("--{} {}: has an effect only at --zero-stage 3", name, value(name)));
    }
  }

  // Other commands have a --cost of their own, so what counts is what reached the run's settings.
  void clock() {
    const RunControl& control = options_.control;
    const RunControl defaults;
    if (control.clock == "virtual") return;
    if (control.cost == defaults.cost && control.jitter == 0 && control.stragglers.empty()) return;
    faults_.push_back("--cost, --jitter, --straggler: have an effect only on the virtual clock; add --clock virtual");
  }

  void recompute() {
    using parallel::RecomputeGranularity;
    const RecomputeGranularity granularity = options_.parallel.recompute.granularity;
    if (granularity == RecomputeGranularity::Full) {
      if (!given("recompute-method")) {
        faults_.push_back("--recompute-granularity full: needs --recompute-method uniform or block");
      }
      return;
    }
    for (const char* name : {"recompute-method", "recompute-num-layers"}) {
      if (!given(name)) continue;
      faults_.push_back(fmt::format("--{} {}: only --recompute-granularity full takes it", name, value(name)));
    }
  }

  void sequence_parallel() {
    ParallelOptions& p = options_.parallel;
    if (p.scatter_gather && (p.grid.tensor == 1 || p.grid.pipeline == 1 || p.sequence_parallel)) {
      p.scatter_gather = false;
      parsed_.notes.push_back(
          "--scatter-gather-tensors-in-pipeline: off; it needs tensor and pipeline ranks, and --sequence-parallel "
          "already cuts what is sent");
    }
    if (!p.sequence_parallel || p.grid.tensor > 1) return;
    p.sequence_parallel = false;
    parsed_.notes.push_back("--sequence-parallel has nothing to cut at --tensor-model-parallel-size 1: off");
  }

  // A directory alone asks for event files; the switch, where it is given, decides.
  void tensorboard() {
    if (value("tensorboard") == "false") options_.control.tensorboard_dir.clear();
  }

  // Files are read only by a tokenizer whose type is known; both files of GPT-2 name it, as in Megatron-LM.
  void tokenizer_files() {
    DataOptions& data = options_.data;
    if (!data.tokenizer_type.empty()) return;
    if (!data.mock_data && !data.vocab_file.empty() && !data.merge_file.empty() && data.tokenizer_model.empty()) {
      data.tokenizer_type = "GPT2BPETokenizer";
      parsed_.notes.push_back(
          "--vocab-file and --merge-file without --tokenizer-type: GPT2BPETokenizer, as in Megatron-LM");
      return;
    }
    for (const auto& [name, file, types] :
         {std::tuple{"vocab-file", data.vocab_file, "GPT2BPETokenizer"},
          std::tuple{"merge-file", data.merge_file, "GPT2BPETokenizer"},
          std::tuple{"tokenizer-model", data.tokenizer_model,
                     "SentencePieceTokenizer, Llama2Tokenizer, HuggingFaceTokenizer or TikTokenizer"}}) {
      if (!given(name) || file.empty()) continue;
      if (data.mock_data) {
        parsed_.notes.push_back(fmt::format("--{} {} has no effect with --mock-data", name, file));
      } else {
        faults_.push_back(fmt::format("--{} {}: has no effect without a type; add --tokenizer-type {}, or leave it out",
                                      name, file, types));
      }
    }
  }

  const std::map<std::string, std::string>& given_;
  const model::ModelConfig* preset_;
  ParsedOptions& parsed_;
  RunOptions& options_;
  std::vector<std::string>& faults_;
};

}  // namespace

void derive(const DeriveInput& input, ParsedOptions& parsed, std::vector<std::string>& faults) {
  Deriver(input, parsed, faults).run();
}

}  // namespace triax::io
