// The CUDA device whose operations are put off during a pass and launched as CUDA graphs where the same ones, with the
// same arguments, were put off before.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/fingerprint.h"
#include "kernels/launch_recorder.h"

namespace triax::kernels {

/// The host runs a pass as always: it takes and gives back memory, notes what is written, and hands every operation to
/// this device, which keeps it with its arguments. Who wants the stream for anything else, or the end of the pass, has
/// what was kept given to the GPU first (flush), in order:
///   - as the graph of the operations with these arguments, in one launch;
///   - where there is none, but they have come before: they are captured, and the graph is launched;
///   - the first time: one by one, so that scratch memory, algorithms and code are there before a capture needs them;
///   - a single operation, as it is.
/// So an argument that differs, an address among them, is another graph, never a wrong one. At most `most` graphs are
/// held; for a new one those are given up that were not used for 4 `most` stretches, nor since the new one's operations
/// came last; where there are none, these operations stay as they are. Operations outside of begin() and end() are done
/// at once. Steady passes of up to
/// some 3000 operations take nothing from the heap.
class GraphDevice final : public Device, public LaunchRecorder {
 public:
  static constexpr size_t kMostGraphs = 1024;
  explicit GraphDevice(CudaDevice& device, size_t most = kMostGraphs);

  // ---- The recorder ----------------------------------------------------------------------------------------------
  Device& device() override { return *this; }
  void begin() override;
  void end() override;
  void discard() noexcept override;
  RecorderCounts counts() const override;
  /// Gives what is put off to the GPU.
  void flush() {
    if (!busy_ && !calls_.empty()) give_calls();
  }

  // ---- What is not put off ---------------------------------------------------------------------------------------
  std::string name() const override { return device_->name(); }
  MemoryProvider& memory() override { return device_->memory(); }
  void synchronize() override { device_->synchronize(); }
  bool on_host() const override { return false; }
  MemoryProvider& staging_memory() override { return device_->staging_memory(); }
  void upload(Tensor host, Tensor device) override { device_->upload(host, device); }
  void download(Tensor device, Tensor host) override { device_->download(device, host); }
  void start_upload(Tensor host, Tensor device) override { device_->start_upload(host, device); }
  void start_download(Tensor device, Tensor host) override { device_->start_download(device, host); }
  void start_copy_beside(Tensor device, Tensor host) override { device_->start_copy_beside(device, host); }
  void order_after_copies() override { device_->order_after_copies(); }
  void finish_copies() override { device_->finish_copies(); }
  void upload_step(const StepBlock& block, StepBlock* device) override { device_->upload_step(block, device); }
  void mark(size_t slot) override { device_->mark(slot); }
  double marked_s(size_t slot) override { return device_->marked_s(slot); }
  void begin_range(const char* name) override { device_->begin_range(name); }
  void end_range() override { device_->end_range(); }
  bool start_capture() override { return device_->start_capture(); }
  void stop_capture() override { device_->stop_capture(); }
  std::string fp8_refusal() const override { return device_->fp8_refusal(); }
  void adamw(const AdamW& args, const StepBlock* step) override { device_->adamw(args, step); }
  void adamw_many(std::span<const AdamW> ranges, const StepBlock* step) override { device_->adamw_many(ranges, step); }
  void sgd(const Sgd& args, const StepBlock* step) override { device_->sgd(args, step); }
  Compression* compression() override { return device_->compression(); }

  // ---- What is ---------------------------------------------------------------------------------------------------
  void gemm(const Gemm& g) override { give<&Device::gemm>(g); }
  void gemm_gelu(const Gemm& g, Tensor y) override { give<&Device::gemm_gelu>(g, y); }
  void gemm_gelu_backward(const Gemm& g, Tensor x) override { give<&Device::gemm_gelu_backward>(g, x); }
  void gemm_bias_backward(const Gemm& g, Tensor dbias) override { give<&Device::gemm_bias_backward>(g, dbias); }
  void bias_backward(Tensor dy, Tensor dbias) override { give<&Device::bias_backward>(dy, dbias); }
  void layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                          Tensor rstd) override {
    give<&Device::layer_norm_forward>(x, gamma, beta, eps, y, mean, rstd);
  }
  void layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                           Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) override {
    give<&Device::layer_norm_backward>(dy, x, gamma, mean, rstd, dx, accumulate_dx, dgamma, dbeta);
  }
  void rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) override {
    give<&Device::rms_norm_forward>(x, gamma, eps, y, rstd);
  }
  void rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                         Tensor dgamma) override {
    give<&Device::rms_norm_backward>(dy, x, gamma, rstd, dx, accumulate_dx, dgamma);
  }
  void rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) override {
    give<&Device::rotary>(x, cos, sin, position, heads, direction);
  }
  void gelu_forward(Tensor x, Tensor y) override { give<&Device::gelu_forward>(x, y); }
  void gelu_backward(Tensor dy, Tensor x, Tensor dx) override { give<&Device::gelu_backward>(dy, x, dx); }
  void swiglu_forward(Tensor x, Tensor y) override { give<&Device::swiglu_forward>(x, y); }
  void swiglu_backward(Tensor dy, Tensor x, Tensor dx) override { give<&Device::swiglu_backward>(dy, x, dx); }
  void bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout, const TokenIndex& index,
                                Tensor y) override {
    give<&Device::bias_dropout_add_forward>(x, bias, residual, dropout, index, y);
  }
  void bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                             Tensor dbias) override {
    give<&Device::bias_dropout_backward>(dy, dropout, index, dx, dbias);
  }
  void attention_forward(const Attention& args, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) override {
    give<&Device::attention_forward>(args, q, k, v, o, lse);
  }
  void attention_backward(const Attention& args, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
                          Tensor dq, Tensor dk, Tensor dv) override {
    give<&Device::attention_backward>(args, dout, q, k, v, o, lse, dq, dk, dv);
  }
  void embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) override {
    give<&Device::embedding_forward>(token, table, first, accumulate, y);
  }
  void embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) override {
    give<&Device::embedding_backward>(token, dy, first, dtable);
  }
  void cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) override {
    give<&Device::cross_entropy_max>(logits, valid, row_max);
  }
  void cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max, Tensor sum_exp,
                         Tensor target_logit) override {
    give<&Device::cross_entropy_sum>(logits, first, valid, target, row_max, sum_exp, target_logit);
  }
  void cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask, Tensor loss_sum) override {
    give<&Device::cross_entropy_loss>(row_max, sum_exp, target_logit, mask, loss_sum);
  }
  void cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                              Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) override {
    give<&Device::cross_entropy_backward>(logits, first, valid, target, row_max, sum_exp, mask, seed_factor, step);
  }
  void fill(Tensor x, double value) override { give<&Device::fill>(x, value); }
  void copy(Tensor x, Tensor y) override { give<&Device::copy>(x, y); }
  void add(Tensor x, Tensor y) override { give<&Device::add>(x, y); }
  void scale(Tensor x, double factor) override { give<&Device::scale>(x, factor); }
  void sum_of_squares(Tensor x, Tensor out) override { give<&Device::sum_of_squares>(x, out); }
  void count_nonfinite(Tensor x, Tensor out) override { give<&Device::count_nonfinite>(x, out); }

 private:
  class Giving;
  using Play = void (*)(Device& device, const void* arguments);
  struct Call {
    Play play;
    const void* arguments;
  };
  struct Graph {
    CudaGraphExec exec;
    int64_t operations = 0;
    SpecialCalls special;  ///< in one launch
    int64_t used = 0;      ///< in the stretch of this number
  };

  template <auto Operation, class... A>
  static void play(Device& device, const void* arguments) {
    std::apply([&](const A&... a) { (device.*Operation)(a...); }, *static_cast<const std::tuple<A...>*>(arguments));
  }
  template <auto Operation, class... A>
  void give(const A&... args) {
    if (!recording_) return (device_->*Operation)(args...);
    using Arguments = std::tuple<A...>;
    static_assert(std::is_trivially_destructible_v<Arguments>);
    const Play how = &play<Operation, A...>;
    key_.add(reinterpret_cast<const void*>(how));
    key_.add_all(args...);
    calls_.push_back({how, new (memory_.allocate(sizeof(Arguments), alignof(Arguments))) Arguments(args...)});
  }

  void give_calls();
  void forget_calls() noexcept;
  void play_calls();
  void play_singly();
  void launch(Graph& graph);
  /// Of the calls, which came before in the stretch of number `seen`; null: there is no room.
  Graph* make_graph(int64_t seen);
  bool make_room(int64_t seen);

  CudaDevice* device_;
  size_t most_;
  bool recording_ = false;
  bool busy_ = false;          ///< the calls are being given to the GPU
  bool pass_replayed_ = true;  ///< so far
  std::vector<std::byte> block_;
  std::pmr::monotonic_buffer_resource memory_;  ///< of arguments, in the block
  std::vector<Call> calls_;                     ///< put off, in order
  Fingerprint key_;                             ///< of these
  int64_t stretch_ = 0;                         ///< number of the present one
  std::unordered_map<Fingerprint, Graph, FingerprintHash> graphs_;
  std::unordered_map<Fingerprint, int64_t, FingerprintHash>
      seen_;  ///< stretch in which they came last, without a graph
  RecorderCounts counts_;
};

}  // namespace triax::kernels
