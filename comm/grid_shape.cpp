#include <algorithm>

#include "comm/process_grid.h"

namespace triax::comm {
namespace {

/// Axes from the fastest to the slowest in the world rank.
std::array<Axis, 4> order_of(RankOrder order) {
  if (order == RankOrder::TpCpDpPp) return {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline};
  return {Axis::Tensor, Axis::Context, Axis::Pipeline, Axis::Data};
}

int& along(GridCoord& coord, Axis axis) {
  switch (axis) {
    case Axis::Tensor:
      return coord.tensor;
    case Axis::Context:
      return coord.context;
    case Axis::Data:
      return coord.data;
    case Axis::Pipeline:
      break;
  }
  return coord.pipeline;
}

}  // namespace

const char* name_of(Axis axis) {
  constexpr std::array<const char*, 4> kNames{"tp", "cp", "dp", "pp"};
  return kNames[static_cast<size_t>(axis)];
}

int GridShape::size_of(Axis axis) const {
  switch (axis) {
    case Axis::Tensor:
      return tensor;
    case Axis::Context:
      return context;
    case Axis::Data:
      return data;
    case Axis::Pipeline:
      break;
  }
  return pipeline;
}

int GridCoord::along(Axis axis) const {
  GridCoord copy = *this;
  return comm::along(copy, axis);
}

GridCoord coord_of(const GridShape& shape, int world_rank) {
  ensure(world_rank >= 0 && world_rank < shape.world(), "coord_of: world rank outside of the grid");
  GridCoord coord;
  for (const Axis axis : order_of(shape.order)) {
    along(coord, axis) = world_rank % shape.size_of(axis);
    world_rank /= shape.size_of(axis);
  }
  return coord;
}

int rank_of(const GridShape& shape, const GridCoord& coord) {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : order_of(shape.order)) {
    rank += coord.along(axis) * stride;
    stride *= shape.size_of(axis);
  }
  return rank;
}

std::vector<int> group_of(const GridShape& shape, int world_rank, Axis axis) {
  GridCoord coord = coord_of(shape, world_rank);
  std::vector<int> ranks;
  for (int i = 0; i < shape.size_of(axis); ++i) {
    along(coord, axis) = i;
    ranks.push_back(rank_of(shape, coord));
  }
  return ranks;
}

std::vector<int> model_parallel_group_of(const GridShape& shape, int world_rank) {
  GridCoord coord = coord_of(shape, world_rank);
  std::vector<int> ranks;
  for (coord.pipeline = 0; coord.pipeline < shape.pipeline; ++coord.pipeline) {
    for (coord.tensor = 0; coord.tensor < shape.tensor; ++coord.tensor) ranks.push_back(rank_of(shape, coord));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> shard_group_of(const GridShape& shape, int world_rank, int size) {
  const std::vector<int> data = group_of(shape, world_rank, Axis::Data);
  const auto first = data.begin() + coord_of(shape, world_rank).data / size * size;
  return {first, first + size};
}

std::vector<int> replica_group_of(const GridShape& shape, int world_rank, int size) {
  const std::vector<int> data = group_of(shape, world_rank, Axis::Data);
  std::vector<int> ranks;
  for (int i = coord_of(shape, world_rank).data % size; i < shape.data; i += size) {
    ranks.push_back(data[static_cast<size_t>(i)]);
  }
  return ranks;
}

std::vector<int> embedding_group_of(const GridShape& shape, int world_rank) {
  GridCoord coord = coord_of(shape, world_rank);
  const bool at_an_end = coord.pipeline == 0 || coord.pipeline == shape.pipeline - 1;
  if (shape.pipeline == 1 || !at_an_end) return {world_rank};
  coord.pipeline = 0;
  const int first = rank_of(shape, coord);
  coord.pipeline = shape.pipeline - 1;
  return {first, rank_of(shape, coord)};
}

std::vector<int> kv_replica_group_of(const GridShape& shape, int world_rank, int replication) {
  ensure(replication >= 1 && shape.tensor % replication == 0, "kv_replica_group_of: tp is no multiple of replication");
  GridCoord coord = coord_of(shape, world_rank);
  const int first = coord.tensor / replication * replication;
  std::vector<int> ranks;
  for (int i = 0; i < replication; ++i) {
    coord.tensor = first + i;
    ranks.push_back(rank_of(shape, coord));
  }
  return ranks;
}

}  // namespace triax::comm
