// Which algorithm carries the collectives of which group (--collective-algorithm), and in which order sums are taken.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace triax::comm {

/// Default: SharedMemory where the group stands on one node, else Direct.
/// SharedMemory: every rank reduces its slice in everybody's memory (comm/host_comm.h).
/// Direct: everybody sends every slice straight to its owner and the sums straight back (comm/mpi_comm.h).
/// Library: the MPI library's own collectives (comm/algorithms/library_comm.h).
/// The others are plans over point-to-point sends (comm/algorithms/plan.h).
enum class Algorithm { Default, SharedMemory, Direct, Library, Ring, HalvingDoubling, Tree, DoubleTree, Hierarchical };
/// "default", "shared-memory", "direct", "library", "ring", "halving-doubling", "tree", "double-tree", "hierarchical".
const char* name_of(Algorithm algorithm);
/// All of them, in the order of the enum.
const std::vector<Algorithm>& all_algorithms();

/// Algorithm: as the algorithm meets its inputs; the partial sums of bf16 and fp16 are rounded at every hop. Ranks:
/// ((r0 + r1) + r2) + ..., rounded once: the bits of SharedMemory and Direct, whatever the algorithm.
enum class SumOrder { Algorithm, Ranks };

struct CollectiveOptions {
  std::vector<std::pair<std::string, Algorithm>> rules;  ///< group or "all"; the last that fits wins
  SumOrder order = SumOrder::Algorithm;
  Algorithm of(const std::string& group) const;
};

/// "ring" for all groups, or GROUP=ALGORITHM separated by commas: "dp=ring,tp=library". Groups are those of a
/// ProcessGrid, or all. `order` Ranks refuses the library, whose sums have an order of its own. Anything else:
/// ConfigError.
CollectiveOptions parse_collective_algorithms(const std::string& spec, SumOrder order);

}  // namespace triax::comm
