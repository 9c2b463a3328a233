#include "apps/virtual_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/options/entries.h"
#include "io/options/fault_list.h"
#include "io/options/validate.h"

namespace triax::apps {

std::vector<io::OptionEntry> rank_entries(RankWords& words) {
  return {
      count_entry("data-parallel-size", "replicas d; default 1", 1, words.data_parallel),
      count_entry("world-size", "ranks; gives d as ranks / (tp pp)", 1, words.world),
      count_entry("num-microbatches", "micro-batches m of a step and replica", 1, words.num_micro_batches),
  };
}

int64_t replicas_of(const RankWords& words, const comm::GridShape& grid) {
  const int64_t model_ranks = int64_t{grid.tensor} * grid.context * grid.pipeline;
  if (words.world == 0) return std::max<int64_t>(words.data_parallel, 1);
  const int64_t d = words.data_parallel;
  if (words.world % model_ranks != 0 || (d > 0 && d * model_ranks != words.world)) {
    throw ConfigError(
        fmt::format("--world-size {}: must be tp x pp x d = {} x {}; nearest: {}", words.world, model_ranks,
                    d > 0 ? std::to_string(d) : "a whole number",
                    d > 0 ? std::to_string(d * model_ranks) : io::nearest_multiples(model_ranks, words.world)));
  }
  return words.world / model_ranks;
}

void set_batch(const io::ParsedOptions& parsed, RankWords words, int64_t replicas, io::RunOptions& options,
               std::vector<std::string>& notes) {
  io::BatchOptions& batch = options.batch;
  if (batch.micro_batch_size == 0) {
    batch.micro_batch_size = 1;
    notes.push_back("--micro-batch-size is not given: 1");
  }
  if (options.parallel.schedule == parallel::ScheduleKind::Csv && words.num_micro_batches == 0) {
    words.num_micro_batches = io::schedule_options_of(options).num_micro_batches;
  }
  const int64_t per_pass = batch.micro_batch_size * replicas;
  if (words.num_micro_batches > 0) {
    if (parsed.given("global-batch-size") && batch.global_batch_size != words.num_micro_batches * per_pass) {
      throw ConfigError(fmt::format(
          "--num-microbatches {}: x micro-batch {} x {} replicas is not --global-batch-size {}; give one of "
          "the two",
          words.num_micro_batches, batch.micro_batch_size, replicas, batch.global_batch_size));
    }
    batch.global_batch_size = words.num_micro_batches * per_pass;
  } else if (batch.global_batch_size == 0) {
    if (options.parallel.grid.pipeline > 1) {
      throw ConfigError("--num-microbatches: is required with a pipeline (or --global-batch-size)");
    }
    notes.push_back("--num-microbatches is not given: 1");
  }
}

bool names_model(const io::ParsedOptions& parsed) {
  const model::ModelConfig& m = parsed.options.model;
  return parsed.given("model") || m.num_layers > 0 || m.hidden_size > 0 || m.num_attention_heads > 0;
}

void require_model(const std::string& command, const io::ParsedOptions& parsed) {
  if (!names_model(parsed)) {
    throw ConfigError(command +
                      ": --model NAME (--list-models), or its dimensions (--num-layers, --hidden-size, "
                      "--num-attention-heads, --seq-length, --vocab-size)");
  }
  if (parsed.options.model.vocab_size == 0) {
    throw ConfigError("--vocab-size is not given: the number of token ids, or a named model with --model");
  }
}

void resolve_for(int64_t replicas, io::RunOptions& options) {
  const comm::GridShape& grid = options.parallel.grid;
  const int64_t ranks = replicas * grid.tensor * grid.context * grid.pipeline;
  if (ranks > io::kMostRanks) {
    throw ConfigError(fmt::format("{} ranks: tp x pp x d must be at most {}", ranks, io::kMostRanks));
  }
  io::resolve(options, static_cast<int>(ranks), io::Purpose::Plan);
}

}  // namespace triax::apps
