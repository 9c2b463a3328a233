// Pipeline schedules as pure functions: the order of forwards and backwards on one pipeline position.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

enum class ScheduleKind { GPipe, OneFOneB, Interleaved, ZeroBubbleH1, ZeroBubbleH2, ZeroBubbleV, Csv };
/// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "csv".
const char* name_of(ScheduleKind kind);
/// The kind of that name; nothing for other words. "csv:FILE" is Csv.
std::optional<ScheduleKind> schedule_of(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::OneFOneB;
  int pipeline = 1;                          ///< p
  int chunks = 1;                            ///< v
  int num_micro_batches = 1;                 ///< m
  int group_size = 0;                        ///< interleaved: micro-batches per group, G >= p; 0 means p
  std::vector<std::vector<Op>> listed = {};  ///< Csv: compute ops of each position (csv_schedule.h)
  std::vector<int> listed_stages = {};       ///< Csv: virtual stage of [position * chunks + chunk]
};

/// Where the schedule wants the chunks: p, v and the placement filled, no layers.
LayerMap placement_of(const ScheduleOptions& options);

/// Empty when the schedule can run, else rule and nearest legal value (as ConfigError text).
std::string check_schedule(const ScheduleOptions& options);

/// Compute ops of pipeline position `position` in order. GPipe: Huang 2019; 1F1B and interleaved: Narayanan et al. 2021
/// (arXiv 2104.04473) section 2.2; these have whole backwards (B). The zero-bubble ones (schedule_zero_bubble.h) have
/// split ones (I and W), a file has what it lists.
std::vector<Op> compute_order(const ScheduleOptions& options, int position);

/// Block of the shard plan whose weights are gathered after the optimizer has updated them, and its chunk.
struct GatheredBlock {
  int block = 0;
  int chunk = 0;
};
/// AtStart: gathers start with the step, on the data stream, in the order in which chunks need them; the first forward
/// of a chunk waits for those of its chunk. AtEnd: after the optimizer, one after the other.
enum class GatherTime { AtStart, AtEnd };

/// Whether recomputation is part of the backward op or an op of its own, which can run while its gradient travels.
enum class RecomputeOps { InsideBackward, Separate };

/// Whole: every tp rank sends the whole activation to its counterpart. Scattered: 1/t of it, and the receivers gather.
enum class Messages { Whole, Scattered };

/// What the passes need to know beside the schedule, per pipeline position.
struct ProgramOptions {
  ScheduleOptions schedule;
  LayerMap layers;
  bool tied_embedding = false;  ///< the head shares the word embedding
  bool tensor_partial = false;  ///< some gradients need a sum over tp or KV replicas
  std::vector<std::vector<int>>
      bucket_chunks;  ///< [position][bucket]: chunk of each gradient bucket; empty when dp = 1
  RecomputeOps recompute = RecomputeOps::InsideBackward;
  std::vector<std::vector<GatheredBlock>> gathered;  ///< [position]; empty without ZeRO
  GatherTime gather_time = GatherTime::AtStart;
  Messages messages = Messages::Whole;
  UnitOptions unit_options;
  std::vector<PositionUnits> units;  ///< [position]; empty below ZeRO 2
};
/// Compute order -> batches -> sends and receives -> gradient sums -> norm and optimizer.
Program make_training_program(const ProgramOptions& options);
/// Forward only, for evaluation: m micro-batches through the chunks in the schedule's order.
Program make_evaluation_program(const ProgramOptions& options);

}  // namespace triax::parallel
