// Trains the tiny test models T0 and T1 in any layout, for the MPI tests of the training layer.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/last_words.h"
#include "comm/process_grid.h"
#include "io/data/mock_dataset.h"
#include "io/options/validate.h"
#include "tests/mpi/mpi_world.h"
#include "train/batch_source.h"
#include "train/program_builder.h"
#include "train/run_device.h"
#include "train/trainer.h"

namespace triax::test {

enum class TinyModel { T0, T1 };
enum class Head { Tied, Untied };

/// One cell of the parity matrix.
struct Layout {
  TinyModel model = TinyModel::T0;
  Head head = Head::Tied;
  int tp = 1, pp = 1, vpp = 1, dp = 1;
  parallel::SequenceParallel sp = parallel::SequenceParallel::No;
  parallel::RecomputeGranularity recompute = parallel::RecomputeGranularity::None;

  int world() const { return tp * pp * dp; }
  int64_t num_layers() const { return pp * vpp > 4 ? 8 : 4; }
  std::string text() const {
    return fmt::format("{} {} L{} tp{} pp{} vpp{} dp{} sp{} recompute{}", model == TinyModel::T0 ? "T0" : "T1",
                       head == Head::Tied ? "tied" : "untied", num_layers(), tp, pp, vpp, dp,
                       sp == parallel::SequenceParallel::Yes ? 1 : 0, static_cast<int>(recompute));
  }
  bool operator==(const Layout&) const = default;
};

/// Hidden 64, 4 heads, s 32, V 101. T0: GELU 256, LayerNorm, biases, learned positions. T1: 2 KV heads, SwiGLU 176,
/// RMSNorm, RoPE, no bias; its vocabulary is padded to 128 per tp rank, so that some ranks hold no true row.
inline model::ModelConfig tiny_model(TinyModel which) {
  model::ModelConfig m;
  m.hidden_size = 64;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 16;
  m.ffn_hidden_size = 256;
  m.seq_length = m.max_position_embeddings = 32;
  m.vocab_size = 101;
  m.make_vocab_size_divisible_by = 1;
  m.num_layers = 4;
  if (which == TinyModel::T1) {
    m.num_query_groups = 2;
    m.ffn_hidden_size = 176;
    m.norm = model::NormType::RMSNorm;
    m.activation = model::ActivationType::SwiGlu;
    m.position = model::PositionType::Rope;
    m.add_bias_linear = m.add_qkv_bias = false;
    m.make_vocab_size_divisible_by = 128;
  }
  return m;
}

inline io::RunOptions tiny_options(const Layout& layout) {
  io::RunOptions o;
  o.model = tiny_model(layout.model);
  o.model.num_layers = layout.num_layers();
  o.model.tie_embeddings = layout.head == Head::Tied;
  o.parallel.grid.tensor = layout.tp;
  o.parallel.grid.pipeline = layout.pp;
  o.parallel.chunks = layout.vpp;
  if (layout.vpp > 1) o.parallel.schedule = parallel::ScheduleKind::Interleaved;
  o.parallel.sequence_parallel = layout.sp == parallel::SequenceParallel::Yes;
  o.parallel.recompute.granularity = layout.recompute;
  o.parallel.ddp_bucket_size = 10000;
  o.batch.micro_batch_size = 1;
  o.batch.global_batch_size = 8;
  o.batch.train_iters = 20;
  o.optimizer.lr = 1e-3;
  o.optimizer.lr_decay_style = io::LrDecayStyle::Constant;
  o.control.precision = io::Precision::Fp64;
  o.control.threads = 1;
  o.data.mock_data = true;
  o.control.distributed_timeout_min = 2;
  return o;
}

/// With --eod-mask-loss, rows of this token do not count.
inline constexpr int32_t kEod = 7;

/// A trainer with all that it stands on, fed with mock data.
class TinyRun {
 public:
  /// Over the MPI world of `session`. `options` need not be resolved.
  TinyRun(comm::MpiSession& session, io::RunOptions options, train::Use use = train::Use::Train)
      : options_(resolved(std::move(options), session.size())),
        device_(session, options_.control.device, options_.control.threads, train::gemm_search(options_)),
        grid_(session, train::grid_options(options_), device_.groups()),
        arena_(device_.memory(options_, grid_)) {
    start(use);
  }
  /// One rank on its own, whatever the MPI world.
  explicit TinyRun(io::RunOptions options, train::Use use = train::Use::Train)
      : options_(resolved(std::move(options), 1)),
        device_(test::session(), "cpu", options_.control.threads),
        grid_(comm::PhantomRank{}, train::grid_options(options_)),
        arena_(grid_.memory()) {
    start(use);
  }

  /// On a GPU an error ends the job, as it does in `triax train`: unwinding would free memory, and so wait for a GPU
  /// that waits for peers.
  train::StepResult step() {
    try {
      return trainer_->train_step({source_->next_step(), 0, {}});
    } catch (const std::exception& error) {
      if (device_.discrete() == nullptr) throw;
      say_last_words(fmt::format("rank {}: a step failed: {}\n", session().rank(), error.what()));
      session().abort(1);
    }
  }
  std::span<const io::MicroBatch> next_batches() { return source_->next_step(); }
  train::Trainer& trainer() { return *trainer_; }
  comm::ProcessGrid& grid() { return grid_; }
  const io::RunOptions& options() const { return options_; }
  kernels::Device& device() { return device_.get(); }
  Arena& arena() { return arena_; }

 private:
  static io::RunOptions resolved(io::RunOptions options, int world) {
    io::resolve(options, world);
    return options;
  }
  void start(train::Use use) {
    trainer_ = std::make_unique<train::Trainer>(grid_, device_.get(), arena_, options_, use);
    trainer_->initialize();
    dataset_ = std::make_unique<io::MockDataset>(
        io::MockDataset::Shape{options_.batch.train_iters * options_.batch.global_batch_size, options_.model.vocab_size,
                               options_.control.seed});
    io::LoaderConfig loader;
    loader.shape = {options_.batch.micro_batch_size, options_.parallel.grid.data, options_.batch.num_micro_batches};
    loader.dp_rank = grid_.coord().data;
    loader.seq_length = options_.model.seq_length;
    loader.eod_mask = {options_.data.eod_mask_loss, kEod};
    source_ = std::make_unique<train::BatchSource>(trainer_->holds_tokens() ? dataset_.get() : nullptr, loader, 0);
  }

  io::RunOptions options_;
  train::RunDevice device_;
  comm::ProcessGrid grid_;
  Arena arena_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<io::MockDataset> dataset_;
  std::unique_ptr<train::BatchSource> source_;
};

}  // namespace triax::test
