// Collectives and messages of hw.json, with the algorithms and the memory that training uses.
#pragma once

#include <string>
#include <vector>

#include "bench/collectives.h"
#include "bench/hardware.h"
#include "bench/kernel_tables.h"
#include "comm/mpi_session.h"
#include "comm/process_grid.h"

namespace triax::bench {

struct LinkTables {
  std::vector<CollectivePoint> collectives;  ///< all groups of a size talk at once; Send: pairs of neighbours
  std::vector<Link> links;                   ///< from the innermost: inside a node, between nodes
  Constant queue_s;  ///< handing an operation to the communication thread and waiting for it (dp groups); host alone
};

struct LinkMeasure {
  TimingOptions timing;  ///< on a device settle waits for it
  int64_t most_bytes = int64_t{64} << 20;
  OnDevice on;
  std::string name = "shared-memory";  ///< of the link inside a node
  int ranks_of_node = 1;               ///< devices that it joins
  int fake_nodes = 0;                  ///< pretend that the host is that many nodes (tests)
};

/// Groups of every size that divides the ranks, over sizes 256 B .. `most_bytes`. Collective over all ranks (at least
/// two). Elements fp32, all_reduce, all_gather and reduce_scatter also.
LinkTables measure_links(comm::MpiSession& session, const std::vector<DType>& dtypes, const LinkMeasure& how,
                         const Budget& budget);

}  // namespace triax::bench
