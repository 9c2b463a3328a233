// Pipeline schedules as pure functions: the order of forwards and backwards on one pipeline position.
#pragma once

#include <string>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

enum class ScheduleKind { GPipe, OneFOneB, Interleaved };
/// "gpipe", "1f1b", "interleaved".
const char* name_of(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::OneFOneB;
  int pipeline = 1;           ///< p
  int chunks = 1;             ///< v
  int num_micro_batches = 1;  ///< m
  int group_size = 0;         ///< interleaved: micro-batches per group, G >= p; 0 means p
};

/// Empty when the schedule can run, else rule and nearest legal value (as ConfigError text).
std::string check_schedule(const ScheduleOptions& options);

/// Forward and Backward ops of pipeline position `position` in order. GPipe: Huang 2019; 1F1B and interleaved:
/// Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.
std::vector<Op> compute_order(const ScheduleOptions& options, int position);

/// What the passes need to know beside the schedule, per pipeline position.
struct ProgramOptions {
  ScheduleOptions schedule;
  LayerMap layers;
  bool tied_embedding = false;  ///< the head shares the word embedding
  bool tensor_partial = false;  ///< some gradients need a sum over tp or KV replicas
  std::vector<std::vector<int>>
      bucket_chunks;  ///< [position][bucket]: chunk of each gradient bucket; empty when dp = 1
};
/// Compute order -> batches -> sends and receives -> gradient sums -> norm and optimizer.
Program make_training_program(const ProgramOptions& options);
/// Forward only, for evaluation: m micro-batches through the chunks in the schedule's order.
Program make_evaluation_program(const ProgramOptions& options);

}  // namespace triax::parallel
