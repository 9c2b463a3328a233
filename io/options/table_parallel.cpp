// How the model is cut: grid axes, pipeline stages and schedule, recomputation, gradient reduction.
#include <fmt/ranges.h>

#include "io/options/entries.h"

namespace triax::io {
namespace {

using parallel::RecomputeGranularity;
using parallel::RecomputeMethod;
using parallel::ScheduleKind;
constexpr OptionGroup kParallelGroup = OptionGroup::Parallel;

OptionEntry context_size() {
  OptionEntry entry = integer_option(
      "context-parallel-size", kParallelGroup, {1, kMostRanks},
      [](auto& o) -> auto& { return o.parallel.grid.context; }, "context parallelism");
  entry.status = OptionStatus::Refused;
  entry.reason = "context parallelism is not in this version; use 1, or cut the sequence with --sequence-parallel";
  entry.allowed = {"1"};
  entry.get = nullptr;
  return entry;
}

OptionEntry rank_order() {
  OptionEntry entry = derived_option("use-tp-pp-dp-mapping", ValueKind::Switch, kParallelGroup, "",
                                     "ranks in the order tp, pp, dp instead of tp, dp, pp");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.parallel.grid.order = values[0] == "true" ? comm::RankOrder::TpCpPpDp : comm::RankOrder::TpCpDpPp;
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.parallel.grid.order == comm::RankOrder::TpCpPpDp ? "true" : "false"};
  };
  return entry;
}

OptionEntry schedule() {
  OptionEntry entry = derived_option("pipeline-schedule", ValueKind::Value, kParallelGroup,
                                     "gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|csv:FILE",
                                     "default 1f1b; interleaved when a virtual-stage option is given; csv: PyTorch's "
                                     "pipelining actions, one row per position");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    const std::optional<ScheduleKind> kind = parallel::schedule_of(values[0]);
    if (!kind || (*kind == ScheduleKind::Csv && values[0].size() <= 4)) {
      return "must be gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or csv:FILE";
    }
    o.parallel.schedule = *kind;
    o.parallel.schedule_file = *kind == ScheduleKind::Csv ? values[0].substr(4) : "";
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    const std::string name = parallel::name_of(o.parallel.schedule);
    return {o.parallel.schedule == ScheduleKind::Csv ? "csv:" + o.parallel.schedule_file : name};
  };
  return other_names(entry, "", "parallelism.pipeline_parallel_schedule");
}

OptionEntry layout() {
  OptionEntry entry =
      derived_option("pipeline-model-parallel-layout", ValueKind::Value, kParallelGroup, "LAYOUT",
                     "layers of each virtual stage: Megatron's string \"Ett|(tt|)*2ttL\", or \"8,8,7,7\"");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    try {
      o.parallel.layer_list = parse_layout(values[0]);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    if (o.parallel.layer_list.empty()) return {};
    return {fmt::format("{}", fmt::join(o.parallel.layer_list, ","))};
  };
  return entry;
}

OptionEntry recompute_activations() {
  OptionEntry entry = derived_option("recompute-activations", ValueKind::Switch, kParallelGroup, "",
                                     "the same as --recompute-granularity selective");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.parallel.recompute.granularity =
        values[0] == "true" ? RecomputeGranularity::Selective : RecomputeGranularity::None;
    return {};
  };
  return entry;
}

OptionEntry recompute_granularity() {
  return other_names(choice_option<RecomputeGranularity>(
                         "recompute-granularity", kParallelGroup,
                         {{"none", RecomputeGranularity::None},
                          {"selective", RecomputeGranularity::Selective},
                          {"full", RecomputeGranularity::Full}},
                         [](auto& o) -> auto& { return o.parallel.recompute.granularity; },
                         "what the backward pass computes again: attention's inside, or whole layers"),
                     "activation_checkpointing", "activation_checkpoint.mode");
}

OptionEntry recompute_method() {
  OptionEntry entry = choice_option<RecomputeMethod>(
      "recompute-method", kParallelGroup, {{"uniform", RecomputeMethod::Uniform}, {"block", RecomputeMethod::Block}},
      [](auto& o) -> auto& { return o.parallel.recompute.method; },
      "with full: groups of --recompute-num-layers layers, or the first that many of each chunk");
  entry.get = [get = entry.get](const RunOptions& o) -> std::vector<std::string> {
    if (o.parallel.recompute.granularity != RecomputeGranularity::Full) return {};
    return get(o);
  };
  return entry;
}

OptionEntry recompute_num_layers() {
  OptionEntry entry = integer_option(
      "recompute-num-layers", kParallelGroup, {1, kMostLayers},
      [](auto& o) -> auto& { return o.parallel.recompute.num_layers; }, "see --recompute-method");
  entry.get = [get = entry.get](const RunOptions& o) -> std::vector<std::string> {
    if (o.parallel.recompute.granularity != RecomputeGranularity::Full) return {};
    return get(o);
  };
  return entry;
}

OptionEntry collective_algorithm() {
  OptionEntry entry = text_option(
      "collective-algorithm", kParallelGroup, "[GROUP=]ALGORITHM[,...]",
      [](auto& o) -> auto& { return o.parallel.collective_algorithm; },
      "per group (tp, dp, ..., all): default, shared-memory, direct, library, ring, halving-doubling, tree, "
      "double-tree or hierarchical; trees carry all-reduces, the rest then goes the default way");
  entry.set = [set = entry.set](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    try {
      comm::parse_collective_algorithms(values[0], comm::SumOrder::Algorithm);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return set(o, values);
  };
  return entry;
}

std::vector<OptionEntry> grid_entries() {
  return {
      other_names(integer_option(
                      "tensor-model-parallel-size", kParallelGroup, {1, kMostRanks},
                      [](auto& o) -> auto& { return o.parallel.grid.tensor; }, "tensor parallelism t"),
                  "tensor_parallel.autotp_size", "parallelism.tensor_parallel_degree"),
      other_names(integer_option(
                      "pipeline-model-parallel-size", kParallelGroup, {1, kMostRanks},
                      [](auto& o) -> auto& { return o.parallel.grid.pipeline; }, "pipeline stages p"),
                  "", "parallelism.pipeline_parallel_degree"),
      context_size(),
      switch_option(
          "sequence-parallel", kParallelGroup, [](auto& o) -> auto& { return o.parallel.sequence_parallel; },
          "cut the sequence over the tensor ranks outside attention and MLP"),
      rank_order(),
      schedule(),
      derived_option("num-layers-per-virtual-pipeline-stage", ValueKind::Value, kParallelGroup, "N",
                     "interleaved: layers of each model chunk"),
      aliased(integer_option(
                  "num-virtual-stages-per-pipeline-rank", kParallelGroup, {1, kMostLayers},
                  [](auto& o) -> auto& { return o.parallel.chunks; }, "interleaved: model chunks v per rank"),
              {"virtual-pipeline-model-parallel-size"}),
      integer_option(
          "microbatch-group-size-per-virtual-pipeline-stage", kParallelGroup, {1},
          [](auto& o) -> auto& { return o.parallel.microbatch_group_size; },
          "interleaved: micro-batches that one chunk runs in a row; default p"),
      integer_option(
          "decoder-first-pipeline-num-layers", kParallelGroup, {1, kMostLayers},
          [](auto& o) -> auto& { return o.parallel.decoder_first_num_layers; }, "layers of the first stage"),
      integer_option(
          "decoder-last-pipeline-num-layers", kParallelGroup, {1, kMostLayers},
          [](auto& o) -> auto& { return o.parallel.decoder_last_num_layers; }, "layers of the last stage"),
      layout(),
  };
}

}  // namespace

std::vector<OptionEntry> parallel_entries() {
  std::vector<OptionEntry> all = grid_entries();
  for (OptionEntry& entry : zero_entries()) all.push_back(std::move(entry));
  for (OptionEntry entry : {
           recompute_activations(),
           recompute_granularity(),
           recompute_method(),
           recompute_num_layers(),
           switch_option(
               "overlap-grad-reduce", kParallelGroup, [](auto& o) -> auto& { return o.parallel.overlap_grad_reduce; },
               "reduce gradients while the backward pass runs (on unlike Megatron)"),
           switch_option(
               "overlap-p2p-communication", kParallelGroup, [](auto& o) -> auto& { return o.parallel.overlap_p2p; },
               "send and receive activations while computing"),
           switch_option(
               "scatter-gather-tensors-in-pipeline", kParallelGroup,
               [](auto& o) -> auto& { return o.parallel.scatter_gather; },
               "each tp rank sends 1/t of an activation to the next stage, which gathers it (off unlike Megatron: it "
               "pays where stages are joined by slow links)"),
           derived_option("bucket-cap-mb", ValueKind::Value, kParallelGroup, "MIB",
                          "the same in MiB of gradients (PyTorch's DistributedDataParallel)"),
           other_names(integer_option(
                           "ddp-bucket-size", kParallelGroup, {1, kMostCount},
                           [](auto& o) -> auto& { return o.parallel.ddp_bucket_size; },
                           "parameters per gradient bucket; default max(40e6, 1e6 dp)"),
                       "reduce_bucket_size", ""),
           collective_algorithm(),
           switch_option(
               "fixed-reduction-order", kParallelGroup,
               [](auto& o) -> auto& { return o.parallel.fixed_reduction_order; },
               "sums in rank order, the same bits whatever the algorithm"),
           choice_option<GradSync>(
               "grad-sync", kParallelGroup,
               {{"all-reduce", GradSync::AllReduce}, {"parameter-server", GradSync::ParameterServer}},
               [](auto& o) -> auto& { return o.parallel.grad_sync; },
               "parameter-server: data-parallel rank 0 takes all gradients, updates, and sends the weights back"),
           integer_option(
               "max-staleness", kParallelGroup, {0, 1000}, [](auto& o) -> auto& { return o.parallel.max_staleness; },
               "parameter server: a step may use weights that lack up to that many updates"),
       }) {
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace triax::io
