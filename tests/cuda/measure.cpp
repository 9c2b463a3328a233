// How fast the GPU's kernels are: TFLOP/s of products and attention, GB/s of the rest against this GPU's own copy
// speed. Random data, the host's clock around batches of calls that fill 50 ms or more, median of 5 batches after one
// to warm up. usage: cuda_measure [cuda|cuda-emulated]   prints a table; needs 24 GB of GPU memory. Emulated: shapes of
// toys, one call each, so that the table itself is tested; its speeds are the emulation's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/clock.h"
#include "kernels/compression.h"
#include "kernels/cuda_loader.h"

namespace triax::kernels {
namespace {

/// Shapes: of a model worth measuring on a GPU, or of a toy.
struct Sizes {
  int64_t rows, hidden, loss_rows, vocabulary, flat;
  int64_t divide_seq, divide_heads;
  double batch_s;  // how long a batch of calls takes
};
constexpr Sizes kOfGpu{32768, 4096, 8192, 50304, int64_t{1} << 28, 1, 1, 0.05};
constexpr Sizes kOfToy{64, 256, 16, 1024, int64_t{1} << 14, 64, 16, 0};

class Bench {
 public:
  Bench(DiscreteDevice& device, const Sizes& shapes) : d(device), sizes(shapes), arena_(device.memory()) {}
  Tensor tensor(DType dtype, int64_t rows, int64_t cols) {
    memory_.push_back(arena_.allocate(dtype, rows * cols, MemoryCategory::Workspace));
    return memory_.back().view(dtype, {rows, cols});
  }
  /// Normal numbers, a block of them repeated.
  Tensor random(DType dtype, int64_t rows, int64_t cols) {
    const Tensor t = tensor(dtype, rows, cols);
    constexpr int64_t kBlock = int64_t{1} << 22;
    const int64_t n = std::min(kBlock, t.numel());
    if (noise_.empty()) {
      std::mt19937 generator(1);
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < kBlock; ++i) noise_.push_back(normal(generator));
      sent_ = tensor(DType::Float32, 1, kBlock).flat();
      d.upload(Tensor(noise_.data(), DType::Float32, {kBlock}), sent_);
    }
    for (int64_t at = 0; at < t.numel(); at += n) {
      const int64_t size = std::min(n, t.numel() - at);
      d.copy(sent_.range(0, size), t.flat().range(at, at + size));
    }
    return t;
  }
  Tensor integers(DType dtype, const std::vector<int64_t>& values) {
    const Tensor t = tensor(dtype, 1, static_cast<int64_t>(values.size())).flat();
    std::vector<int32_t> narrow(values.begin(), values.end());
    void* const host = dtype == DType::Int64 ? const_cast<int64_t*>(values.data()) : static_cast<void*>(narrow.data());
    d.upload(Tensor(host, dtype, {t.numel()}), t);
    return t;
  }
  StepBlock* step() {
    memory_.push_back(arena_.allocate(sizeof(StepBlock), MemoryCategory::Workspace));
    auto* const at = static_cast<StepBlock*>(memory_.back().data());
    StepBlock block;
    block.learning_rate = 1e-4;
    d.upload_step(block, at);
    return at;
  }
  void clear() { memory_.clear(), noise_.clear(); }

  /// Seconds per call.
  double time(const std::function<void()>& call) {
    const auto batch = [&](int calls) {
      d.synchronize();
      const Stopwatch watch;
      for (int i = 0; i < calls; ++i) call();
      d.synchronize();
      return watch.elapsed_s() / calls;
    };
    batch(1);
    const int calls = std::max(1, static_cast<int>(std::ceil(sizes.batch_s / batch(1))));
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(batch(calls));
    std::sort(times.begin(), times.end());
    return times[2];
  }
  void flops(const char* what, double operations, const std::function<void()>& call) {
    const double s = time(call), rate = operations / s;
    if (gemm_rate < rate) gemm_rate = rate;
    std::printf("| %-62s | %9.3f ms | %7.1f TFLOP/s, %3.0f %% of gemm |\n", what, 1e3 * s, rate * 1e-12,
                100 * rate / gemm_rate);
    std::fflush(stdout);
  }
  void bytes(const char* what, double moved, const std::function<void()>& call) {
    const double s = time(call), rate = moved / s;
    if (copy_rate == 0) copy_rate = rate;
    std::printf("| %-62s | %9.3f ms | %7.0f GB/s, %3.0f %% of copy |\n", what, 1e3 * s, rate * 1e-9,
                100 * rate / copy_rate);
    std::fflush(stdout);
  }

  DiscreteDevice& d;
  const Sizes& sizes;
  double copy_rate = 0;
  double gemm_rate = 0;  ///< the fastest so far

 private:
  Arena arena_;
  std::vector<Buffer> memory_;
  std::vector<float> noise_;
  Tensor sent_;
};

void measure_gemm(Bench& b) {
  const auto product = [&](const char* what, DType in, DType out, int64_t side, Gemm g) {
    const int64_t n = side / b.sizes.divide_seq;
    g.a = b.random(in, n, n), g.b = b.random(in, n, n), g.c = b.random(out, n, n);
    const auto size = static_cast<double>(n);
    b.flops(what, 2 * size * size * size, [&] { b.d.gemm(g); });
    b.clear();
  };
  Gemm forward{}, gradient{};
  forward.transpose_b = Transpose::Yes;
  gradient.transpose_a = Transpose::Yes;
  gradient.accumulate = Accumulate::Yes;
  product("gemm bf16 8192^3, x W^T", DType::BFloat16, DType::BFloat16, 8192, forward);
  product("gemm bf16 4096^3, x W^T", DType::BFloat16, DType::BFloat16, 4096, forward);
  product("gemm bf16 8192^3, dy W", DType::BFloat16, DType::BFloat16, 8192, {});
  product("gemm bf16 8192^3, dW += dy^T x in fp32", DType::BFloat16, DType::Float32, 8192, gradient);
  product("gemm fp16 8192^3, x W^T", DType::Float16, DType::Float16, 8192, forward);
  product("gemm fp32 4096^3, x W^T", DType::Float32, DType::Float32, 4096, forward);
}

void measure_attention(Bench& b, const char* what, DType dtype, int64_t batch, int64_t seq, int64_t heads,
                       int64_t kv_heads, int64_t dim, double dropout) {
  batch = (batch + b.sizes.divide_heads - 1) / b.sizes.divide_heads;
  seq /= b.sizes.divide_seq;
  heads /= b.sizes.divide_heads;
  kv_heads = std::max<int64_t>(1, kv_heads / b.sizes.divide_heads);
  const int64_t rows = batch * seq, q_cols = heads * dim, kv_cols = kv_heads * dim;
  const Tensor qkv = b.random(dtype, rows, q_cols + 2 * kv_cols), dqkv = b.tensor(dtype, rows, q_cols + 2 * kv_cols);
  const Tensor dout = b.random(dtype, rows, q_cols), o = b.tensor(dtype, rows, q_cols);
  const Tensor lse = b.tensor(DType::Float32, heads, rows).flat();
  std::vector<int64_t> sample, position;
  for (int64_t i = 0; i < batch; ++i) sample.push_back(i);
  for (int64_t r = 0; r < rows; ++r) position.push_back(r / batch);
  Attention args{batch, seq, heads, kv_heads, dim, 0, 1 / std::sqrt(static_cast<double>(dim)), {}, {}};
  args.dropout = {dropout, 1, 3, b.step()};
  args.index = {b.integers(DType::Int64, sample), b.integers(DType::Int32, position)};
  const auto part = [&](const Tensor& t, int i) {
    const int64_t ends[] = {0, q_cols, q_cols + kv_cols, q_cols + 2 * kv_cols};
    return t.col_slice(ends[i], ends[i + 1]);
  };
  const double forward =
      2.0 * static_cast<double>(batch * heads * dim) * static_cast<double>(seq) * static_cast<double>(seq);
  b.flops((std::string(what) + ", forward").c_str(), forward,
          [&] { b.d.attention_forward(args, part(qkv, 0), part(qkv, 1), part(qkv, 2), o, lse); });
  b.flops((std::string(what) + ", backward").c_str(), 2.5 * forward, [&] {
    b.d.attention_backward(args, dout, part(qkv, 0), part(qkv, 1), part(qkv, 2), o, lse, part(dqkv, 0), part(dqkv, 1),
                           part(dqkv, 2));
  });
  b.clear();
}

void measure_layers(Bench& b) {
  const int64_t kRows = b.sizes.rows, kHidden = b.sizes.hidden;
  const double matrix = 2.0 * static_cast<double>(kRows * kHidden);  // bytes of a bf16 matrix
  const DType t = DType::BFloat16;
  const Tensor x = b.random(t, kRows, kHidden), y = b.tensor(t, kRows, kHidden), dy = b.random(t, kRows, kHidden);
  const Tensor gamma = b.random(t, 1, kHidden).flat(), beta = b.random(t, 1, kHidden).flat();
  const Tensor mean = b.tensor(DType::Float32, 1, kRows).flat(), rstd = b.tensor(DType::Float32, 1, kRows).flat();
  const Tensor dgamma = b.random(DType::Float32, 1, kHidden).flat(),
               dbeta = b.random(DType::Float32, 1, kHidden).flat();
  b.bytes("copy bf16, 268 MB to 268 MB", 2 * matrix, [&] { b.d.copy(x, y); });
  b.bytes("rms_norm_forward bf16 [32768, 4096]", 2 * matrix, [&] { b.d.rms_norm_forward(x, gamma, 1e-5, y, rstd); });
  b.bytes("rms_norm_backward", 3 * matrix,
          [&] { b.d.rms_norm_backward(dy, x, gamma, rstd, y, Accumulate::No, dgamma); });
  b.bytes("layer_norm_forward", 2 * matrix, [&] { b.d.layer_norm_forward(x, gamma, beta, 1e-5, y, mean, rstd); });
  b.bytes("layer_norm_backward", 3 * matrix,
          [&] { b.d.layer_norm_backward(dy, x, gamma, mean, rstd, y, Accumulate::No, dgamma, dbeta); });
  b.bytes("gelu_forward", 2 * matrix, [&] { b.d.gelu_forward(x, y); });
  b.bytes("gelu_backward", 3 * matrix, [&] { b.d.gelu_backward(dy, x, y); });
  const Tensor half = x.col_slice(0, kHidden / 2), dhalf = dy.col_slice(0, kHidden / 2);
  b.bytes("swiglu_forward bf16 [32768, 2048 of 4096]", 1.5 * matrix, [&] { b.d.swiglu_forward(x, half); });
  b.bytes("swiglu_backward", 2.5 * matrix, [&] { b.d.swiglu_backward(dhalf, x, y); });
  b.bytes("bias_backward", matrix, [&] { b.d.bias_backward(dy, dbeta); });
  std::vector<int64_t> positions;
  for (int64_t r = 0; r < kRows; ++r) positions.push_back(r / 8);
  const TokenIndex index{b.integers(DType::Int64, {0, 1, 2, 3, 4, 5, 6, 7}), b.integers(DType::Int32, positions)};
  const Dropout none{0, 1, 1, b.step()}, tenth{0.1, 1, 1, b.step()};
  b.bytes("bias_dropout_add_forward, p = 0", 3 * matrix,
          [&] { b.d.bias_dropout_add_forward(x, beta, dy, none, index, y); });
  b.bytes("bias_dropout_add_forward, p = 0.1", 3 * matrix,
          [&] { b.d.bias_dropout_add_forward(x, beta, dy, tenth, index, y); });
  b.bytes("bias_dropout_backward, p = 0.1, with dbias", 2 * matrix,
          [&] { b.d.bias_dropout_backward(dy, tenth, index, y, dbeta); });
  const Tensor cos = b.random(DType::Float32, kRows / 8, 64), sin = b.random(DType::Float32, kRows / 8, 64);
  b.bytes("rotary, 32 heads of 128", 2 * matrix,
          [&] { b.d.rotary(y, cos, sin, index.position, kHidden / 128, Device::RotaryDirection::Forward); });
  b.clear();
}

void measure_loss(Bench& b) {
  const int64_t kRows = b.sizes.loss_rows, kVocab = b.sizes.vocabulary, kHidden = b.sizes.hidden;
  const double matrix = 2.0 * static_cast<double>(kRows * kVocab), rows = 2.0 * static_cast<double>(kRows * kHidden);
  const Tensor logits = b.random(DType::BFloat16, kRows, kVocab);
  const auto statistics = [&] { return b.tensor(DType::Float32, 1, kRows).flat(); };
  const Tensor max = statistics(), sum = statistics(), hit = statistics();
  std::mt19937 generator(2);
  std::vector<int64_t> tokens;  // Zipf-like, as in text
  for (int64_t r = 0; r < kRows; ++r) {
    const double u = std::uniform_real_distribution<double>(0, 1)(generator);
    tokens.push_back(std::min<int64_t>(kVocab - 1, static_cast<int64_t>(std::pow(static_cast<double>(kVocab), u)) - 1));
  }
  const Tensor target = b.integers(DType::Int32, tokens);
  const StepBlock* const step = b.step();
  b.bytes("cross_entropy_max bf16 [8192, 50304]", matrix, [&] { b.d.cross_entropy_max(logits, kVocab, max); });
  b.bytes("cross_entropy_sum", matrix, [&] { b.d.cross_entropy_sum(logits, 0, kVocab, target, max, sum, hit); });
  b.bytes("cross_entropy_backward", 2 * matrix,
          [&] { b.d.cross_entropy_backward(logits, 0, kVocab, target, max, sum, {}, 1, step); });
  const Tensor table = b.random(DType::BFloat16, kVocab, kHidden), x = b.random(DType::BFloat16, kRows, kHidden);
  const Tensor dtable = b.random(DType::Float32, kVocab, kHidden);
  b.bytes("embedding_forward bf16 [8192, 4096]", 2 * rows,
          [&] { b.d.embedding_forward(target, table, 0, Accumulate::No, x); });
  b.bytes("embedding_backward into fp32 (bytes of dy alone)", rows,
          [&] { b.d.embedding_backward(target, x, 0, dtable); });
  b.clear();
}

void measure_optimizer(Bench& b) {
  const int64_t kN = b.sizes.flat;
  const auto n = static_cast<double>(kN);
  const auto flat = [&](DType dtype) { return b.random(dtype, 1, kN).flat(); };
  AdamW args{flat(DType::Float32), flat(DType::Float32), flat(DType::Float32), flat(DType::Float32),
             flat(DType::BFloat16)};
  b.d.fill(args.exp_avg_sq, 1);
  const StepBlock* const step = b.step();
  const Tensor out = b.tensor(DType::Float64, 1, 1).flat();
  b.d.fill(out, 0);
  b.bytes("adamw fp32 gradients, bf16 parameters, 2^28", 30 * n, [&] { b.d.adamw(args, step); });
  b.bytes("sum_of_squares fp32, 2^28", 4 * n, [&] { b.d.sum_of_squares(args.grad, out); });
  b.bytes("count_nonfinite fp32, 2^28", 4 * n, [&] { b.d.count_nonfinite(args.grad, out); });
  b.bytes("add bf16 to fp32, 2^28", 10 * n, [&] { b.d.add(args.param, args.grad); });
  b.clear();
}

void measure_compression(Bench& b) {
  const int64_t kN = b.sizes.flat, kTaken = kN / 100;
  const auto n = static_cast<double>(kN);
  const Tensor x = b.random(DType::Float32, 1, kN).flat(), residual = b.random(DType::Float32, 1, kN).flat();
  Compression& codes = *b.d.compression();
  const CodeSegment s{.count = kN, .row_length = kN, .block_length = 256};
  const auto code = [&](const char* what, Codec codec, double bytes) {
    const int64_t size = packed_bytes(codec, s);
    const Tensor packed = b.tensor(DType::UInt8, 1, size).flat();
    b.bytes(what, (12 + bytes) * n, [&] { codes.encode({codec, {&s, 1}, x, residual, packed, 127, {}}); });
    b.bytes("its inverse", (4 + bytes) * n, [&] { codes.decode(codec, {&s, 1}, packed, x, Decode::Store); });
  };
  code("int8 codes of 256 with error feedback, 2^28", Codec::Int8, 1.0 + 4.0 / 256);
  code("sign codes of 256 with error feedback, 2^28", Codec::Sign, 1.0 / 8 + 4.0 / 256);
  const TopK job{x, residual, b.tensor(DType::Float32, 1, kTaken).flat(), b.tensor(DType::Int32, 1, kTaken).flat(), 0};
  b.bytes("top 1 % with error feedback, 2^28 (28 bytes an element)", 28 * n, [&] { codes.top_k({&job, 1}); });
  b.clear();
}

}  // namespace
}  // namespace triax::kernels

int main(int argc, char** argv) {
  using namespace triax::kernels;
  const bool emulated = argc > 1 && std::strcmp(argv[1], "cuda-emulated") == 0;
  try {
    const auto device = make_cuda_device({}, emulated ? CudaModule::Emulated : CudaModule::Cuda);
    std::printf("%s\n", device->describe().c_str());
    {
      Bench b(*device, emulated ? kOfToy : kOfGpu);
      measure_layers(b);  // first: its copy is the measure of the others
      measure_gemm(b);
      measure_attention(b, "attention bf16 b=4 s=4096 a=32 d=128 causal", triax::DType::BFloat16, 4, 4096, 32, 32, 128,
                        0);
      measure_attention(b, "the same, 8 KV heads", triax::DType::BFloat16, 4, 4096, 32, 8, 128, 0);
      measure_attention(b, "the same, 32 KV heads, dropout 0.1", triax::DType::BFloat16, 4, 4096, 32, 32, 128, 0.1);
      measure_attention(b, "attention bf16 b=8 s=2048 a=32 d=64 causal", triax::DType::BFloat16, 8, 2048, 32, 32, 64,
                        0);
      measure_attention(b, "attention fp32 b=1 s=2048 a=16 d=64 causal", triax::DType::Float32, 1, 2048, 16, 16, 64, 0);
      measure_loss(b);
      measure_optimizer(b);
      measure_compression(b);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 5;
  }
  return 0;
}
