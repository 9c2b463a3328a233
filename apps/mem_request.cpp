#include "apps/mem_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/options/entries.h"
#include "io/options/fault_list.h"
#include "io/options/validate.h"

namespace triax::apps {
namespace {

using io::OptionEntry;

constexpr double kMostParameters = 0x1p54;

OptionEntry number_of_parameters(MemRequest& r) {
  return text_entry("num-parameters", "X", "parameters of the model, such as 7.5e9, instead of its dimensions",
                    [&r](const std::string& text) -> std::string {
                      const std::optional<double> value = io::parse_real(text);
                      if (!value || !(*value >= 1 && *value <= kMostParameters) || *value != std::floor(*value)) {
                        return "must be a whole number from 1 to 1.8e16, such as 7.5e9";
                      }
                      r.num_parameters = static_cast<int64_t>(*value);
                      return {};
                    });
}

OptionEntry attention_backend(MemRequest& r) {
  return text_entry("attention-backend", "flash|fused|auto|unfused|local",
                    "what the formulas count: unfused and local keep s x s scores, as in the papers; default flash",
                    [&r](const std::string& text) -> std::string {
                      const bool unfused = text == "unfused" || text == "local";
                      if (!unfused && text != "flash" && text != "fused" && text != "auto") {
                        return "must be flash, fused, auto, unfused or local";
                      }
                      r.terms.attention = unfused ? model::AttentionMemory::Unfused : model::AttentionMemory::Flash;
                      return {};
                    });
}

OptionEntry exact_scope(MemRequest& r) {
  return text_entry("exact", "auto|all|ends|none",
                    "stages that the exact forecast runs; auto: all, or first and last where all would take long",
                    [&r](const std::string& text) -> std::string {
                      if (text != "auto" && text != "all" && text != "ends" && text != "none") {
                        return "must be auto, all, ends or none";
                      }
                      r.exact = text;
                      return {};
                    });
}

/// The options are the trainer's own, and so are their rules.
void set_zero(MemRequest& r, int64_t d) {
  io::FaultList faults;
  io::check_zero(r.options, d, faults);
  if (r.grads_in_bf16 && r.options.control.precision != io::Precision::Bf16) {
    faults.text("--grad-reduce-in-bf16: needs --bf16 (or a preset)");
  }
  const std::vector<std::string> found = faults.take();
  if (!found.empty()) throw ConfigError(fmt::format("{}", fmt::join(found, "\n  ")));
  const auto attention = r.terms.attention;
  io::RunOptions of_replicas = r.options;
  of_replicas.parallel.grid.data = static_cast<int>(d);
  r.terms = plan::memory_terms_of(of_replicas);
  r.terms.attention = attention;
  if (r.grads_in_bf16) r.terms.gradients = plan::GradientStorage::Bf16;
}

int64_t replicas_of(const MemRequest& r) {
  const comm::GridShape& grid = r.options.parallel.grid;
  const int64_t model_ranks = int64_t{grid.tensor} * grid.context * grid.pipeline;
  if (r.world == 0) return std::max<int64_t>(r.data_parallel, 1);
  if (r.world % model_ranks != 0 || (r.data_parallel > 0 && r.data_parallel * model_ranks != r.world)) {
    throw ConfigError(fmt::format("--world-size {}: must be tp x pp x d = {} x {}; nearest: {}", r.world, model_ranks,
                                  r.data_parallel > 0 ? std::to_string(r.data_parallel) : "a whole number",
                                  r.data_parallel > 0 ? std::to_string(r.data_parallel * model_ranks)
                                                      : io::nearest_multiples(model_ranks, r.world)));
  }
  return r.world / model_ranks;
}

void set_batch(MemRequest& r, int64_t d) {
  io::BatchOptions& batch = r.options.batch;
  if (batch.micro_batch_size == 0) {
    batch.micro_batch_size = 1;
    r.notes.push_back("--micro-batch-size is not given: 1");
  }
  if (r.options.parallel.schedule == parallel::ScheduleKind::Csv && r.num_micro_batches == 0) {
    r.num_micro_batches = io::schedule_options_of(r.options).num_micro_batches;
  }
  const int64_t per_pass = batch.micro_batch_size * d;
  if (r.num_micro_batches > 0) {
    if (r.parsed.given("global-batch-size") && batch.global_batch_size != r.num_micro_batches * per_pass) {
      throw ConfigError(
          fmt::format("--num-microbatches {}: x micro-batch {} x {} replicas is not --global-batch-size "
                      "{}; give one of the two",
                      r.num_micro_batches, batch.micro_batch_size, d, batch.global_batch_size));
    }
    batch.global_batch_size = r.num_micro_batches * per_pass;
  } else if (batch.global_batch_size == 0) {
    if (r.options.parallel.grid.pipeline > 1) {
      throw ConfigError("--num-microbatches: is required with a pipeline (or --global-batch-size)");
    }
    r.notes.push_back("--num-microbatches is not given: 1");
  }
}

bool names_model(const MemRequest& r) {
  const model::ModelConfig& m = r.options.model;
  return r.parsed.given("model") || m.num_layers > 0 || m.hidden_size > 0 || m.num_attention_heads > 0;
}

}  // namespace

std::vector<OptionEntry> mem_entries(MemRequest& r) {
  std::vector<OptionEntry> all = {
      number_of_parameters(r),
      count_entry("data-parallel-size", "replicas d; default 1", 1, r.data_parallel),
      count_entry("world-size", "ranks; gives d as ranks / (tp pp)", 1, r.world),
      count_entry("num-microbatches", "micro-batches m of a step and replica", 1, r.num_micro_batches),
  };
  // The trainer refuses it: only the formula knows gradients in bf16.
  all.push_back(
      switch_entry("grad-reduce-in-bf16", "gradients are stored in bf16: 2 bytes each, not 4", r.grads_in_bf16));
  all.push_back(attention_backend(r));
  all.push_back(exact_scope(r));
  all.push_back(format_entry(r.format));
  all.push_back(switch_entry("describe", "explains columns, keys and what each engine counts", r.describe));
  all.push_back(path_entry("out", "writes the result there instead of stdout", r.out));
  return all;
}

void read_mem_request(const std::vector<std::string>& args, MemRequest& r) {
  r.parsed = io::parse_options(args, mem_entries(r));
  if (r.parsed.help || r.describe) return;
  r.options = r.parsed.options;
  r.notes = r.parsed.notes;
  const int64_t d = replicas_of(r);
  set_zero(r, d);
  if (r.num_parameters > 0) {
    if (names_model(r)) {
      throw ConfigError("--num-parameters: stands for a model without dimensions; leave out either it or the model");
    }
    return;
  }
  if (!names_model(r)) {
    throw ConfigError(
        "mem: needs a model: --model NAME (--list-models), its dimensions (--num-layers, --hidden-size, "
        "--num-attention-heads, --seq-length, --vocab-size), or --num-parameters");
  }
  if (r.options.model.vocab_size == 0) {
    throw ConfigError("--vocab-size is not given: the number of token ids, or a named model with --model");
  }
  set_batch(r, d);
  const comm::GridShape& grid = r.options.parallel.grid;
  const int64_t ranks = d * grid.tensor * grid.context * grid.pipeline;
  if (ranks > io::kMostRanks) {
    throw ConfigError(fmt::format("{} ranks: tp x pp x d must be at most {}", ranks, io::kMostRanks));
  }
  io::resolve(r.options, static_cast<int>(ranks), io::Purpose::Plan);
}

std::string trainer_options(const MemRequest& r, io::RunOptions& options) {
  options = r.options;
  if (r.grads_in_bf16) {
    for (const OptionEntry& entry : io::option_table()) {
      if (entry.name == "grad-reduce-in-bf16") return fmt::format("--{}: {}", entry.name, entry.reason);
    }
  }
  try {
    io::resolve(options, options.parallel.grid.world(), io::Purpose::Plan);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

}  // namespace triax::apps
