#include "train/parameter_gather.h"

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

void ParameterGather::refresh(int block) {
  State& state = states_[static_cast<size_t>(block)];
  const ShardBlock& b = plan_->blocks[static_cast<size_t>(block)];
  const FlatRange shard = plan_->shard_of(b, grid_->shard().rank());
  const FlatRange owned = plan_->owned_of(b, grid_->shard().rank(), grid_->replica().rank());
  device_->synchronize();
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
  const Tensor shard = store_->weight(plan_->shard_of(b, grid_->shard().rank()));
  device_->synchronize();
  start(state, grid_->shard().all_gather(shard, state.memory.view(store_->weight_dtype(), {b.range.size()})));
}

void ParameterGather::release(int block) {
  State& state = states_[static_cast<size_t>(block)];
  const ShardBlock& b = plan_->blocks[static_cast<size_t>(block)];
  finish(state, b);
  device_->synchronize();
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
  if (state.memory) store_->bind_weights(block.range, state.memory.view(store_->weight_dtype(), {block.range.size()}));
}

void ParameterGather::finish() {
  for (size_t b = 0; b < states_.size(); ++b) finish(states_[b], plan_->blocks[b]);
}

}  // namespace triax::train
