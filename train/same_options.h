// Whether all ranks were started with the same options: replicas of different ones would drift apart without a word.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "io/run_options.h"

namespace triax::train {

/// Lines "name = value" of the resolved options that all ranks must have alike, in the order of the table. Left out are
/// files and directories of one node's own; of what must be given on all ranks or on none, only that it is given.
std::string common_options(const io::RunOptions& options);
/// "--lr: 0.001 on rank A, 0.002 on rank B" of the first option that differs between two such texts; empty when none
/// does.
std::string first_difference(const std::string& a, int rank_a, const std::string& b, int rank_b);

/// Collective over world: 16 bytes, and the options' text when there is a difference. Throws ConfigError on all ranks,
/// with the first option that differs between rank 0 and the lowest rank that has others.
void check_same_options(const io::RunOptions& options, comm::Communicator& world);

}  // namespace triax::train
