#include "model/stage.h"

#include <fmt/format.h>

#include <optional>

#include "model/embedding.h"
#include "model/head.h"
#include "model/transformer_layer.h"

namespace triax::model {

using parallel::Mode;
using parallel::RecomputeGranularity;
using parallel::RecomputeMethod;
using parallel::UnitPass;
using parallel::WeightGradient;

struct ChunkState::Data {
  parallel::MicroBatch batch;
  Embedding::State embedding;
  std::vector<TransformerLayer::State> layers;
  std::vector<Buffer> checkpoints;  ///< inputs of recomputed groups
  Head::State head;
};

ChunkState::ChunkState() : data(std::make_unique<Data>()) {}
ChunkState::~ChunkState() = default;

struct Chunk::Impl {
  // Layers [begin, end) of this chunk that are recomputed together, or run without recomputation.
  struct Group {
    size_t begin, end;
    bool recompute;
  };

  ModelConfig model;
  parallel::LayerContext context;
  RotaryTable rotary;
  bool is_first, is_last;
  std::optional<Embedding> embedding;
  std::vector<std::unique_ptr<TransformerLayer>> layers;
  std::optional<Head> head;
  std::vector<Group> groups;
  int embedding_unit = -1, first_layer_unit = -1, head_unit = -1;

  void enter(int unit, parallel::UnitPass pass) const {
    if (context.units != nullptr) context.units->before(unit, pass);
    context.label(unit == embedding_unit ? "embedding" : unit == head_unit ? "head" : "layer");
  }
  int unit_of(size_t layer) const { return first_layer_unit + static_cast<int>(layer); }
  Impl(const StageOptions& options, int chunk, const parallel::LayerContext& c, parallel::ParameterStore& store);
  Buffer through_layers(ChunkState::Data& d, size_t begin, size_t end, Buffer x, Mode mode) const;
  Buffer forward_layers(ChunkState::Data& d, Buffer x, Mode mode) const;
  void walk_backward(parallel::ChunkWalk& walk) const;
};

namespace {

std::vector<std::pair<size_t, bool>> group_sizes(const parallel::Recompute& recompute, size_t layers) {
  std::vector<std::pair<size_t, bool>> sizes;
  if (recompute.granularity != RecomputeGranularity::Full) {
    if (layers > 0) sizes.emplace_back(layers, false);
    return sizes;
  }
  const auto n = static_cast<size_t>(std::max<int64_t>(recompute.num_layers, 1));
  if (recompute.method == RecomputeMethod::Uniform) {
    for (size_t done = 0; done < layers; done += n) sizes.emplace_back(std::min(n, layers - done), true);
    return sizes;
  }
  for (size_t i = 0; i < std::min(n, layers); ++i) sizes.emplace_back(1, true);
  if (layers > n) sizes.emplace_back(layers - n, false);
  return sizes;
}

}  // namespace

Chunk::Impl::Impl(const StageOptions& options, int chunk, const parallel::LayerContext& c,
                  parallel::ParameterStore& store)
    : model(options.model), context(c), rotary(model, context) {
  const int stage = options.layers.virtual_stage(options.position, chunk);
  is_first = stage == 0;
  is_last = stage + 1 == options.layers.num_virtual_stages();
  if (is_first) {
    store.begin_unit("embedding", chunk, parallel::UnitKind::Embedding);
    embedding_unit = static_cast<int>(store.units().size()) - 1;
    embedding.emplace(model, context, store, "model.embed_tokens.weight");
    // Shared with another stage: its gradient is summed with the copy's.
    store.at(embedding->word()).tied = model.tie_embeddings && !is_last;
  }
  const parallel::LayerRange range = options.layers.layers(options.position, chunk);
  first_layer_unit = static_cast<int>(store.units().size());
  for (int64_t layer = range.begin; layer < range.end; ++layer) {
    store.begin_unit(fmt::format("layer {}", layer), chunk);
    layers.push_back(
        std::make_unique<TransformerLayer>(model, context, store, rotary, layer, options.recompute.granularity));
  }
  if (is_last) {
    store.begin_unit("head", chunk, parallel::UnitKind::Head);
    head_unit = static_cast<int>(store.units().size()) - 1;
    head.emplace(model, context, store,
                 model.tie_embeddings && is_first ? std::optional<size_t>(embedding->word()) : std::nullopt);
  }
  size_t next = 0;
  for (const auto& [size, again] : group_sizes(options.recompute, layers.size())) {
    groups.push_back({next, next + size, again});
    next += size;
  }
}

Buffer Chunk::Impl::through_layers(ChunkState::Data& d, size_t begin, size_t end, Buffer x, Mode mode) const {
  for (size_t i = begin; i < end; ++i) {
    enter(unit_of(i), UnitPass::Forward);
    x = layers[i]->forward(d.layers[i], d.batch, std::move(x), mode);
  }
  return x;
}

Buffer Chunk::Impl::forward_layers(ChunkState::Data& d, Buffer x, Mode mode) const {
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto [begin, end, recompute] = groups[g];
    if (mode == Mode::Train && !recompute) {
      x = through_layers(d, begin, end, std::move(x), mode);
      continue;
    }
    // Nothing but the group's input is kept, and in evaluation not even that.
    for (size_t i = begin; i < end; ++i) {
      enter(unit_of(i), UnitPass::Forward);
      x = layers[i]->forward(d.layers[i], d.batch, std::move(x), mode);
      if (mode == Mode::Train && i == begin) d.checkpoints[g] = std::move(d.layers[i].input);
      d.layers[i].clear();
    }
  }
  return x;
}

Chunk::Chunk(const StageOptions& options, int chunk, const parallel::LayerContext& context,
             parallel::ParameterStore& store)
    : impl_(std::make_unique<Impl>(options, chunk, context, store)) {}
Chunk::~Chunk() = default;
bool Chunk::first() const { return impl_->is_first; }
bool Chunk::last() const { return impl_->is_last; }

std::unique_ptr<ChunkState> Chunk::make_state() const {
  auto state = std::make_unique<ChunkState>();
  state->data->layers.resize(impl_->layers.size());
  state->data->checkpoints.resize(impl_->groups.size());
  return state;
}

Buffer Chunk::forward(ChunkState& state, const parallel::MicroBatch& batch, Buffer input, Mode mode, Tensor loss_sum) {
  ChunkState::Data& d = *state.data;
  d.batch = batch;
  if (first()) impl_->enter(impl_->embedding_unit, UnitPass::Forward);
  Buffer x = first() ? impl_->embedding->forward(batch, mode) : std::move(input);
  x = impl_->forward_layers(d, std::move(x), mode);
  if (!last()) return x;
  impl_->enter(impl_->head_unit, UnitPass::Forward);
  impl_->head->forward(d.head, batch, std::move(x), loss_sum);
  if (mode == Mode::Evaluate) d.head.clear();
  return {};
}

Buffer Chunk::backward_input(ChunkState& state, Buffer doutput, WeightGradient when) {
  ChunkState::Data& d = *state.data;
  const UnitPass pass = when == WeightGradient::Now ? UnitPass::Backward : UnitPass::BackwardInput;
  if (last()) impl_->enter(impl_->head_unit, pass);
  Buffer dx = last() ? impl_->head->backward_input(d.head, d.batch, when) : std::move(doutput);
  for (size_t g = impl_->groups.size(); g-- > 0;) {
    const auto [begin, end, recompute] = impl_->groups[g];
    if (recompute) impl_->through_layers(d, begin, end, std::move(d.checkpoints[g]), Mode::Train);
    for (size_t i = end; i-- > begin;) {
      impl_->enter(impl_->unit_of(i), pass);
      dx = impl_->layers[i]->backward_input(d.layers[i], d.batch, std::move(dx), when);
    }
  }
  if (!first()) return dx;
  impl_->enter(impl_->embedding_unit, pass);
  impl_->embedding->backward_input(d.embedding, d.batch, std::move(dx));
  if (when == WeightGradient::Now) impl_->embedding->backward_weight(d.embedding, d.batch);
  return {};
}

void Chunk::backward_weight(ChunkState& state) {
  ChunkState::Data& d = *state.data;
  if (last()) {
    impl_->enter(impl_->head_unit, UnitPass::BackwardWeight);
    impl_->head->backward_weight(d.head);
  }
  for (size_t i = impl_->layers.size(); i-- > 0;) {
    impl_->enter(impl_->unit_of(i), UnitPass::BackwardWeight);
    impl_->layers[i]->backward_weight(d.layers[i]);
  }
  if (!first()) return;
  impl_->enter(impl_->embedding_unit, UnitPass::BackwardWeight);
  impl_->embedding->backward_weight(d.embedding, d.batch);
}

// The same order as the passes above; the trainer holds each against the other.
void Chunk::Impl::walk_backward(parallel::ChunkWalk& walk) const {
  const auto add = [&](std::vector<parallel::UnitUse>& uses, UnitPass pass) {
    if (is_last) uses.push_back({head_unit, pass, true});
    for (size_t g = groups.size(); g-- > 0;) {
      const auto [begin, end, recompute] = groups[g];
      for (size_t i = begin; recompute && i < end; ++i) uses.push_back({unit_of(i), UnitPass::Forward, true});
      for (size_t i = end; i-- > begin;) uses.push_back({unit_of(i), pass, true});
    }
    if (is_first) uses.push_back({embedding_unit, pass, false});
  };
  add(walk.backward, UnitPass::Backward);
  add(walk.backward_input, UnitPass::BackwardInput);
  if (is_last) walk.backward_weight.push_back({head_unit, UnitPass::BackwardWeight, false});
  for (size_t i = layers.size(); i-- > 0;)
    walk.backward_weight.push_back({unit_of(i), UnitPass::BackwardWeight, false});
  if (is_first) walk.backward_weight.push_back({embedding_unit, UnitPass::BackwardWeight, false});
}

parallel::ChunkWalk Chunk::walk() const {
  parallel::ChunkWalk walk;
  if (first()) walk.forward.push_back({impl_->embedding_unit, UnitPass::Forward, true});
  for (size_t i = 0; i < impl_->layers.size(); ++i)
    walk.forward.push_back({impl_->unit_of(i), UnitPass::Forward, true});
  if (last()) walk.forward.push_back({impl_->head_unit, UnitPass::Forward, true});
  impl_->walk_backward(walk);
  return walk;
}

void Chunk::forward_logits(ChunkState& state, const parallel::MicroBatch& batch, Buffer input, int64_t row,
                           Tensor values) {
  ensure(last(), "Chunk::forward_logits: not the last virtual stage");
  ChunkState::Data& d = *state.data;
  d.batch = batch;
  if (first()) impl_->enter(impl_->embedding_unit, UnitPass::Forward);
  Buffer x = first() ? impl_->embedding->forward(batch, Mode::Evaluate) : std::move(input);
  x = impl_->forward_layers(d, std::move(x), Mode::Evaluate);
  impl_->enter(impl_->head_unit, UnitPass::Forward);
  impl_->head->row_logits(std::move(x), row, values);
}

std::vector<std::unique_ptr<Chunk>> make_chunks(const StageOptions& options, const parallel::LayerContext& context,
                                                parallel::ParameterStore& store) {
  std::vector<std::unique_ptr<Chunk>> chunks;
  for (int chunk = 0; chunk < options.layers.chunks; ++chunk) {
    chunks.push_back(std::make_unique<Chunk>(options, chunk, context, store));
  }
  return chunks;
}

}  // namespace triax::model
