#include "apps/plan_emit.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "apps/program_request.h"
#include "base/error.h"
#include "base/units.h"
#include "model/counts.h"

namespace triax::apps {
namespace {

struct ModelRate {
  double parameters, lr;
};
/// Learning rates by size: GPT-3 (Brown et al. 2020, arXiv 2005.14165, table 2.1).
constexpr std::array<ModelRate, 8> kRates{{{125e6, 6e-4},
                                           {350e6, 3e-4},
                                           {760e6, 2.5e-4},
                                           {1.3e9, 2e-4},
                                           {2.7e9, 1.6e-4},
                                           {6.7e9, 1.2e-4},
                                           {13e9, 1e-4},
                                           {175e9, 0.6e-4}}};

double learning_rate(int64_t parameters) {
  double lr = kRates.front().lr;
  for (const ModelRate& rate : kRates) {
    if (static_cast<double>(parameters) >= 0.9 * rate.parameters) lr = rate.lr;
  }
  return lr;
}

}  // namespace

std::string run_cfg(const plan::Choice& choice) {
  io::RunOptions options = choice.options;
  std::string text = fmt::format("# {}: predicted step {:.5g} ms\n", text_of(choice.layout), choice.step_s() * 1e3);
  text += fmt::format("# for {0} ranks; triax sim, mem and program take them from --world-size {0}\n",
                      options.parallel.grid.world());
  if (options.optimizer.lr == 0) {
    options.optimizer.lr = learning_rate(model::parameter_count(options.model));
    options.optimizer.min_lr = options.optimizer.lr / 10;
    text += "# lr: by size as GPT-3 (arXiv 2005.14165 table 2.1); a plan does not choose it\n";
  }
  if (options.batch.train_iters == 0 && options.batch.train_samples == 0) options.batch.train_iters = 1000;
  if (options.optimizer.lr_decay_iters == 0 && options.batch.train_samples == 0) {
    options.optimizer.lr_decay_iters = options.batch.train_iters;
  }
  return text + io::resolved_cfg(options);
}

std::string slurm_script(const PlanAnswer& a, const std::string& directory) {
  const plan::Choice& c = a.result.choices.front();
  const plan::Prediction& p = c.prediction;
  const int per_node = std::min(a.question.hardware.devices_per_node, a.question.devices);
  const int nodes = (a.question.devices + per_node - 1) / per_node;
  std::string text = "#!/usr/bin/env bash\n";
  text += fmt::format("# {} on {} x {}: {}\n", a.question.base.model.name, a.question.devices, a.question.hardware.name,
                      text_of(c.layout));
  text += fmt::format("# predicted: step {:.5g} ms, {:.6g} tokens/s, MFU {:.1f} %, {:.1f} GiB on the fullest device\n",
                      p.step_s() * 1e3, p.tokens_per_s(), 100 * p.utilization(p.flops_dense.model),
                      static_cast<double>(p.stages[static_cast<size_t>(p.fullest)].bytes()) / kGiB);
  text += fmt::format("#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n", "triax-plan", nodes,
                      per_node);
  if (a.question.hardware.device == "cuda") text += fmt::format("#SBATCH --gpus-per-node={}\n", per_node);
  text += fmt::format(R"(#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# TRIAX: the binary. DATA_PATH: tokenised data; without it the run trains on made-up tokens.
set -euo pipefail
plan={}
data=(--mock-data)
[ -z "${{DATA_PATH:-}}" ] || data=(--data-path $DATA_PATH)
code=0
srun --kill-on-bad-exit=1 "${{TRIAX:-triax}}" train --config "$plan/run.cfg" "${{data[@]}}" \
  --run-dir "$plan/run-$SLURM_JOB_ID" --save "$plan/run-$SLURM_JOB_ID/checkpoints" \
  --load "$plan/run-$SLURM_JOB_ID/checkpoints" || code=$?
# 75: stopped before the last iteration with a checkpoint saved.
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
)",
                      fmt::format("'{}'", directory));
  return text;
}

void emit_plan(const PlanRequest& r, const PlanAnswer& a) {
  std::error_code error;
  std::filesystem::create_directories(r.emit, error);
  if (error) throw RunTimeError(fmt::format("--emit {}: {}", r.emit, error.message()));
  const std::string directory = std::filesystem::absolute(r.emit).lexically_normal().string();
  write_file(r.emit + "/plan.json", plan_json(r, a));
  write_file(r.emit + "/run.cfg", run_cfg(a.result.choices.front()));
  write_file(r.emit + "/run.slurm", slurm_script(a, directory));
  fmt::print("\nwritten: {0}/plan.json, {0}/run.cfg, {0}/run.slurm\n", r.emit);
}

}  // namespace triax::apps
