#include "train/parameter_gather.h"

#include <algorithm>

#include "base/error.h"

namespace triax::train {

using parallel::FlatRange;
using parallel::ShardBlock;
using parallel::StateSharding;

std::vector<int> refreshed_blocks(const parallel::ShardPlan& plan) {
  std::vector<int> blocks;
  const bool again = plan.options.states == StateSharding::AllOfData && plan.options.replicas > 1;
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const bool cut = plan.options.stage > 0 && plan.options.group > 1 && !plan.blocks[b].gathered;
    if (cut || (again && plan.options.stage > 0)) blocks.push_back(static_cast<int>(b));
  }
  return blocks;
}

ParameterGather::ParameterGather(const parallel::ShardPlan& plan, parallel::ParameterStore& store,
                                 comm::ProcessGrid& grid, kernels::Device& device, Arena& arena, Overlap overlap)
    : plan_(&plan),
      store_(&store),
      grid_(&grid),
      device_(&device),
      arena_(&arena),
      overlap_(overlap),
      states_(plan.blocks.size()),
      unit_blocks_(store.units().size()) {
  for (State& state : states_) state.work.reserve(2);
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    for (const int unit : plan.blocks[b].units) unit_blocks_[static_cast<size_t>(unit)].push_back(static_cast<int>(b));
  }
}

void ParameterGather::start(State& state, comm::Work work) {
  if (overlap_ == Overlap::No) work.wait();
  state.work.push_back(std::move(work));
  state.pending = true;
}

void ParameterGather::quantize(int64_t block_length) {
  if (device_->compression() == nullptr) {
    throw ConfigError("--zero-quantized-weights: the device has no codes; use --device cpu, or leave it out");
  }
  int64_t longest = 0;
  for (const ShardBlock& b : plan_->blocks) {
    if (b.gathered) longest = std::max(longest, b.range.size() / plan_->options.group);
  }
  if (longest == 0) return;  // nothing is held in shards
  coded_ = std::make_unique<comm::CodedGather>(grid_->shard(), *device_, *arena_, kernels::Codec::Int8, block_length,
                                               store_->weight_dtype(), longest);
}

void ParameterGather::refresh(int block) {
  State& state = states_[static_cast<size_t>(block)];
  const ShardBlock& b = plan_->blocks[static_cast<size_t>(block)];
  const FlatRange shard = plan_->shard_of(b, grid_->shard().rank());
  const FlatRange owned = plan_->owned_of(b, grid_->shard().rank(), grid_->replica().rank());
  if (owned != shard) start(state, grid_->replica().all_gather(store_->weight(owned), store_->weight(shard)));
  if (!b.gathered && shard != b.range) {
    start(state, grid_->shard().all_gather(store_->weight(shard), store_->weight(b.range)));
  }
}

void ParameterGather::refresh_all() {
  for (const int block : refreshed_blocks(*plan_)) refresh(block);
  finish();
}

void ParameterGather::gather(int block) {
  State& state = states_[static_cast<size_t>(block)];
  const ShardBlock& b = plan_->blocks[static_cast<size_t>(block)];
  finish(state, b);  // its shard may still be on its way (hpZ)
  state.memory = arena_->allocate(store_->weight_dtype(), b.range.size(), MemoryCategory::Communication);
  const FlatRange own = plan_->shard_of(b, grid_->shard().rank());
  const Tensor shard = store_->weight(own);
  if (coded_) {
    const Tensor values = state.memory.view(store_->weight_dtype(), {b.range.size()});
    device_->copy(shard, values.range(own.begin - b.range.begin, own.end - b.range.begin));
    const int64_t bytes = coded_->message_bytes(own.size());
    state.message = arena_->allocate(static_cast<size_t>(bytes), MemoryCategory::Communication);
    return start(state, coded_->start(values, state.message.view(DType::UInt8, {bytes})));
  }
  start(state, grid_->shard().all_gather(shard, state.memory.view(store_->weight_dtype(), {b.range.size()})));
}

void ParameterGather::release(int block) {
  State& state = states_[static_cast<size_t>(block)];
  const ShardBlock& b = plan_->blocks[static_cast<size_t>(block)];
  finish(state, b);
  store_->bind_weights(b.range, {});
  state.memory.reset();
}

void ParameterGather::gather_all() {
  for (size_t b = 0; b < states_.size(); ++b) {
    if (plan_->blocks[b].gathered && !states_[b].memory) gather(static_cast<int>(b));
  }
  finish();
}

void ParameterGather::release_all() {
  for (size_t b = 0; b < states_.size(); ++b) {
    if (states_[b].memory) release(static_cast<int>(b));
  }
}

void ParameterGather::await(int unit) {
  for (const int block : unit_blocks_[static_cast<size_t>(unit)]) {
    finish(states_[static_cast<size_t>(block)], plan_->blocks[static_cast<size_t>(block)]);
  }
}

void ParameterGather::finish(State& state, const ShardBlock& block) {
  if (!state.pending) return;
  for (comm::Work& work : state.work) work.wait();
  state.work.clear();
  state.pending = false;
  if (state.message) {
    const int64_t bytes = coded_->message_bytes(block.range.size() / plan_->options.group);
    coded_->finish(state.memory.view(store_->weight_dtype(), {block.range.size()}),
                   state.message.view(DType::UInt8, {bytes}));
    state.message.reset();
  }
  if (state.memory) store_->bind_weights(block.range, state.memory.view(store_->weight_dtype(), {block.range.size()}));
}

void ParameterGather::finish() {
  for (size_t b = 0; b < states_.size(); ++b) finish(states_[b], plan_->blocks[b]);
}

}  // namespace triax::train
