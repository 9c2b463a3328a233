#include "apps/sim_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "io/options/validate.h"
#include "plan/critical_path.h"
#include "plan/step_shape.h"

namespace triax::apps {

using plan::TimePart;

const char* const kSimUsage =
    "usage: triax sim --hw NAME|hw.json [options]\n\n"
    "What a step of a run takes on a machine, in time and memory, before it runs: no ranks, no GPU. The program of\n"
    "'triax train' with the same options is simulated with the times of the cost model.\n\n"
    "  triax sim --model gpt3-175b --hw selene --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 \\\n"
    "    --world-size 1024 --global-batch-size 1536 --micro-batch-size 1 --train-tokens 300e9 \\\n"
    "    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n"
    "  triax sim --config run.cfg --hw h100 --world-size 64 --scale-bw infiniband=0.5 --chrome step.json\n\n"
    "Options of model, layout, precision and optimizer are those of triax train ('triax options' lists them), also\n"
    "--seed. Its own:\n";

const char* const kSimDescription =
    "Times are seconds in JSON and CSV; the table says its unit. One line or element per pipeline stage; the step's "
    "own\n"
    "parts are their mean over stages. The parts of a stage sum to the step, to the picosecond.\n\n"
    "gemm attention elementwise   computing of forward and backward: matrix products; attention; norms, activations,\n"
    "                 residuals, embedding, loss\n"
    "launch           floors of kernel launches and what the host adds\n"
    "recompute        computing of recomputation (its collectives are tp_comm)\n"
    "load             batches\n"
    "tp_comm          exposed collectives over tp, sums of partial gradients\n"
    "zero_gather      exposed gathers of weights (ZeRO 1 to 3)\n"
    "dp_reduce        exposed sums of gradients over dp\n"
    "pp_comm          waits in which the message is on the wire, gathers of message slices, tied embedding's sum:\n"
    "                 the p2p part of the bubble\n"
    "bubble_fill      waits before the first backward\n"
    "bubble_drain     waits after the last forward and until the last stage has computed\n"
    "bubble_imbalance waits between: another stage is slower\n"
    "bubble_sync      stands until other stages come, after the pass\n"
    "optimizer        gradient norm, optimizer step\n\n"
    "tflops model     FLOP of forward and backward without recomputation, per device and second; hardware: with it.\n"
    "                 dense: attention's full square as the papers count; causal: the half that is needed\n"
    "mfu hfu          these over the device's dense peak in the compute type\n"
    "bubble_of_total  1 - computing / span, mean over stages (docs/pipeline.md)\n"
    "memory           bytes of one rank of the stage: by formula, and exact where the trainer's own code was run\n"
    "                 (--exact); peak_op: the op that reaches it; runtime: contexts and library buffers of the "
    "machine's\n"
    "                 description, outside both; bytes: exact where there is one, with runtime\n"
    "traffic          bytes sent per step by all ranks, by axis, and by the innermost link whose domain holds both "
    "ends\n"
    "--verify         per category: predicted, measured, error. step: median of the run's iterations after 3; the "
    "parts\n"
    "                 are of one traced step, mean over stages, their errors relative to that step: compute (with the\n"
    "                 collectives inside of ops), fill, drain, between (waits for messages), dp_sync, optimizer, "
    "other\n"
    "                 (between ops; never predicted). memory: bytes of the fullest rank\n"
    "critical path    chain of ops and messages that the step waits for from start to end; shares of the step\n"
    "assumed          constants of machine and program that nobody measured, fitted or published, where they matter:\n"
    "                 step_change is the relative change of the step's time when one is 10 % larger\n";

namespace {

struct ScaledUnit {
  const char* name;
  double size;
};

ScaledUnit time_unit(double step_s) { return step_s >= 1 ? ScaledUnit{"s", 1e12} : ScaledUnit{"ms", 1e9}; }

ScaledUnit memory_unit(const plan::Prediction& p) {
  const plan::StagePrediction& s = p.stages[static_cast<size_t>(p.fullest)];
  const auto most = static_cast<double>(s.bytes() - s.runtime_bytes);
  return most >= kGiB ? ScaledUnit{"GiB", kGiB} : ScaledUnit{"MiB", kMiB};
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.3f} TB", bytes / 1e12);
  return bytes >= 1e9 ? fmt::format("{:.3f} GB", bytes / 1e9) : fmt::format("{:.3f} MB", bytes / 1e6);
}

std::string step_lines(const plan::Prediction& p) {
  const auto rate = [&](double flops) { return p.achieved(flops) / 1e12; };
  std::string text = fmt::format("step {:.6g} s, {:.6g} tokens/s, bubble {:.2f} % of total\n", p.step_s(),
                                 p.tokens_per_s(), 100 * p.bubble_of_total);
  text += fmt::format(
      "TFLOP/s per device: model {:.2f} dense, {:.2f} causal half; hardware {:.2f} dense, {:.2f} causal half\n",
      rate(p.flops_dense.model), rate(p.flops_causal.model), rate(p.flops_dense.hardware),
      rate(p.flops_causal.hardware));
  text += fmt::format(
      "MFU {:.2f} % dense, {:.2f} % causal half; HFU {:.2f} %, {:.2f} % of {:.6g} TFLOP/s ({} dense peak)\n",
      100 * p.utilization(p.flops_dense.model), 100 * p.utilization(p.flops_causal.model),
      100 * p.utilization(p.flops_dense.hardware), 100 * p.utilization(p.flops_causal.hardware), p.peak_flops / 1e12,
      name_of(p.peak_dtype));
  if (p.train_tokens > 0) {
    text += fmt::format("training on {:.6g} tokens: {:.2f} days, {:.6g} device-hours, {:.6g} steps\n", p.train_tokens,
                        p.training_s() / 86400, p.device_hours(), std::ceil(p.train_tokens / p.tokens_per_step));
  }
  return text;
}

std::string breakdown(const plan::Prediction& p) {
  const ScaledUnit unit = time_unit(p.step_s());
  std::string text = fmt::format("\n{:<18} {:>12} {:>8}   (mean over stages)\n", "part", unit.name, "%");
  const auto line = [&](const std::string& name, int64_t ps) {
    text += fmt::format("{:<18} {:>12.6f} {:>7.2f}\n", name, static_cast<double>(ps) / unit.size,
                        100 * static_cast<double>(ps) / static_cast<double>(p.step_ps));
  };
  for (int part = 0; part < plan::kNumTimeParts; ++part) {
    const auto which = static_cast<TimePart>(part);
    if (p.time[which] > 0) line(name_of(which), p.time[which]);
  }
  line("step", p.step_ps);
  return text;
}

std::string stage_times(const plan::Prediction& p) {
  const ScaledUnit unit = time_unit(p.step_s());
  std::string text = fmt::format("\n{:>5}", "stage");
  constexpr const char* kColumns[] = {"compute", "recompute", "tp",        "zero", "dp",       "pp",
                                      "fill",    "drain",     "imbalance", "sync", "optimizer"};
  for (const char* name : kColumns) text += fmt::format(" {:>9}", name);
  text += fmt::format("   ({})\n", unit.name);
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const plan::TimeSplit& t = p.stages[i].time;
    text += fmt::format("{:>5}", i);
    for (const int64_t ps :
         {t.compute() - t[TimePart::Recompute], t[TimePart::Recompute], t[TimePart::TensorComm],
          t[TimePart::ZeroGather], t[TimePart::DataReduce], t[TimePart::PipelineComm], t[TimePart::BubbleFill],
          t[TimePart::BubbleDrain], t[TimePart::BubbleImbalance], t[TimePart::BubbleSync], t[TimePart::Optimizer]}) {
      text += fmt::format(" {:>9.4f}", static_cast<double>(ps) / unit.size);
    }
    text += "\n";
  }
  return text;
}

std::string stage_memory(const plan::Prediction& p) {
  const ScaledUnit unit = memory_unit(p);
  std::string text = fmt::format("\n{:>5}", "stage");
  for (const char* name : {"weights", "gradients", "optimizer", "activations", "emb+head", "working", "buffers",
                           "runtime", "formula", "exact"}) {
    text += fmt::format(" {:>11}", name);
  }
  text += fmt::format("   peak op ({})\n", unit.name);
  const auto value = [&](int64_t bytes) { return fmt::format(" {:>11.3f}", static_cast<double>(bytes) / unit.size); };
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const plan::StagePrediction& s = p.stages[i];
    const model::StageMemory& m = s.memory;
    text += fmt::format("{:>5}", i);
    for (const int64_t bytes : {m.states.weights, m.states.gradients, m.states.optimizer, m.activations, m.ends,
                                m.working, m.buffers, s.runtime_bytes, m.total() + s.runtime_bytes}) {
      text += value(bytes);
    }
    text += s.exact ? value(s.bytes()) : fmt::format(" {:>11}", "-");
    text += fmt::format("   {}\n", s.exact && s.exact->peak_op >= 0 ? s.exact->peak_op_text : s.peak_op);
  }
  const double most = static_cast<double>(p.stages[static_cast<size_t>(p.fullest)].bytes());
  return text + fmt::format("fullest: stage {}, {:.3f} of {:.3f} {} ({:.1f} %){}\n", p.fullest, most / unit.size,
                            p.memory_limit_bytes / unit.size, unit.name, 100 * most / p.memory_limit_bytes,
                            p.fits() ? ""
                                     : fmt::format(": DOES NOT FIT, {:.3f} {} missing",
                                                   (most - p.memory_limit_bytes) / unit.size, unit.name));
}

std::string traffic_lines(const plan::Traffic& traffic) {
  std::string text = fmt::format("\nbytes sent per step, all ranks: tp {}, pp {}, dp {}; over",
                                 bytes_text(traffic.tensor), bytes_text(traffic.pipeline), bytes_text(traffic.data));
  for (const auto& [name, bytes] : traffic.by_link) text += fmt::format(" {} {}", name, bytes_text(bytes));
  return text + "\n";
}

std::string path_line(const plan::Prediction& p) {
  const plan::CriticalPath path = plan::critical_path(*p.simulated);
  std::string text = fmt::format("\ncritical path, {} links:", path.ops);
  constexpr size_t kShown = 6;
  int64_t rest = path.total_ps();
  for (size_t i = 0; i < std::min(kShown, path.shares.size()); ++i) {
    const plan::PathShare& share = path.shares[i];
    rest -= share.ps;
    text += fmt::format(" {}{} {:.1f} %,", share.what,
                        share.position < 0 ? "" : fmt::format(" of stage {}", share.position),
                        100 * static_cast<double>(share.ps) / static_cast<double>(p.step_ps));
  }
  return text + fmt::format(" others {:.1f} %\n", 100 * static_cast<double>(rest) / static_cast<double>(p.step_ps));
}

std::string assumed_lines(const SimReport& report) {
  if (report.assumed.empty()) return "";
  std::string text = "\nassumed constants that matter (step's change when 10 % larger):\n";
  for (const plan::AssumedConstant& a : report.assumed) {
    text += fmt::format("  {:+7.2f} %  {} = {:.6g}: {}\n", 100 * a.step_change, a.name, a.constant.value,
                        a.constant.source);
  }
  return text;
}

}  // namespace

std::string headline(const SimReport& report) {
  const io::RunOptions& o = report.request.options;
  const comm::GridShape& grid = o.parallel.grid;
  return fmt::format("{} on {}: t {}{}, p {}, v {}, d {} ({} ranks), ZeRO {}, {}, m {}, b {}, B {}, s {}, recompute {}",
                     o.model.name, report.request.hardware.name, grid.tensor,
                     o.parallel.sequence_parallel ? " with sequence parallelism" : "", grid.pipeline, o.parallel.chunks,
                     grid.data, grid.world(), o.parallel.zero_stage, name_of(o.parallel.schedule),
                     o.batch.num_micro_batches, o.batch.micro_batch_size, o.batch.global_batch_size, o.model.seq_length,
                     plan::name_of(o.parallel.recompute.granularity));
}

std::string table_text(const SimReport& report) {
  const plan::Prediction& p = report.prediction;
  std::string text = headline(report) + "\n";
  text += fmt::format("machine: {}; program {:016x}\n", report.request.hardware.description,
                      parallel::hash_of(p.simulated->program));
  for (const std::string& note : report.request.notes) text += "note: " + note + "\n";
  text += step_lines(p) + breakdown(p);
  if (p.stages.size() > 1) text += stage_times(p);
  return text + stage_memory(p) + traffic_lines(p.traffic) + path_line(p) + assumed_lines(report);
}

}  // namespace triax::apps
