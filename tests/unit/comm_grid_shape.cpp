// The rank order as pure data, against the example in Megatron-LM's initialize_model_parallel: 16 ranks, tp 2, pp 4.
#include <gtest/gtest.h>

#include "comm/group_nodes.h"
#include "comm/process_grid.h"

namespace triax::comm {
namespace {

GridShape example(RankOrder order) {
  GridShape shape;
  shape.tensor = 2;
  shape.pipeline = 4;
  shape.data = 2;
  shape.order = order;
  return shape;
}

using Ranks = std::vector<int>;

TEST(GridShape, megatron_default_order) {
  const GridShape shape = example(RankOrder::TpCpDpPp);
  EXPECT_EQ(group_of(shape, 0, Axis::Tensor), (Ranks{0, 1}));
  EXPECT_EQ(group_of(shape, 15, Axis::Tensor), (Ranks{14, 15}));
  EXPECT_EQ(group_of(shape, 0, Axis::Data), (Ranks{0, 2}));
  EXPECT_EQ(group_of(shape, 13, Axis::Data), (Ranks{13, 15}));
  EXPECT_EQ(group_of(shape, 0, Axis::Pipeline), (Ranks{0, 4, 8, 12}));
  EXPECT_EQ(group_of(shape, 7, Axis::Pipeline), (Ranks{3, 7, 11, 15}));
  EXPECT_EQ(group_of(shape, 7, Axis::Context), (Ranks{7}));
  EXPECT_EQ(model_parallel_group_of(shape, 4), (Ranks{0, 1, 4, 5, 8, 9, 12, 13}));
  EXPECT_EQ(model_parallel_group_of(shape, 15), (Ranks{2, 3, 6, 7, 10, 11, 14, 15}));
  EXPECT_EQ(embedding_group_of(shape, 13), (Ranks{1, 13}));
  EXPECT_EQ(embedding_group_of(shape, 5), (Ranks{5}));
}

TEST(GridShape, tp_pp_dp_mapping) {
  const GridShape shape = example(RankOrder::TpCpPpDp);
  EXPECT_EQ(group_of(shape, 0, Axis::Tensor), (Ranks{0, 1}));
  EXPECT_EQ(group_of(shape, 0, Axis::Pipeline), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(group_of(shape, 9, Axis::Pipeline), (Ranks{9, 11, 13, 15}));
  EXPECT_EQ(group_of(shape, 3, Axis::Data), (Ranks{3, 11}));
  EXPECT_EQ(model_parallel_group_of(shape, 4), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(embedding_group_of(shape, 7), (Ranks{1, 7}));
}

TEST(GridShape, coordinates_and_ranks_are_inverse) {
  for (const RankOrder order : {RankOrder::TpCpDpPp, RankOrder::TpCpPpDp}) {
    const GridShape shape{3, 2, 4, 5, order};
    for (int rank = 0; rank < shape.world(); ++rank) {
      const GridCoord coord = coord_of(shape, rank);
      ASSERT_EQ(rank_of(shape, coord), rank);
      for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline}) {
        ASSERT_EQ(group_of(shape, rank, axis)[static_cast<size_t>(coord.along(axis))], rank);
      }
    }
  }
  EXPECT_THROW(coord_of(GridShape{}, 1), std::logic_error);
}

TEST(GridShape, kv_replicas_are_consecutive_tp_ranks) {
  GridShape shape;
  shape.tensor = 8;
  shape.data = 2;
  EXPECT_EQ(kv_replica_group_of(shape, 5, 4), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(kv_replica_group_of(shape, 11, 2), (Ranks{10, 11}));
  EXPECT_EQ(kv_replica_group_of(shape, 11, 1), (Ranks{11}));
  EXPECT_THROW(kv_replica_group_of(shape, 0, 3), std::logic_error);
}

TEST(GridShape, embedding_group_without_a_pipeline_is_the_rank) {
  GridShape shape;
  shape.tensor = 4;
  EXPECT_EQ(embedding_group_of(shape, 2), (Ranks{2}));
}

TEST(GroupNodes, tensor_groups_within_a_node_and_one_that_crosses) {
  const std::vector<int> nodes{0, 0, 0, 0, 1, 1, 1, 1};
  GridShape shape;
  shape.tensor = 4;
  shape.data = 2;
  const auto inside = group_nodes(shape, Axis::Tensor, nodes);
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_EQ(inside[1].ranks, (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(inside[1].nodes, 1);
  EXPECT_EQ(describe_crossing(inside), "inside a node");
  EXPECT_EQ(describe_crossing(group_nodes(shape, Axis::Data, nodes)), "4 of 4 groups cross nodes: {0,4} stands on 2");
  EXPECT_EQ(describe_crossing(group_nodes(shape, Axis::Pipeline, nodes)), "-");
  shape.tensor = 8;
  shape.data = 1;
  EXPECT_EQ(describe_crossing(group_nodes(shape, Axis::Tensor, nodes)), "1 of 1 groups cross nodes: {0-7} stands on 2");
}

TEST(GroupNodes, ranks_as_text) {
  EXPECT_EQ(ranks_text(Ranks{3}), "{3}");
  EXPECT_EQ(ranks_text(Ranks{3, 4}), "{3,4}");
  EXPECT_EQ(ranks_text(Ranks{3, 4, 5}), "{3-5}");
  EXPECT_EQ(ranks_text(Ranks{0, 8, 16, 24}), "{0,8,16,24}");
  EXPECT_EQ(ranks_text(Ranks{0, 2, 4, 6, 8, 10, 12, 14, 16}), "{0,2,4,6,8,10,...,16}");
}

}  // namespace
}  // namespace triax::comm
