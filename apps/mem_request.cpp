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

}  // namespace

std::vector<OptionEntry> mem_entries(MemRequest& r) {
  std::vector<OptionEntry> all = {
      number_of_parameters(r),
  };
  for (OptionEntry& entry : rank_entries(r.ranks)) all.push_back(std::move(entry));
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
  const int64_t d = replicas_of(r.ranks, r.options.parallel.grid);
  set_zero(r, d);
  if (r.num_parameters > 0) {
    if (names_model(r.parsed)) {
      throw ConfigError("--num-parameters: stands for a model without dimensions; leave out either it or the model");
    }
    return;
  }
  require_model("mem: needs a model, or --num-parameters", r.parsed);
  set_batch(r.parsed, r.ranks, d, r.options, r.notes);
  resolve_for(d, r.options);
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
