#include "train/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "io/options/validate.h"

namespace triax::train {
namespace {

template <class T>
Tensor view(std::vector<T>& values) {
  return Tensor(values.data(), DTypeOf<T>::value, {static_cast<int64_t>(values.size())});
}

/// --inject without its skip-sync parts.
std::string delays_of(const std::string& inject) {
  std::istringstream parts(inject);
  std::string part;
  std::string delays;
  while (std::getline(parts, part, ',')) {
    if (part.rfind("skip-sync:", 0) == 0) continue;
    delays += (delays.empty() ? "" : ",") + part;
  }
  return delays;
}

/// Chunk of each bucket of each position.
std::vector<std::vector<int>> gather_bucket_chunks(const SyncPlan& plan, comm::Communicator& pipeline) {
  const auto p = static_cast<size_t>(pipeline.size());
  std::vector<int64_t> mine{static_cast<int64_t>(plan.buckets.size())};
  std::vector<int64_t> counts(p);
  pipeline.all_gather(view(mine), view(counts)).wait();
  const auto longest = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<std::vector<int>> chunks(p);
  if (longest == 0) return chunks;
  std::vector<int64_t> padded(longest, -1);
  for (size_t b = 0; b < plan.buckets.size(); ++b) padded[b] = plan.buckets[b].chunk;
  std::vector<int64_t> all(longest * p);
  pipeline.all_gather(view(padded), view(all)).wait();
  for (size_t i = 0; i < p; ++i) {
    for (size_t b = 0; b < static_cast<size_t>(counts[i]); ++b) {
      chunks[i].push_back(static_cast<int>(all[i * longest + b]));
    }
  }
  return chunks;
}

}  // namespace

comm::GridOptions grid_options(const io::RunOptions& options) {
  comm::GridOptions grid;
  grid.shape = options.parallel.grid;
  const int64_t groups = options.model.num_query_groups;
  grid.kv_replication = groups > 0 ? static_cast<int>(std::max<int64_t>(1, grid.shape.tensor / groups)) : 1;
  grid.timeout_s = options.control.distributed_timeout_min * 60;
  grid.shared_memory = options.control.shared_memory;
  grid.fake_nodes = options.control.fake_nodes;
  grid.delay_spec = delays_of(options.control.inject);
  return grid;
}

parallel::ProgramOptions program_options(const io::RunOptions& options, const SyncPlan& plan, comm::ProcessGrid& grid) {
  parallel::ProgramOptions p;
  p.schedule = {options.parallel.schedule, options.parallel.grid.pipeline, options.parallel.chunks,
                static_cast<int>(options.batch.num_micro_batches), options.parallel.microbatch_group_size};
  p.layers = io::layer_map_of(options);
  p.tied_embedding = options.model.tie_embeddings;
  std::vector<double> partial{plan.any_partial() ? 1.0 : 0.0};
  grid.world().all_reduce(view(partial), comm::ReduceOp::Max).wait();
  p.tensor_partial = partial[0] > 0;
  if (grid.shape().data > 1) p.bucket_chunks = gather_bucket_chunks(plan, grid.pipeline());
  return p;
}

void check_same_program(const parallel::Program& program, comm::ProcessGrid& grid) {
  std::vector<int64_t> mine{static_cast<int64_t>(parallel::hash_of(program))};
  std::vector<int64_t> all(static_cast<size_t>(grid.world().size()));
  grid.world().all_gather(view(mine), view(all)).wait();
  const auto other = std::find_if(all.begin(), all.end(), [&](int64_t hash) { return hash != all[0]; });
  if (other != all.end()) {
    throw RunTimeError(fmt::format("rank {} made program {:016x}, rank 0 made {:016x}: all ranks must be started with "
                                   "the same options and the same binary",
                                   other - all.begin(), static_cast<uint64_t>(*other), static_cast<uint64_t>(all[0])));
  }
}

}  // namespace triax::train
