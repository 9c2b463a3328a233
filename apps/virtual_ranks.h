// Runs of ranks that need not exist: how many, how they are cut into replicas, how many micro-batches each gets. For
// the commands that plan (mem, sim).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/entry_makers.h"

namespace triax::apps {

/// As given; 0: not given.
struct RankWords {
  int64_t num_micro_batches = 0, data_parallel = 0, world = 0;
};

/// --data-parallel-size, --world-size, --num-microbatches.
std::vector<io::OptionEntry> rank_entries(RankWords& words);

/// Replicas d: --world-size / (tp cp pp), or --data-parallel-size, or 1. Throws ConfigError where they contradict each
/// other.
int64_t replicas_of(const RankWords& words, const comm::GridShape& grid);

/// Fills micro-batch and global batch size; adds notes about values that were assumed. Throws ConfigError.
void set_batch(const io::ParsedOptions& parsed, RankWords words, int64_t replicas, io::RunOptions& options,
               std::vector<std::string>& notes);

/// Throws ConfigError unless the options name a model and its vocabulary. `command` begins the message.
void require_model(const std::string& command, const io::ParsedOptions& parsed);
/// --model or a dimension was given.
bool names_model(const io::ParsedOptions& parsed);

/// io::resolve for that many replicas. Throws ConfigError for more ranks than a grid can have.
void resolve_for(int64_t replicas, io::RunOptions& options);

}  // namespace triax::apps
