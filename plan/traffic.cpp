#include "plan/traffic.h"

#include <algorithm>
#include <cmath>

#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "model/counts.h"
#include "train/data_traffic.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

using comm::Axis;

double all_reduce_sent(int ranks) { return 2.0 * (ranks - 1) / ranks; }

/// Bytes that one tensor rank of a position sends over tp in a step.
double tensor_sent(const io::RunOptions& options, const parallel::LayerMap& layers, int position) {
  const io::ParallelOptions& p = options.parallel;
  if (p.grid.tensor == 1) return 0;
  const auto element = static_cast<double>(size_of(io::compute_dtype(options.control.precision)));
  const auto state = static_cast<double>(size_of(io::state_dtype(options.control.precision)));
  const auto tokens = static_cast<double>(options.batch.micro_batch_size * options.model.seq_length);
  const double hidden = tokens * static_cast<double>(options.model.hidden_size) * element;
  double reduces = 0;  // all-reduces of bsh
  double statistics = 0;
  for (int chunk = 0; chunk < layers.chunks; ++chunk) {
    const int stage = layers.virtual_stage(position, chunk);
    const parallel::LayerRange& range = layers.layers(position, chunk);
    reduces += 4.0 * static_cast<double>(range.size());
    if (p.recompute.granularity == parallel::RecomputeGranularity::Full) {
      const int64_t again = p.recompute.method == parallel::RecomputeMethod::Uniform
                                ? range.size()
                                : std::min(range.size(), p.recompute.num_layers);
      reduces += 2.0 * static_cast<double>(again);
    }
    if (stage == 0) reduces += 1;
    if (stage == layers.num_virtual_stages() - 1) {
      reduces += 1;
      statistics += 3 * tokens * state;
    }
  }
  const auto m = static_cast<double>(options.batch.num_micro_batches);
  return m * all_reduce_sent(p.grid.tensor) * (reduces * hidden + statistics);
}

/// Levels by share of the ring over `ranks` that crosses each.
class LinkShares {
 public:
  explicit LinkShares(const bench::Hardware& hardware) : hardware_(&hardware), bytes_(hardware.links.size(), 0) {}

  void add_ring(const std::vector<int>& ranks, double bytes) {
    if (ranks.size() < 2 || bytes == 0) return;
    const double edge = bytes / static_cast<double>(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) add_edge(ranks[i], ranks[(i + 1) % ranks.size()], edge);
  }
  void add_edge(int from, int to, double bytes) {
    for (size_t level = 0; level < bytes_.size(); ++level) {
      const int domain = hardware_->links[level].ranks;
      if (domain == 0 || from / domain == to / domain || level + 1 == bytes_.size()) {
        bytes_[level] += bytes;
        return;
      }
    }
  }
  std::vector<std::pair<std::string, double>> by_name() const {
    std::vector<std::pair<std::string, double>> all;
    for (size_t level = 0; level < bytes_.size(); ++level) {
      all.emplace_back(hardware_->links[level].name, bytes_[level]);
    }
    return all;
  }

 private:
  const bench::Hardware* hardware_;
  std::vector<double> bytes_;
};

}  // namespace

Traffic traffic_of(const io::RunOptions& options, const bench::Hardware& hardware, const parallel::Program& program,
                   int64_t message_bytes) {
  const comm::GridShape& grid = options.parallel.grid;
  train::TrafficWidths widths;
  widths.gradient = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
  widths.weight = static_cast<int64_t>(size_of(io::compute_dtype(options.control.precision)));
  if (options.parallel.zero_quantized_weights) widths.code_block = options.parallel.compression.block();
  Traffic traffic;
  LinkShares shares(hardware);
  const double lanes = static_cast<double>(grid.tensor) * grid.data;  // ranks of a position
  for (int i = 0; i < grid.pipeline; ++i) {
    comm::GridCoord coord;
    coord.pipeline = i;
    const int rank = comm::rank_of(grid, coord);
    const double tensor = lanes * tensor_sent(options, program.layers, i);
    traffic.tensor += tensor;
    shares.add_ring(comm::group_of(grid, rank, Axis::Tensor), tensor);
    if (grid.data > 1) {
      const double data = lanes * data_traffic(program, train::shard_plan_of(options, i), i, widths).total();
      traffic.data += data;
      shares.add_ring(comm::group_of(grid, rank, Axis::Data), data);
    }
    for (const parallel::Op& op : program.positions[static_cast<size_t>(i)]) {
      if (!is_send(op.kind)) continue;
      coord.pipeline = (i + op.peer_offset) % grid.pipeline;
      const double bytes = lanes * static_cast<double>(message_bytes);
      traffic.pipeline += bytes;
      shares.add_edge(rank, comm::rank_of(grid, coord), bytes);
    }
  }
  traffic.by_link = shares.by_name();
  return traffic;
}

}  // namespace triax::plan
