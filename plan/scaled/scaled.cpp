#include "plan/scaled/scaled.h"

#include <fmt/format.h>

#include <map>

namespace triax::plan {
namespace {

constexpr const char* kUnfused =
    "it is memory with unfused attention, which this program does not have: its attention is tiled, without an s x s "
    "matrix; 'triax sweep --ablation recompute' measures what is here";

/// Presets without a small counterpart.
const std::map<std::string, std::string>& reasons() {
  static const std::map<std::string, std::string> kReasons{
      {"korthikanti22-fig1", kUnfused},
      {"korthikanti22-fig7", kUnfused},
      {"korthikanti22-mfu", "it is arithmetic on printed times; nothing runs"},
      {"megatron20-readme", "its question is that of megatron21-table1, on other GPUs"},
      {"megatron19-fig5", "its question is that of megatron21-table1, with tensor parallelism alone"},
      {"megatron-core24", "its question is that of megatron21-table1, on other GPUs"},
      {"mtnlg-530b", "one model on 2240 to 3360 GPUs: 'triax sweep --ablation strong-scaling' asks it here"},
      {"vtrain-multi", "a survey of layouts on up to 512 GPUs: 'triax plan --try N' does that on the machine at hand"},
      {"vtrain-single", "a survey of layouts on GPUs: 'triax plan --try N' does that on the machine at hand"},
      {"llmfoundry-fsdp", "sizes of models on two kinds of GPU: 'triax sweep --ablation zero' measures sharding here"},
      {"vtrain-nccl", "times of a library between GPUs: 'triax bench coll' measures those of this machine"},
      {"zero19-configs", "there is no published number to set a small run beside"}};
  return kReasons;
}

}  // namespace

std::vector<std::string> scaled_gpt(const Dimensions& dimensions) {
  std::vector<std::string> words = dimension_words(dimensions);
  const std::vector<std::string> rest = short_run(8);
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

ScaledExperiment scaled_experiment(const std::string& preset, int cores) {
  const auto reason = reasons().find(preset);
  if (reason != reasons().end()) {
    ScaledExperiment none;
    none.none = reason->second;
    return none;
  }
  const int ranks = cores >= 4 ? 4 : 2;
  ScaledExperiment experiment = scaled_figure(preset, ranks);
  if (experiment.points.empty()) experiment = scaled_method(preset);
  if (experiment.points.empty()) experiment.none = "no small experiment is written for it";
  return experiment;
}

}  // namespace triax::plan
