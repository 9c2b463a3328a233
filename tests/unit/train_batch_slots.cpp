// Slots of micro-batches in the memory of a device.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/options/validate.h"
#include "train/batch_upload.h"
#include "train/program_builder.h"

namespace triax::train {
namespace {

parallel::Program program_of(int pipeline, int chunks, int micro_batches, const char* schedule) {
  io::RunOptions o;
  o.model.num_layers = 8;
  o.model.hidden_size = 64;
  o.model.num_attention_heads = o.model.num_query_groups = 4;
  o.model.kv_channels = 16;
  o.model.ffn_hidden_size = 256;
  o.model.seq_length = o.model.max_position_embeddings = 32;
  o.model.vocab_size = 128;
  o.parallel.grid.pipeline = pipeline;
  o.parallel.chunks = chunks;
  o.parallel.schedule = *parallel::schedule_of(schedule);
  o.batch.micro_batch_size = 1;
  o.batch.global_batch_size = micro_batches;
  o.batch.train_iters = 1;
  o.optimizer.lr = 1e-3;
  o.data.mock_data = true;
  io::resolve(o, pipeline);
  return parallel::make_training_program(program_options(o));
}

TEST(BatchSlots, TheFirstStageOf1F1BHoldsAsManyAsThereAreStages) {
  const parallel::Program program = program_of(4, 1, 10, "1f1b");
  const std::vector<size_t> first = batch_slots(program.positions[0], 10);
  EXPECT_EQ(first, (std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(batch_slots(program.positions[3], 10), std::vector<size_t>(10, 0));
}

/// Between a micro-batch's first load and its last compute op no other one has its slot.
TEST(BatchSlots, NoTwoLiveMicroBatchesShareOne) {
  for (const auto& [chunks, schedule] :
       {std::pair{1, "gpipe"}, {1, "1f1b"}, {2, "interleaved"}, {1, "zb-h1"}, {1, "zb-h2"}}) {
    const parallel::Program program = program_of(4, chunks, 8, schedule);
    for (const auto& ops : program.positions) {
      const std::vector<size_t> slots = batch_slots(ops, 8);
      std::vector<size_t> last(8, 0);
      for (size_t i = 0; i < ops.size(); ++i) {
        if (parallel::is_compute(ops[i].kind)) last[static_cast<size_t>(ops[i].micro_batch)] = i;
      }
      std::vector<int> holder(8, -1);
      for (size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].kind != parallel::OpKind::LoadBatch && !parallel::is_compute(ops[i].kind)) continue;
        const auto batch = static_cast<size_t>(ops[i].micro_batch);
        int& of_slot = holder[slots[batch]];
        if (of_slot == -1) of_slot = ops[i].micro_batch;
        EXPECT_EQ(of_slot, ops[i].micro_batch) << schedule << ", op " << i;
        if (last[batch] == i) of_slot = -1;
      }
    }
  }
}

}  // namespace
}  // namespace triax::train
