// Parameters as values: initial weights do not know the layout, buckets cover the flat gradient once, padding is
// nothing.
#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"
#include "comm/phantom.h"
#include "model/stage.h"
#include "parallel/parameter.h"

namespace triax::parallel {
namespace {

// KV heads fewer than tp ranks at t = 4, a prime vocabulary, both norms' kinds of parameter.
model::ModelConfig small_model() {
  model::ModelConfig m;
  m.num_layers = 4;
  m.hidden_size = 16;
  m.ffn_hidden_size = 24;
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 4;
  m.max_position_embeddings = m.seq_length = 8;
  m.vocab_size = 101;
  m.make_vocab_size_divisible_by = 8;
  return m;
}

struct Rank {
  HeapProvider heap;
  Arena arena{heap};
  comm::GridOptions grid_options;
  std::unique_ptr<comm::ProcessGrid> grid;
  LayerContext context;
  ParameterStore store;
  std::vector<std::unique_ptr<model::Chunk>> chunks;
  std::vector<double> values;

  Rank(int tp, int pp, int world_rank, SequenceParallel sp) {
    grid_options.shape = {tp, 1, 1, pp, comm::RankOrder::TpCpDpPp};
    grid_options.kv_replication = std::max(1, tp / 2);
    grid = std::make_unique<comm::ProcessGrid>(comm::PhantomRank{world_rank, 8}, grid_options);
    context.arena = &arena;
    context.tensor = &grid->tensor();
    context.dtype = context.state_dtype = DType::Float64;
    context.sequence_parallel = sp;
    context.seq_length = 8;
    context.micro_batch = 1;
    model::StageOptions options;
    options.model = small_model();
    options.layers = make_layer_map(options.model.num_layers, pp, 1, 0, 0, {});
    options.position = grid->coord().pipeline;
    chunks = model::make_chunks(options, context, store);
    values.resize(static_cast<size_t>(store.numel()));
    initialize_parameters(store, 1234, {0, store.numel()}, Tensor(values.data(), DType::Float64, {store.numel()}));
  }
};

TEST(ParameterStore, initial_weights_are_the_same_elements_in_every_layout) {
  std::map<std::string, std::map<int64_t, double>> expected;
  const Rank serial(1, 1, 0, SequenceParallel::No);
  for (const Parameter& p : serial.store.parameters()) {
    for (int64_t i = 0; i < p.true_numel(); ++i) {
      expected[p.name][p.global_index(i)] = serial.values[static_cast<size_t>(p.offset + i)];
    }
  }
  EXPECT_EQ(expected.at("model.embed_tokens.weight").size(), 101u * 16u);
  EXPECT_DOUBLE_EQ(expected.at("model.layers.1.mlp.fc1.weight").at(5),
                   0.02 * normal_at(1234, stream_of("model.layers.1.mlp.fc1.weight"), 5));
  for (const auto& [tp, pp] : {std::pair{2, 1}, {4, 1}, {1, 2}, {2, 2}, {4, 2}}) {
    std::map<std::string, std::map<int64_t, int>> seen;  // how often each counted element is held
    for (int rank = 0; rank < tp * pp; ++rank) {
      const Rank r(tp, pp, rank, SequenceParallel::Yes);
      for (const Parameter& p : r.store.parameters()) {
        for (int64_t i = 0; i < p.numel; ++i) {
          const double value = r.values[static_cast<size_t>(p.offset + i)];
          if (i >= p.true_numel()) {
            ASSERT_EQ(value, 0) << "padding of " << p.name;
            continue;
          }
          ASSERT_EQ(value, expected.at(p.name).at(p.global_index(i))) << p.name << " tp" << tp << " pp" << pp;
          if (p.spec.replica == 0 && !p.tied_copy) ++seen[p.name][p.global_index(i)];
        }
      }
    }
    ASSERT_EQ(seen.size(), expected.size());
    for (const auto& [name, elements] : seen) {
      ASSERT_EQ(elements.size(), expected.at(name).size()) << name;
      for (const auto& [index, count] : elements) ASSERT_EQ(count, 1) << name << " element " << index;
    }
  }
}

TEST(ShardSpec, says_over_which_ranks_a_gradient_is_a_partial_sum) {
  const auto sums = [](int tp, SequenceParallel sp) {
    std::map<std::string, GradientSum> out;
    const Rank r(tp, 1, tp - 1, sp);
    for (const Parameter& p : r.store.parameters()) out[p.name] = p.spec.gradient_sum;
    return out;
  };
  const auto plain = sums(4, SequenceParallel::No);
  EXPECT_EQ(plain.at("model.norm.weight"), GradientSum::None);
  EXPECT_EQ(plain.at("model.layers.0.self_attn.k_proj.weight"), GradientSum::KvReplicas);
  EXPECT_EQ(plain.at("model.layers.0.self_attn.v_proj.bias"), GradientSum::KvReplicas);
  EXPECT_EQ(plain.at("model.layers.0.self_attn.q_proj.weight"), GradientSum::None);
  const auto sequence = sums(2, SequenceParallel::Yes);
  for (const char* name :
       {"model.norm.weight", "model.norm.bias", "model.layers.3.mlp.fc2.bias", "model.layers.3.self_attn.o_proj.bias",
        "model.layers.0.input_layernorm.bias", "model.embed_positions.weight"}) {
    EXPECT_EQ(sequence.at(name), GradientSum::Tensor) << name;
  }
  for (const char* name : {"model.layers.3.mlp.fc1.bias", "model.embed_tokens.weight",
                           "model.layers.0.self_attn.k_proj.weight", "model.layers.0.mlp.fc2.weight"}) {
    EXPECT_EQ(sequence.at(name), GradientSum::None) << name;
  }
}

}  // namespace
}  // namespace triax::parallel
