// A rehearsal's figures against what they must be, and its checks against traffic that is not what was announced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/options/options.h"
#include "io/options/validate.h"
#include "plan/rehearsal.h"

namespace triax::plan {
namespace {

using comm::Operation;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RehearsalRequest request_of(std::vector<std::string> args, int ranks) {
  args.insert(args.end(), {"--mock-data", "--train-iters", "10", "--lr", "1e-4"});
  RehearsalRequest request;
  request.options = io::parse_options(args).options;
  io::resolve(request.options, ranks);
  return request;
}

RehearsalRequest llama_70b() {
  return request_of({"--model", "llama2-70b", "--tensor-model-parallel-size", "8", "--sequence-parallel",
                     "--pipeline-model-parallel-size", "4", "--zero-stage", "1", "--micro-batch-size", "1",
                     "--global-batch-size", "64"},
                    128);
}

TEST(Rehearsal, one_rank_of_128_executes_the_program_and_sends_what_is_announced) {
  const RehearsalReport report = rehearse(llama_70b());
  EXPECT_EQ(report.rank, 96);  // tp 0, dp 0 of the last stage
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_EQ(report.arrays, ArrayPayload::Exact);
  EXPECT_EQ(report.executed.program, report.announced.program);
  // Widths / 64, so that two channels are left to a head; 16 tokens of 4096.
  EXPECT_EQ(report.shrinking.divisors, (Divisors{64, 256}));
  EXPECT_EQ(report.small.model.hidden_size, 128);
  EXPECT_EQ(report.small.model.vocab_size, 512);  // 32768 padded / 64
  ASSERT_EQ(report.scaled.entries.size(), report.announced.traffic.size());
  for (const auto& [key, entry] : report.announced.traffic) {
    SCOPED_TRACE(key.first + " " + comm::name_of(key.second));
    EXPECT_EQ(report.scaled.entries.at(key).payload_bytes, entry.payload_bytes);
    EXPECT_EQ(report.scaled.entries.at(key).calls, entry.calls);
  }
  // By hand: a message is b s h / t of 2 bytes, one per micro-batch (m = 16) to the stage before.
  EXPECT_EQ(report.announced.traffic.at({"pp", Operation::Send}).payload_bytes, 16LL * 4096 * 8192 / 8 * 2);
  // The gradients of the stage in fp32, once.
  EXPECT_EQ(report.announced.traffic.at({"dp", Operation::ReduceScatter}).payload_bytes,
            report.memory.stages[3].forecast.parameters * 4);
  EXPECT_THAT(report.nodes, testing::Contains(15));
}

TEST(Rehearsal, a_run_on_gpus_takes_the_memory_of_one_on_gpus) {
  for (const std::string device : {"cpu", "cuda"}) {
    const RehearsalRequest request =
        request_of({"--model", "t1", "--pipeline-model-parallel-size", "2", "--micro-batch-size", "1",
                    "--global-batch-size", "4", "--device", device},
                   2);
    const RehearsalReport report = rehearse(request);
    ASSERT_EQ(report.stages.size(), 2u);
    // On a GPU the batches of a step lie in its memory, what reports gather does not.
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(report.stages[i].step.memory.peak_total, report.memory.stages[i].forecast.ledger.peak_total) << device;
    }
  }
}

TEST(Rehearsal, every_rank_of_a_small_job) {
  for (const auto& layout : std::vector<std::vector<std::string>>{
           {"--tensor-model-parallel-size", "2", "--sequence-parallel", "--pipeline-model-parallel-size", "2"},
           {"--tensor-model-parallel-size", "2", "--zero-stage", "3"},
           {"--pipeline-model-parallel-size", "4", "--pipeline-schedule", "zb-h1"},
           {"--tensor-model-parallel-size", "2", "--zero-stage", "2", "--grad-compression", "none"}}) {
    std::vector<std::string> args{"--model", "t0", "--fp64", "--micro-batch-size", "1", "--global-batch-size", "16"};
    args.insert(args.end(), layout.begin(), layout.end());
    RehearsalRequest request = request_of(args, 8);
    for (request.rank = 0; request.rank < 8; ++request.rank) {
      SCOPED_TRACE(testing::PrintToString(layout) + " rank " + std::to_string(request.rank));
      EXPECT_THAT(rehearse(request).faults, IsEmpty());
    }
  }
}

TEST(Rehearsal, a_rank_outside_the_job_is_refused) {
  RehearsalRequest request = llama_70b();
  request.rank = 128;
  EXPECT_THROW(
      {
        try {
          rehearse(request);
        } catch (const ConfigError& error) {
          EXPECT_THAT(error.what(), HasSubstr("use 0 to 127"));
          throw;
        }
      },
      ConfigError);
}

comm::LedgerEntry entry_of(int64_t calls, int64_t payload_bytes) {
  comm::LedgerEntry entry;
  entry.calls = calls;
  entry.payload_bytes = payload_bytes;
  return entry;
}

// Sabotage: what the comparison must catch, one by one.
TEST(CompareTraffic, names_every_kind_of_difference) {
  train::StepCommunication::Entries announced;
  announced[{"tp", Operation::AllGather}] = entry_of(2, 100);
  announced[{"dp", Operation::ReduceScatter}] = entry_of(1, 64);
  const auto compare = [&](const Scaled& scaled, ArrayPayload arrays = ArrayPayload::Exact) {
    return compare_traffic(announced, scaled, arrays);
  };
  EXPECT_THAT(compare({announced, ""}), IsEmpty());
  Scaled other{announced, ""};
  other.entries[{"tp", Operation::AllGather}].payload_bytes = 101;
  EXPECT_THAT(compare(other), ElementsAre("tp all_gather: 100 bytes announced, 101 by the executed rank, scaled"));
  other.entries[{"tp", Operation::AllGather}] = entry_of(3, 100);
  EXPECT_THAT(compare(other), ElementsAre("tp all_gather: 2 calls announced, 3 executed"));
  other = {announced, ""};
  other.entries[{"dp", Operation::ReduceScatter}].payload_bytes = 65;
  EXPECT_EQ(compare(other).size(), 1u);
  EXPECT_THAT(compare(other, ArrayPayload::CallsAlone), IsEmpty());  // padded arrays
  other.entries.erase({"dp", Operation::ReduceScatter});
  EXPECT_THAT(compare(other),
              ElementsAre("dp reduce_scatter: announced, not executed (or not as often at all widths)"));
  EXPECT_THAT(compare(other, ArrayPayload::Unknown), IsEmpty());  // compressed
  other = {announced, ""};
  other.entries[{"pp", Operation::Send}] = entry_of(1, 0);
  EXPECT_THAT(compare(other), ElementsAre("pp send: executed, not announced"));
  EXPECT_THAT(compare({{}, "the program changes"}), ElementsAre("the traffic cannot be scaled: the program changes"));
}

TEST(Shrink, keeps_heads_and_divides_widths) {
  const io::RunOptions options = llama_70b().options;
  const io::RunOptions small = shrink(options, {64, 256}, 3, 2);
  EXPECT_EQ(small.model.hidden_size, 384);
  EXPECT_EQ(small.model.ffn_hidden_size, 1344);
  EXPECT_EQ(small.model.kv_channels, 6);
  EXPECT_EQ(small.model.num_attention_heads, 64);
  EXPECT_EQ(small.model.num_query_groups, 8);
  EXPECT_EQ(small.model.num_layers, 80);
  EXPECT_EQ(small.model.seq_length, 32);
  EXPECT_EQ(small.model.padded_vocab_size(8), 3 * 512);
  EXPECT_EQ(small.batch.num_micro_batches, options.batch.num_micro_batches);
}

}  // namespace
}  // namespace triax::plan
