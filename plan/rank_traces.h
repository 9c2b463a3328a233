// A simulated step as files for other tools: HTA's traces and Chakra's, one file per world rank.
#pragma once

#include <string>
#include <vector>

#include "io/trace/chakra.h"
#include "io/trace/hta.h"
#include "plan/prediction.h"

namespace triax::plan {

/// Ranks beyond which files are written for tensor rank 0 of the recorded replica alone (HTA) or not at all (Chakra).
inline constexpr int kMostHtaRanks = 64;
inline constexpr int kMostChakraRanks = 4096;

/// Kernels of one position: an op's parts one after the other (recomputation, gathers, matrix products, attention,
/// elementwise; launch floors are gaps), its exposed tp collectives on the tensor stream behind them; sums over dp on
/// the data stream, receives (waiting included) on the pipeline stream.
std::vector<io::DeviceKernel> kernels_of(const SimulatedStep& step, int position, DType dtype);

/// DIR/rank-<r>.json.gz. Returns the number of files. Throws RunTimeError where one cannot be written.
int write_hta(const Prediction& prediction, const io::RunOptions& options, int devices_per_node, int replica,
              const std::string& directory);

/// Nodes of one world rank. Computing of an op is one node of its simulated microseconds and its share of the model's
/// FLOPs; its tp collectives are one node of their summed bytes (all-reduce, or all-gather and reduce-scatter under
/// sequence parallelism); gathers and reductions of ZeRO 2 and 3 inside it likewise. Sizes as nccl-tests counts them.
std::vector<io::ChakraNode> chakra_nodes(const SimulatedStep& step, const io::RunOptions& options, int rank);

/// DIR/triax.<rank>.et and DIR/comm_group.json, as ASTRA-sim wants them (--workload-configuration=DIR/triax). Returns
/// the number of ranks. Throws ConfigError beyond kMostChakraRanks.
int write_chakra(const Prediction& prediction, const io::RunOptions& options, const std::string& directory);

}  // namespace triax::plan
