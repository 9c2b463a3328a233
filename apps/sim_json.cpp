// The machine-readable forms of `triax sim`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/sim_text.h"
#include "base/version.h"
#include "io/options/validate.h"
#include "plan/critical_path.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;
using plan::TimePart;

double seconds(int64_t ps) { return static_cast<double>(ps) * 1e-12; }

ordered_json parts_json(const plan::TimeSplit& time) {
  ordered_json json;
  for (int part = 0; part < plan::kNumTimeParts; ++part) {
    json[plan::name_of(static_cast<TimePart>(part))] = seconds(time[static_cast<TimePart>(part)]);
  }
  return json;
}

ordered_json groups_json(const plan::TimeSplit& t) {
  ordered_json json;
  json["compute"] = seconds(t.compute() - t[TimePart::Recompute]);
  json["recompute"] = seconds(t[TimePart::Recompute]);
  json["exposed"] = {{"tp", seconds(t[TimePart::TensorComm])},
                     {"pp", seconds(t[TimePart::PipelineComm])},
                     {"dp", seconds(t[TimePart::DataReduce])},
                     {"zero", seconds(t[TimePart::ZeroGather])}};
  json["bubble"] = {{"fill", seconds(t[TimePart::BubbleFill])},
                    {"drain", seconds(t[TimePart::BubbleDrain])},
                    {"imbalance", seconds(t[TimePart::BubbleImbalance])},
                    {"p2p", seconds(t[TimePart::PipelineComm])},
                    {"sync", seconds(t[TimePart::BubbleSync])}};
  json["optimizer"] = seconds(t[TimePart::Optimizer]);
  return json;
}

ordered_json memory_json(const plan::StagePrediction& s) {
  const model::StageMemory& m = s.memory;
  ordered_json json;
  json["weights"] = m.states.weights;
  json["gradients"] = m.states.gradients;
  json["optimizer"] = m.states.optimizer;
  json["activations"] = m.activations;
  json["embedding_head"] = m.ends;
  json["working"] = m.working;
  json["buffers"] = m.buffers;
  json["formula"] = m.total();
  json["peak_op"] = s.peak_op;
  json["exact"] = nullptr;
  if (s.exact) {
    json["exact"] = {{"peak", s.exact->ledger.peak_total},
                     {"peak_op", s.exact->peak_op < 0 ? ordered_json(nullptr) : ordered_json(s.exact->peak_op_text)}};
  }
  json["runtime"] = s.runtime_bytes;
  json["bytes"] = s.bytes();
  return json;
}

ordered_json layout_json(const io::RunOptions& o) {
  const comm::GridShape& grid = o.parallel.grid;
  return {{"model", o.model.name},
          {"world_size", grid.world()},
          {"tensor_parallel", grid.tensor},
          {"pipeline_parallel", grid.pipeline},
          {"virtual_stages", o.parallel.chunks},
          {"data_parallel", grid.data},
          {"sequence_parallel", o.parallel.sequence_parallel},
          {"zero_stage", o.parallel.zero_stage},
          {"schedule", name_of(o.parallel.schedule)},
          {"micro_batch_size", o.batch.micro_batch_size},
          {"num_microbatches", o.batch.num_micro_batches},
          {"global_batch_size", o.batch.global_batch_size},
          {"seq_length", o.model.seq_length},
          {"dtype", name_of(io::compute_dtype(o.control.precision))}};
}

ordered_json rates_json(const plan::Prediction& p) {
  ordered_json json;
  json["tokens_per_s"] = p.tokens_per_s();
  json["tflops"] = {{"model_dense", p.achieved(p.flops_dense.model) / 1e12},
                    {"model_causal", p.achieved(p.flops_causal.model) / 1e12},
                    {"hardware_dense", p.achieved(p.flops_dense.hardware) / 1e12},
                    {"hardware_causal", p.achieved(p.flops_causal.hardware) / 1e12}};
  json["mfu"] = {{"dense", p.utilization(p.flops_dense.model)}, {"causal", p.utilization(p.flops_causal.model)}};
  json["hfu"] = {{"dense", p.utilization(p.flops_dense.hardware)}, {"causal", p.utilization(p.flops_causal.hardware)}};
  json["peak_tflops"] = p.peak_flops / 1e12;
  json["training"] = nullptr;
  if (p.train_tokens > 0) {
    json["training"] = {
        {"tokens", p.train_tokens}, {"days", p.training_s() / 86400}, {"device_hours", p.device_hours()}};
  }
  return json;
}

ordered_json path_json(const plan::Prediction& p) {
  ordered_json list = ordered_json::array();
  for (const plan::PathShare& share : plan::critical_path(*p.simulated).shares) {
    list.push_back({{"what", share.what},
                    {"stage", share.position < 0 ? ordered_json(nullptr) : ordered_json(share.position)},
                    {"seconds", seconds(share.ps)}});
  }
  return list;
}

ordered_json assumed_json(const SimReport& report) {
  ordered_json list = ordered_json::array();
  for (const plan::AssumedConstant& a : report.assumed) {
    list.push_back(
        {{"name", a.name}, {"value", a.constant.value}, {"source", a.constant.source}, {"step_change", a.step_change}});
  }
  return list;
}

}  // namespace

std::string json_text(const SimReport& report) {
  const plan::Prediction& p = report.prediction;
  ordered_json json;
  json["schema"] = "triax-sim";
  json["version"] = 1;
  json["commit"] = build_info().commit;
  json["hardware"] = {{"name", report.request.hardware.name}, {"description", report.request.hardware.description}};
  json["program_hash"] = fmt::format("{:016x}", parallel::hash_of(p.simulated->program));
  json["layout"] = layout_json(report.request.options);
  json["step_s"] = p.step_s();
  json["step_ps"] = p.step_ps;
  json["parts"] = parts_json(p.time);
  json.update(groups_json(p.time));
  json["bubble_of_total"] = p.bubble_of_total;
  json.update(rates_json(p));
  json["stages"] = ordered_json::array();
  for (size_t i = 0; i < p.stages.size(); ++i) {
    json["stages"].push_back(
        {{"stage", i}, {"parts", parts_json(p.stages[i].time)}, {"memory", memory_json(p.stages[i])}});
  }
  json["memory"] = {{"fullest_stage", p.fullest},
                    {"bytes", p.stages[static_cast<size_t>(p.fullest)].bytes()},
                    {"limit", p.memory_limit_bytes},
                    {"fits", p.fits()}};
  json["traffic"] = {{"tp", p.traffic.tensor}, {"pp", p.traffic.pipeline}, {"dp", p.traffic.data}};
  for (const auto& [name, bytes] : p.traffic.by_link) json["traffic"]["by_link"][name] = bytes;
  json["critical_path"] = path_json(p);
  json["assumed"] = assumed_json(report);
  json["notes"] = report.request.notes;
  return json.dump(2) + "\n";
}

std::string csv_text(const SimReport& report) {
  const plan::Prediction& p = report.prediction;
  std::string text = "stage";
  for (int part = 0; part < plan::kNumTimeParts; ++part) {
    text += fmt::format(",{}_s", plan::name_of(static_cast<TimePart>(part)));
  }
  text += ",step_s,weights,gradients,optimizer_states,activations,embedding_head,working,buffers,runtime,bytes\n";
  const auto times = [&](const plan::TimeSplit& time) {
    std::string line;
    for (const int64_t ps : time.ps) line += fmt::format(",{}", seconds(ps));
    return line + fmt::format(",{}", seconds(time.total()));
  };
  for (size_t i = 0; i < p.stages.size(); ++i) {
    const plan::StagePrediction& s = p.stages[i];
    const model::StageMemory& m = s.memory;
    text += fmt::format("{}{},{},{},{},{},{},{},{},{},{}\n", i, times(s.time), m.states.weights, m.states.gradients,
                        m.states.optimizer, m.activations, m.ends, m.working, m.buffers, s.runtime_bytes, s.bytes());
  }
  return text + fmt::format("all{},,,,,,,,,{}\n", times(p.time), p.stages[static_cast<size_t>(p.fullest)].bytes());
}

}  // namespace triax::apps
