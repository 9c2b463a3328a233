#include "train/checkpoint_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/phantom.h"
#include "kernels/null_device.h"
#include "model/stage.h"
#include "train/compression_checkpoint.h"
#include "train/fp8_checkpoint.h"

namespace triax::train {
namespace {

using parallel::Parameter;

enum class Copies { Skip, Take };

/// Calls f(parameter, range) for the part of each range that lies inside a parameter's true elements.
template <class F>
void for_each_part(const parallel::ParameterStore& store, const std::vector<StateRange>& ranges, Copies copies, F f) {
  for (const StateRange& range : ranges) {
    for (const Parameter& p : store.parameters()) {
      if (copies == Copies::Skip && (p.spec.replica != 0 || p.tied_copy)) continue;
      const FlatRange part = parallel::intersection({p.offset, p.offset + p.true_numel()}, range.flat);
      if (part.size() > 0) f(p, StateRange{part, range.piece, range.begin + part.begin - range.flat.begin});
    }
  }
}

io::Piece piece_of(const char* kind, const Parameter& p, const FlatRange& part, Tensor data) {
  return {kind, p.name, p.spec, part.begin - p.offset, part.end - p.offset, data};
}

/// One of the optimizer's arrays, by owned range.
struct State {
  const char* kind;
  Tensor (Optimizer::*values)(size_t) const;
  Tensor of(const Optimizer& optimizer, const StateRange& range) const {
    return (optimizer.*values)(range.piece).range(range.begin, range.begin + range.flat.size());
  }
};

std::vector<State> moments_of(const Optimizer& optimizer) {
  std::vector<State> states{{io::kExpAvg, &Optimizer::exp_avg},
                            {io::kExpAvgSq, &Optimizer::exp_avg_sq},
                            {io::kMomentum, &Optimizer::momentum}};
  std::erase_if(states, [&](const State& state) { return !(optimizer.*state.values)(0); });
  return states;
}

}  // namespace

std::vector<StateRange> replica_share(std::span<const FlatRange> owned, int index, int count) {
  int64_t total = 0;
  for (const FlatRange& range : owned) total += range.size();
  const auto border = [&](int64_t i) {
    const int64_t even = total * i / count;
    return i == count ? total : even / parallel::kParameterAlignment * parallel::kParameterAlignment;
  };
  const int64_t first = border(index);
  const int64_t last = border(index + 1);
  std::vector<StateRange> share;
  int64_t at = 0;
  for (size_t i = 0; i < owned.size(); ++i) {
    const FlatRange& range = owned[i];
    const int64_t begin = std::max(first, at);
    const int64_t end = std::min(last, at + range.size());
    if (begin < end) share.push_back({{range.begin + begin - at, range.begin + end - at}, i, begin - at});
    at += range.size();
  }
  return share;
}

std::vector<io::Piece> pieces_to_save(Trainer& trainer, comm::ProcessGrid& grid, WithOptimizer with_optimizer) {
  const Optimizer& optimizer = *trainer.optimizer();
  const parallel::ParameterStore& store = trainer.store();
  const parallel::ShardOptions& shards = trainer.gradient_sync().plan().shards.options;
  // Ranks that own the same: all of dp, the replicas of a shard, or none (hpZ).
  const bool alone = shards.states == parallel::StateSharding::AllOfData;
  comm::Communicator& same = shards.stage == 0 ? grid.data() : grid.replica();
  const std::vector<StateRange> share =
      replica_share(optimizer.owned(), alone ? 0 : same.rank(), alone ? 1 : same.size());
  std::vector<State> states;
  if (with_optimizer == WithOptimizer::Yes) {
    states = moments_of(optimizer);
    if (store.weight_dtype() != optimizer.master(0).dtype()) states.push_back({io::kMaster, &Optimizer::master});
  }
  std::vector<io::Piece> pieces;
  for_each_part(store, share, Copies::Skip, [&](const Parameter& p, const StateRange& part) {
    pieces.push_back(piece_of(io::kWeight, p, part.flat, store.weight(part.flat)));
    for (const State& state : states) {
      pieces.push_back(piece_of(state.kind, p, part.flat, state.of(optimizer, part)));
    }
  });
  if (with_optimizer == WithOptimizer::Yes && trainer.compression() != nullptr) {
    for (io::Piece& piece : compression_pieces(*trainer.compression(), store, grid.coord())) {
      pieces.push_back(std::move(piece));
    }
  }
  if (with_optimizer == WithOptimizer::Yes && trainer.fp8() != nullptr) {
    for (io::Piece& piece : fp8_pieces(*trainer.fp8(), grid.coord(), trainer.fp8_rows())) {
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

std::vector<io::Piece> pieces_to_load(Trainer& trainer, const io::CheckpointReader& reader,
                                      WithOptimizer with_optimizer) {
  const parallel::ParameterStore& store = trainer.store();
  std::vector<io::Piece> pieces;
  if (trainer.optimizer() == nullptr) {
    // It wants what the forward pass used.
    const Tensor source = trainer.weight_source();
    for_each_part(store, {{{0, store.numel()}, 0, 0}}, Copies::Take, [&](const Parameter& p, const StateRange& part) {
      pieces.push_back(piece_of(io::kWeight, p, part.flat, source.range(part.flat.begin, part.flat.end)));
    });
    return pieces;
  }
  const Optimizer& optimizer = *trainer.optimizer();
  std::vector<State> states{{reader.has_kind(io::kMaster) ? io::kMaster : io::kWeight, &Optimizer::master}};
  if (with_optimizer == WithOptimizer::Yes) {
    for (const State& state : moments_of(optimizer)) states.push_back(state);
  }
  for_each_part(store, replica_share(optimizer.owned(), 0, 1), Copies::Take,
                [&](const Parameter& p, const StateRange& part) {
                  for (const State& state : states) {
                    pieces.push_back(piece_of(state.kind, p, part.flat, state.of(optimizer, part)));
                  }
                });
  return pieces;
}

std::vector<TensorShape> model_tensors(const model::ModelConfig& model) {
  kernels::ReserveProvider memory;
  Arena arena(memory);
  comm::GroupInfo alone;
  alone.name = "tp";
  alone.world_ranks = {0};
  comm::PhantomCommunicator tensor(alone, memory);
  parallel::LayerContext context;
  context.arena = &arena;
  context.tensor = &tensor;
  model::StageOptions stage;
  stage.model = model;
  // Rotary tables hold no parameters and would be computed for nothing.
  if (model.position == model::PositionType::Rope) stage.model.position = model::PositionType::None;
  stage.layers = parallel::make_layer_map(model.num_layers, 1, 1, 0, 0, {});
  parallel::ParameterStore store;
  const auto chunks = model::make_chunks(stage, context, store);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Parameter& p : store.parameters()) {
    if (!p.tied_copy) shapes[p.name] = p.spec.global_shape;
  }
  std::vector<TensorShape> tensors;
  for (const auto& [name, shape] : shapes) tensors.push_back({name, shape});
  return tensors;
}

std::vector<std::string> tensor_differences(const io::CheckpointReader& reader, const model::ModelConfig& model) {
  std::map<std::string, std::vector<int64_t>> wanted;
  for (const TensorShape& tensor : model_tensors(model)) wanted[tensor.name] = tensor.shape;
  std::vector<std::string> found;
  for (const auto& [name, shape] : wanted) {
    const io::TensorInfo* stored = reader.find(io::kWeight, name);
    if (stored == nullptr) {
      found.push_back("tensor " + name + " is missing");
    } else if (stored->shape != shape) {
      found.push_back(fmt::format("tensor {} has shape [{}], the model wants [{}]", name,
                                  fmt::join(stored->shape, ", "), fmt::join(shape, ", ")));
    }
  }
  for (const io::TensorInfo& tensor : reader.tensors()) {
    if (!wanted.contains(tensor.name)) {
      found.push_back(fmt::format("{} of tensor {} is not in the model", tensor.kind, tensor.name));
    }
  }
  return found;
}

}  // namespace triax::train
