#include "apps/plan_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "model/counts.h"
#include "plan/step_split.h"

namespace triax::apps {
namespace {

using plan::Choice;
using plan::TimePart;

double share(const Choice& c, int64_t ps) {
  return 100.0 * static_cast<double>(ps) / static_cast<double>(c.prediction.step_ps);
}

int64_t bytes_of(const Choice& c) { return c.prediction.stages[static_cast<size_t>(c.prediction.fullest)].bytes(); }

std::string header(const PlanRequest& r, const PlanAnswer& a) {
  const plan::PlanQuestion& q = a.question;
  std::string text = fmt::format("{}: {:.4g} B parameters, sequence {}, global batch {}; {} x {} ({}), {} per node\n",
                                 q.base.model.name, static_cast<double>(model::parameter_count(q.base.model)) * 1e-9,
                                 q.base.model.seq_length, q.base.batch.global_batch_size, q.devices, q.hardware.name,
                                 q.hardware.description, q.hardware.devices_per_node);
  for (const std::string& note : r.notes) text += fmt::format("note: {}\n", note);
  text += fmt::format("{} layouts divide model and batch; {} fit {:.1f} GiB ({:.0f} % of a device)\n", a.result.layouts,
                      a.result.fitting, q.limit_bytes() / kGiB, 100 * q.memory_share);
  return text;
}

std::string choices_table(const PlanAnswer& a, int shown) {
  size_t width = 6;
  const auto& choices = a.result.choices;
  const size_t rows = std::min<size_t>(choices.size(), static_cast<size_t>(shown));
  for (size_t i = 0; i < rows; ++i) width = std::max(width, text_of(choices[i].layout).size());
  std::string text =
      fmt::format("\n{:>3}  {:<{}}  {:>9}  {:>10}  {:>5}  {:>5}  {:>6}  {:>5} {:>5} {:>5} {:>5}  {:>7}\n", "", "layout",
                  width, "step ms", "tokens/s", "MFU", "HFU", "bubble", "tp", "pp", "dp", "zero", "GiB");
  for (size_t i = 0; i < rows; ++i) {
    const Choice& c = choices[i];
    const plan::Prediction& p = c.prediction;
    text += fmt::format(
        "{:>3}  {:<{}}  {:>9.5g}  {:>10.6g}  {:>5.1f}  {:>5.1f}  {:>6.1f}  {:>5.1f} {:>5.1f} {:>5.1f} {:>5.1f}  "
        "{:>7.2f}\n",
        i + 1, text_of(c.layout), width, p.step_s() * 1e3, p.tokens_per_s(), 100 * p.utilization(p.flops_dense.model),
        100 * p.utilization(p.flops_dense.hardware), 100 * p.bubble_of_total, share(c, p.time[TimePart::TensorComm]),
        share(c, p.time[TimePart::PipelineComm]), share(c, p.time[TimePart::DataReduce]),
        share(c, p.time[TimePart::ZeroGather]), static_cast<double>(bytes_of(c)) / kGiB);
  }
  return text + "(simulated; percent of the step; tp to zero: exposed communication; GiB of the fullest device)\n";
}

std::string stages_table(const Choice& c) {
  std::string text = fmt::format(
      "\nmemory of {}, GiB per stage\n{:>5}  {:>8}  {:>9}  {:>9}  {:>11}  {:>7}  {:>7}  {:>6}\n", text_of(c.layout),
      "stage", "weights", "gradients", "optimizer", "activations", "buffers", "runtime", "all");
  int position = 0;
  for (const plan::StagePrediction& s : c.prediction.stages) {
    const model::StageMemory& m = s.memory;
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
    text += fmt::format("{:>5}  {:>8.2f}  {:>9.2f}  {:>9.2f}  {:>11.2f}  {:>7.2f}  {:>7.2f}  {:>6.2f}\n", position++,
                        gib(m.states.weights), gib(m.states.gradients), gib(m.states.optimizer),
                        gib(m.activations + m.ends + m.working), gib(m.buffers), gib(s.runtime_bytes), gib(s.bytes()));
  }
  return text;
}

std::string ratios_text(const PlanAnswer& a) {
  const plan::Ratios& r = a.ratios;
  std::string text =
      fmt::format("\nwhy: communication against computing at {:.4g} TFLOP/s of a device\n", r.flops * 1e-12);
  text += fmt::format("  tp {:<3}  {:>7.1f} %  all-reduces of a layer, {:.3g} GB/s\n", r.tensor, 100 * r.tp,
                      r.tensor_bytes_per_s * 1e-9);
  text += fmt::format("  pp {:<3}  {:>7.1f} %  messages between stages, {:.3g} GB/s\n", r.pipeline, 100 * r.pp,
                      r.pipeline_bytes_per_s * 1e-9);
  text += fmt::format("  dp {:<3}  {:>7.1f} %  gradients of a step, {:.3g} GB/s\n", r.data, 100 * r.dp,
                      r.data_bytes_per_s * 1e-9);
  return text +
         fmt::format("  ZeRO 3   gathers hide from {:.0f} tokens per device and micro-batch; this layout has {:.0f}\n",
                     r.zero3_tokens, r.tokens);
}

std::string values_table(const PlanAnswer& a) {
  std::string text = "\nother values: the best layout with each, by closed form, against the best of all\n";
  text += fmt::format("  {:<17} {:>11}  {:>8}  {:>8}  {:>7}\n", "", "", "layouts", "fit", "slower");
  const char* last = "";
  for (const plan::ValueNote& v : a.values) {
    const char* name = name_of(v.axis);
    const std::string slower = v.fitting == 0 ? "" : v.chosen ? "chosen" : fmt::format("{:+.1f} %", 100 * v.slower);
    text += fmt::format("  {:<17} {:>11}  {:>8}  {:>8}  {:>7}  {}\n", name == last ? "" : name,
                        text_of(v.axis, v.value), v.layouts, v.fitting, slower, v.reason);
    last = name;
  }
  return text;
}

std::string change_text(const plan::Sensitivity& s) {
  if (!s.feasible) return "nothing fits";
  std::string text = fmt::format("{:+.1f} %", 100 * s.step_change);
  if (s.layout) text += fmt::format(", then {}", text_of(*s.layout));
  return text;
}

std::string tail_text(const PlanAnswer& a) {
  std::string text;
  if (!a.sensitivities.empty()) text += "\nwhat would change the time of a sample\n";
  for (const plan::Sensitivity& s : a.sensitivities) text += fmt::format("  {:<26} {}\n", s.change, change_text(s));
  if (!a.advice.empty()) text += "\nadvice\n";
  for (const std::string& line : a.advice) text += fmt::format("  {}\n", line);
  if (!a.assumed.empty()) text += "\nassumed constants that matter (step if 10 % larger)\n";
  for (const plan::AssumedConstant& c : a.assumed) {
    text += fmt::format("  {:<34} {:+.1f} %  {}\n", c.name, 100 * c.step_change, c.constant.source);
  }
  for (const std::string& line : a.result.refused) text += fmt::format("not taken by the trainer: {}\n", line);
  return text;
}

nlohmann::ordered_json json_of(const Choice& c) {
  const plan::Prediction& p = c.prediction;
  nlohmann::ordered_json row;
  row["layout"] = text_of(c.layout);
  for (int axis = 0; axis < plan::kNumPlanAxes; ++axis) {
    const auto which = static_cast<plan::PlanAxis>(axis);
    row[name_of(which)] = text_of(which, value_of(c.layout, which));
  }
  row["dp"] = c.layout.data;
  row["step_s"] = p.step_s();
  row["closed_form_step_s"] = c.closed_form.step_s;
  row["tokens_per_s"] = p.tokens_per_s();
  row["mfu"] = p.utilization(p.flops_dense.model);
  row["hfu"] = p.utilization(p.flops_dense.hardware);
  row["bubble_of_total"] = p.bubble_of_total;
  for (int part = 0; part < plan::kNumTimeParts; ++part) {
    const auto which = static_cast<TimePart>(part);
    row["time_s"][name_of(which)] = static_cast<double>(p.time[which]) * 1e-12;
  }
  for (const plan::StagePrediction& s : p.stages) row["stage_bytes"].push_back(s.bytes());
  return row;
}

}  // namespace

std::string plan_table(const PlanRequest& r, const PlanAnswer& a) {
  std::string text = header(r, a);
  if (!a.infeasible.empty()) {
    text += "\nnothing fits\n";
    for (const std::string& line : a.infeasible) text += fmt::format("  {}\n", line);
    return text;
  }
  text += choices_table(a, r.shown);
  text += stages_table(a.result.choices.front());
  return text + ratios_text(a) + values_table(a) + tail_text(a);
}

std::string plan_json(const PlanRequest& r, const PlanAnswer& a) {
  nlohmann::ordered_json j;
  const plan::PlanQuestion& q = a.question;
  j["schema"] = "triax-plan/1";
  j["model"] = q.base.model.name;
  j["parameters"] = model::parameter_count(q.base.model);
  j["hw"] = q.hardware.name;
  j["hw_description"] = q.hardware.description;
  j["devices"] = q.devices;
  j["global_batch_size"] = q.base.batch.global_batch_size;
  j["limit_bytes"] = q.limit_bytes();
  j["layouts"] = a.result.layouts;
  j["fitting"] = a.result.fitting;
  j["choices"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < a.result.choices.size() && i < static_cast<size_t>(r.shown); ++i) {
    j["choices"].push_back(json_of(a.result.choices[i]));
  }
  if (!a.infeasible.empty()) {
    j["infeasible"] = a.infeasible;
    if (a.result.smallest && a.result.smallest->bytes > q.limit_bytes())
      j["missing_gib"] = (a.result.smallest->bytes - q.limit_bytes()) / kGiB;
    return j.dump(2) + "\n";
  }
  const plan::Ratios& x = a.ratios;
  j["ratios"] = {{"flops_per_s", x.flops},         {"tp", x.tp},        {"pp", x.pp}, {"dp", x.dp},
                 {"zero3_tokens", x.zero3_tokens}, {"tokens", x.tokens}};
  for (const plan::ValueNote& v : a.values) {
    j["values"].push_back({{"axis", name_of(v.axis)},
                           {"value", text_of(v.axis, v.value)},
                           {"chosen", v.chosen},
                           {"layouts", v.layouts},
                           {"fitting", v.fitting},
                           {"slower", v.slower},
                           {"layout", v.layout ? text_of(*v.layout) : std::string()},
                           {"reason", v.reason}});
  }
  for (const plan::Sensitivity& s : a.sensitivities) {
    j["sensitivities"].push_back({{"change", s.change},
                                  {"feasible", s.feasible},
                                  {"time_per_sample_change", s.step_change},
                                  {"layout", s.layout ? text_of(*s.layout) : std::string()}});
  }
  j["advice"] = a.advice;
  for (const plan::AssumedConstant& c : a.assumed) {
    j["assumed"].push_back({{"name", c.name}, {"step_change", c.step_change}, {"source", c.constant.source}});
  }
  j["refused"] = a.result.refused;
  return j.dump(2) + "\n";
}

std::string plan_csv(const PlanAnswer& a, int shown) {
  std::string text =
      "rank,layout,tp,pp,vpp,dp,schedule,zero,shard_group,micro_batch,recompute,sequence_parallel,order,"
      "step_s,tokens_per_s,mfu,hfu,bubble_of_total,bytes\n";
  const auto value = [](const Choice& c, plan::PlanAxis axis) { return text_of(axis, value_of(c.layout, axis)); };
  for (size_t i = 0; i < a.result.choices.size() && i < static_cast<size_t>(shown); ++i) {
    const Choice& c = a.result.choices[i];
    const plan::Prediction& p = c.prediction;
    using enum plan::PlanAxis;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", i + 1, text_of(c.layout),
                        c.layout.tensor, c.layout.pipeline, c.layout.chunks, c.layout.data, value(c, Schedule),
                        c.layout.zero, c.layout.shard_group, c.layout.micro_batch, value(c, Recompute),
                        value(c, SequenceParallel), value(c, Order), p.step_s(), p.tokens_per_s(),
                        p.utilization(p.flops_dense.model), p.utilization(p.flops_dense.hardware), p.bubble_of_total,
                        bytes_of(c));
  }
  return text;
}

namespace {

/// Tokens per second and device against the first answer that has a layout; 0 where there is none.
double efficiency(const std::vector<PlanAnswer>& answers, const PlanAnswer& of) {
  for (const PlanAnswer& first : answers) {
    if (first.result.choices.empty()) continue;
    const auto rate = [](const PlanAnswer& a) {
      return a.result.choices.front().prediction.tokens_per_s() / a.question.devices;
    };
    return of.result.choices.empty() ? 0 : rate(of) / rate(first);
  }
  return 0;
}

}  // namespace

std::string range_table(const std::vector<PlanAnswer>& answers) {
  std::string text = fmt::format("{:>8}  {:>10}  {:>11}  {:>10}  {:>5}  {:>7}  layout\n", "devices", "step ms",
                                 "tokens/s", "efficiency", "MFU", "GiB");
  for (const PlanAnswer& a : answers) {
    if (a.result.choices.empty()) {
      text += fmt::format("{:>8}  {}\n", a.question.devices, a.infeasible.empty() ? "nothing fits" : a.infeasible[0]);
      continue;
    }
    const Choice& c = a.result.choices.front();
    const plan::Prediction& p = c.prediction;
    text += fmt::format("{:>8}  {:>10.5g}  {:>11.6g}  {:>8.1f} %  {:>5.1f}  {:>7.2f}  {}\n", a.question.devices,
                        p.step_s() * 1e3, p.tokens_per_s(), 100 * efficiency(answers, a),
                        100 * p.utilization(p.flops_dense.model), static_cast<double>(bytes_of(c)) / kGiB,
                        text_of(c.layout));
  }
  return text;
}

std::string range_csv(const std::vector<PlanAnswer>& answers) {
  std::string text = "devices,layout,step_s,tokens_per_s,efficiency,mfu,bytes\n";
  for (const PlanAnswer& a : answers) {
    if (a.result.choices.empty()) {
      text += fmt::format("{},,,,,,\n", a.question.devices);
      continue;
    }
    const Choice& c = a.result.choices.front();
    text += fmt::format("{},{},{},{},{},{},{}\n", a.question.devices, text_of(c.layout), c.step_s(),
                        c.prediction.tokens_per_s(), efficiency(answers, a),
                        c.prediction.utilization(c.prediction.flops_dense.model), bytes_of(c));
  }
  return text;
}

const char* const kPlanUsage =
    "usage: triax plan --model NAME --hw NAME|hw.json --gpus N --global-batch-size B [options]\n\n"
    "Ranks every layout of the devices and says why. The options of 'triax train' that fix an axis\n"
    "(--tensor-model-parallel-size, --zero-stage, ...) restrict the choice; so do:\n";

const char* const kPlanDescription =
    "layout    tp, pp, dp: ranks of each axis; zeroS/G: ZeRO stage, shard group where it is not all of dp; b: "
    "micro-batch;\n"
    "          then recomputation, sp (sequence parallel), schedule, v (virtual stages), tp-pp-dp (rank order)\n"
    "step ms   simulated op by op with the machine's times (docs/cost-model.md)\n"
    "MFU, HFU  model and hardware FLOPs, attention's full square, over the step and the device's dense peak\n"
    "bubble    idle of the pipeline, of the total\n"
    "tp to zero  exposed communication in percent of the step: tensor, pipeline, gradients, ZeRO gathers\n"
    "GiB       of the fullest device: states, activations, buffers, runtime\n"
    "slower    the best layout with that value against the best of all, both by closed form\n"
    "Exit codes: 0; 2 a wrong request; 3 nothing fits (with the smallest missing GiB and what would work).\n";

}  // namespace triax::apps
