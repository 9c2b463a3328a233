// Every kernel beside the CPU device on the same inputs, random ragged shapes (others for each TRIAX_SHAPES_SEED),
// aligned and not: the largest error against the same operation in fp64, relative to the largest magnitude of the
// tensor, is within 1e-5 (fp32) or 1e-2 (16-bit types) and at most twice the CPU's own.
#include <map>

#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

/// Outputs of an operation by name.
using Outputs = std::vector<std::pair<std::string, Matrix>>;

/// Inputs of one call: values of `stored`, computed with in `computed` (fp64 for the reference).
class Call {
 public:
  Call(Device& device, DType stored, DType computed, uint64_t seed)
      : d(device), dtype(computed), statistics(statistics_type(computed)), stored_(stored), seed_(seed) {}
  /// A number of this call's shapes.
  int64_t any(int64_t low, int64_t high) {
    const uint32_t word = philox4x32({++drawn_, 0, 0, 0}, {static_cast<uint32_t>(seed_), 9})[0];
    return low + static_cast<int64_t>(word % static_cast<uint32_t>(high - low + 1));
  }
  Matrix random(int64_t rows, int64_t cols, double size = 1, int64_t gap = 0) {
    return made(stored_, dtype, rows, cols, size, gap);
  }
  /// Statistics, sums of gradients, master weights: fp32.
  Matrix random_wide(int64_t rows, int64_t cols, double size = 1) {
    return made(DType::Float32, statistics, rows, cols, size, 0);
  }
  Matrix zeros(int64_t rows, int64_t cols, int64_t gap = 0) const { return Matrix(dtype, rows, cols, gap); }
  Matrix zeros_wide(int64_t cols) const { return Matrix(statistics, 1, cols); }
  Matrix integers(DType type, int64_t n, int64_t low, int64_t high) {
    Matrix m(type, 1, n);
    for (int64_t i = 0; i < n; ++i) m.set(0, i, static_cast<double>(any(low, high)));
    return m;
  }

  Device& d;
  const DType dtype, statistics;
  StepBlock step{.step = 4, .update = 3, .learning_rate = 1e-2, .loss_scale = 2, .grad_scale = 0.5};

 private:
  Matrix made(DType stored, DType computed, int64_t rows, int64_t cols, double size, int64_t gap) {
    const Matrix values = random_matrix(stored, rows, cols, seed_ * 100 + ++tensors_, size);
    Matrix m(computed, rows, cols, gap);
    for (int64_t i = 0; i < rows * cols; ++i) m.set(i / cols, i % cols, values.at(i));
    return m;
  }
  DType stored_;
  uint64_t seed_, tensors_ = 0;
  uint32_t drawn_ = 0;
};

using Operation = Outputs (*)(Call&);

Outputs gemm(Call& c) {
  const int64_t m = c.any(1, 70), n = c.any(1, 70), k = c.any(1, 90), gap = c.any(0, 1) * 8;
  const bool ta = c.any(0, 1) == 1, tb = c.any(0, 1) == 1, accumulate = c.any(0, 1) == 1;
  const Matrix a = ta ? c.random(k, m, 1, gap) : c.random(m, k, 1, gap), b = tb ? c.random(n, k) : c.random(k, n);
  const Matrix bias = c.random(1, n);
  Matrix y = c.random(m, n);
  c.d.gemm({a.t, b.t, y.t, ta ? Transpose::Yes : Transpose::No, tb ? Transpose::Yes : Transpose::No,
            accumulate ? Accumulate::Yes : Accumulate::No, accumulate ? Tensor() : bias.vec()});
  return {{"c", y}};
}

Outputs weight_gradient(Call& c) {
  const int64_t rows = c.any(1, 100), m = c.any(1, 60), n = c.any(1, 60);
  const Matrix dy = c.random(rows, m), x = c.random(rows, n);
  Matrix dw = c.random_wide(m, n), dbias = c.random_wide(1, m);
  c.d.gemm({dy.t, x.t, dw.t, Transpose::Yes, Transpose::No, Accumulate::Yes});
  c.d.bias_backward(dy.t, dbias.vec());
  return {{"dw", dw}, {"dbias", dbias}};
}

Outputs products_and_more(Call& c) {
  const int64_t rows = c.any(1, 60), m = c.any(1, 9) * 8 + c.any(0, 1) * c.any(1, 7), k = c.any(1, 8) * 8;
  const Matrix x = c.random(rows, k), w = c.random(m, k, 0.3), bias = c.random(1, m), dy = c.random(rows, k);
  Matrix u = c.zeros(rows, m), y = c.zeros(rows, m), du = c.zeros(rows, m);
  Matrix dw = c.random_wide(m, k), dbias = c.random_wide(1, m);
  c.d.gemm_gelu({x.t, w.t, u.t, Transpose::No, Transpose::Yes, Accumulate::No, bias.vec()}, y.t);
  const Matrix before = c.random(rows, m), dz = c.random(rows, m);
  c.d.gemm_gelu_backward({dy.t, w.t, du.t, Transpose::No, Transpose::Yes}, before.t);
  c.d.gemm_bias_backward({dz.t, x.t, dw.t, Transpose::Yes, Transpose::No, Accumulate::Yes}, dbias.vec());
  return {{"u", u}, {"gelu(u)", y}, {"du", du}, {"dw", dw}, {"dbias", dbias}};
}

Outputs layer_norm(Call& c) {
  const int64_t rows = c.any(1, 300), cols = c.any(1, 20) * 8 + c.any(0, 1) * c.any(1, 7), gap = c.any(0, 1) * 8;
  const Matrix x = c.random(rows, cols, 2, gap), dy = c.random(rows, cols, 1, gap);
  const Matrix gamma = c.random(1, cols), beta = c.random(1, cols);
  Matrix y = c.zeros(rows, cols, gap), mean = c.zeros_wide(rows), rstd = c.zeros_wide(rows);
  Matrix dx = c.random(rows, cols, 1, gap), dgamma = c.random_wide(1, cols), dbeta = c.random_wide(1, cols);
  c.d.layer_norm_forward(x.t, gamma.vec(), beta.vec(), 1e-5, y.t, mean.vec(), rstd.vec());
  c.d.layer_norm_backward(dy.t, x.t, gamma.vec(), mean.vec(), rstd.vec(), dx.t, Accumulate::Yes, dgamma.vec(),
                          dbeta.vec());
  return {{"y", y}, {"mean", mean}, {"rstd", rstd}, {"dx", dx}, {"dgamma", dgamma}, {"dbeta", dbeta}};
}

Outputs rms_norm(Call& c) {
  const int64_t rows = c.any(1, 300), cols = c.any(1, 20) * 8 + c.any(0, 1) * c.any(1, 7);
  const Matrix x = c.random(rows, cols, 2), dy = c.random(rows, cols), gamma = c.random(1, cols);
  Matrix y = c.zeros(rows, cols), rstd = c.zeros_wide(rows), dx = c.zeros(rows, cols);
  Matrix dgamma = c.random_wide(1, cols);
  c.d.rms_norm_forward(x.t, gamma.vec(), 1e-5, y.t, rstd.vec());
  c.d.rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), dx.t, Accumulate::No, dgamma.vec());
  return {{"y", y}, {"rstd", rstd}, {"dx", dx}, {"dgamma", dgamma}};
}

Outputs rotary(Call& c) {
  const int64_t rows = c.any(1, 40), heads = c.any(1, 4), half = c.any(1, 20), dim = 2 * half + c.any(0, 6);
  Matrix x = c.random(rows, heads * dim);
  const Matrix cos = c.random_wide(64, half), sin = c.random_wide(64, half);
  const Matrix position = c.integers(DType::Int32, rows, 0, 63);
  c.d.rotary(x.t, cos.t, sin.t, position.vec(), heads, Device::RotaryDirection::Forward);
  return {{"x", x}};
}

Outputs gelu(Call& c) {
  const int64_t rows = c.any(1, 30), cols = c.any(1, 90);
  const Matrix x = c.random(rows, cols, 2), dy = c.random(rows, cols);
  Matrix y = c.zeros(rows, cols), dx = c.zeros(rows, cols);
  c.d.gelu_forward(x.t, y.t);
  c.d.gelu_backward(dy.t, x.t, dx.t);
  return {{"y", y}, {"dx", dx}};
}

Outputs swiglu(Call& c) {
  const int64_t rows = c.any(1, 30), f = c.any(1, 90);
  const Matrix x = c.random(rows, 2 * f, 2), dy = c.random(rows, f);
  Matrix y = c.zeros(rows, f), dx = c.zeros(rows, 2 * f);
  c.d.swiglu_forward(x.t, y.t);
  c.d.swiglu_backward(dy.t, x.t, dx.t);
  return {{"y", y}, {"dx", dx}};
}

Outputs bias_dropout(Call& c) {
  const int64_t batch = c.any(1, 3), rows = batch * c.any(1, 70), cols = c.any(1, 90);
  const Matrix x = c.random(rows, cols), residual = c.random(rows, cols), bias = c.random(1, cols);
  const Matrix sample = c.integers(DType::Int64, batch, 0, 1000), position = c.integers(DType::Int32, rows, 0, 1000);
  Matrix y = c.zeros(rows, cols), dx = c.zeros(rows, cols), dbias = c.random_wide(1, cols);
  const Dropout dropout{0.3, 5, 2, &c.step};
  const TokenIndex index{sample.vec(), position.vec()};
  c.d.bias_dropout_add_forward(x.t, bias.vec(), residual.t, dropout, index, y.t);
  c.d.bias_dropout_backward(residual.t, dropout, index, dx.t, dbias.vec());
  return {{"y", y}, {"dx", dx}, {"dbias", dbias}};
}

Outputs attention(Call& c) {
  const int64_t batch = c.any(1, 2), seq = c.any(2, 90), kv = c.any(1, 2), heads = kv * c.any(1, 2);
  const int64_t dim = c.any(1, 9) * 8, rows = batch * seq;
  const Matrix q = c.random(rows, heads * dim), k = c.random(rows, kv * dim), v = c.random(rows, kv * dim);
  const Matrix dout = c.random(rows, heads * dim);
  Matrix o = c.zeros(rows, heads * dim), lse(c.statistics, heads, rows);
  Matrix dq = c.zeros(rows, heads * dim), dk = c.zeros(rows, kv * dim), dv = c.zeros(rows, kv * dim);
  const Attention args{batch, seq, heads, kv, dim, 0, 1 / std::sqrt(static_cast<double>(dim)), {}, {}};
  c.d.attention_forward(args, q.t, k.t, v.t, o.t, lse.t);
  c.d.attention_backward(args, dout.t, q.t, k.t, v.t, o.t, lse.t, dq.t, dk.t, dv.t);
  return {{"o", o}, {"lse", lse}, {"dq", dq}, {"dk", dk}, {"dv", dv}};
}

Outputs embedding(Call& c) {
  const int64_t rows = c.any(1, 90), cols = c.any(1, 70), table_rows = c.any(1, 60);
  const Matrix token = c.integers(DType::Int32, rows, 0, 70), table = c.random(table_rows, cols);
  const Matrix dy = c.random(rows, cols);
  Matrix y = c.random(rows, cols), dtable = c.random_wide(table_rows, cols);
  c.d.embedding_forward(token.vec(), table.t, 3, Accumulate::Yes, y.t);
  c.d.embedding_backward(token.vec(), dy.t, 3, dtable.t);
  return {{"y", y}, {"dtable", dtable}};
}

Outputs cross_entropy(Call& c) {
  const int64_t rows = c.any(1, 20), cols = c.any(20, 900), valid = cols - c.any(0, 9);
  Matrix logits = c.random(rows, cols, 3), max = c.zeros_wide(rows), sum = c.zeros_wide(rows);
  Matrix picked = c.zeros_wide(rows), loss(DType::Float64, 1, 1);
  const Matrix target = c.integers(DType::Int32, rows, 0, valid - 1);
  c.d.cross_entropy_max(logits.t, valid, max.vec());
  c.d.cross_entropy_sum(logits.t, 0, valid, target.vec(), max.vec(), sum.vec(), picked.vec());
  c.d.cross_entropy_loss(max.vec(), sum.vec(), picked.vec(), {}, loss.vec());
  c.d.cross_entropy_backward(logits.t, 0, valid, target.vec(), max.vec(), sum.vec(), {}, 0.5, &c.step);
  return {{"max", max}, {"sum", sum}, {"picked", picked}, {"loss", loss}, {"dlogits", logits}};
}

Outputs elementwise(Call& c) {
  const int64_t rows = c.any(1, 40), cols = c.any(1, 90);
  const Matrix x = c.random(rows, cols, 3);
  Matrix wide(c.statistics, rows, cols), sum = c.random(rows, cols), scaled = c.random(rows, cols);
  Matrix filled = c.zeros(rows, cols), squares(DType::Float64, 1, 1);
  c.d.copy(x.t, wide.t);
  c.d.add(x.t, sum.t);
  c.d.scale(scaled.t, 0.3);
  c.d.fill(filled.t, 1.25);
  c.d.sum_of_squares(x.vec(), squares.vec());
  return {{"copy", wide}, {"add", sum}, {"scale", scaled}, {"fill", filled}, {"sum of squares", squares}};
}

Outputs optimizers(Call& c) {
  const int64_t n = c.any(1, 3000);
  const Matrix grad = c.random_wide(1, n);
  Matrix w = c.random_wide(1, n), m = c.random_wide(1, n, 0.1), v = c.zeros_wide(n);
  Matrix s = c.random_wide(1, n), buffer = c.random_wide(1, n);
  for (int64_t i = 0; i < n; ++i) v.set(0, i, 0.25 * static_cast<double>(i % 7));
  c.d.adamw({w.vec(), m.vec(), v.vec(), grad.vec(), {}, 0.9, 0.95, 1e-8, 0.1}, &c.step);
  c.d.sgd({s.vec(), buffer.vec(), grad.vec(), {}, 0.9, 0.1}, &c.step);
  return {{"adamw w", w}, {"adamw m", m}, {"adamw v", v}, {"sgd w", s}, {"sgd buffer", buffer}};
}

struct Worst {
  double gpu = 0, cpu = 0;
  uint64_t bits = 0xcbf29ce484222325;  // FNV-1a of the GPU's output
};

void add_bits(uint64_t& hash, const std::vector<char>& bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
}

double error_of(const Matrix& got, const Matrix& want) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < want.t.numel(); ++i) {
    worst = std::max(worst, std::isfinite(got.at(i)) ? std::abs(got.at(i) - want.at(i)) : INFINITY);
    largest = std::max(largest, std::abs(want.at(i)));
  }
  return worst / largest;
}

/// The largest errors over several random shapes.
std::map<std::string, Worst> errors_of(Operation operation, DType dtype, Device& cpu) {
  std::map<std::string, Worst> worst;
  constexpr uint64_t kShapes = 8;
  const uint64_t first = 1 + kShapes * shapes_seed();
  for (uint64_t seed = first; seed < first + kShapes; ++seed) {
    Call exact(cpu, dtype, DType::Float64, seed), host(cpu, dtype, dtype, seed), device(mirrored(), dtype, dtype, seed);
    const Outputs want = operation(exact), of_cpu = operation(host), of_gpu = operation(device);
    for (size_t i = 0; i < want.size(); ++i) {
      Worst& w = worst[want[i].first];
      w.cpu = std::max(w.cpu, error_of(of_cpu[i].second, want[i].second));
      w.gpu = std::max(w.gpu, error_of(of_gpu[i].second, want[i].second));
      add_bits(w.bits, of_gpu[i].second.bytes());
    }
  }
  return worst;
}

void check(const char* name, Operation operation) {
  const auto cpu = make_cpu_device({1});
  for (const DType dtype : kCudaTypes) {
    for (const auto& [output, worst] : errors_of(operation, dtype, *cpu)) {
      const std::string what = std::string(name) + " " + std::string(name_of(dtype)) + " " + output;
      EXPECT_LE(worst.gpu, dtype == DType::Float32 ? 1e-5 : 1e-2) << what;
      EXPECT_LE(worst.gpu, 2 * worst.cpu) << what << ": the CPU's own error is " << worst.cpu;
      // The hash is for scripts/check_emulated.sh: another order of warps has the same.
      std::printf("%-40s %.2e, %.2f of the CPU's, bits %016llx\n", what.c_str(), worst.gpu,
                  worst.cpu > 0 ? worst.gpu / worst.cpu : 0.0, static_cast<unsigned long long>(worst.bits));
    }
  }
}

TEST(CudaAccuracy, Gemm) { check("gemm", gemm); }
TEST(CudaAccuracy, WeightGradient) { check("weight gradient", weight_gradient); }
TEST(CudaAccuracy, ProductsAndWhatFollowsThem) { check("product", products_and_more); }
TEST(CudaAccuracy, LayerNorm) { check("layer norm", layer_norm); }
TEST(CudaAccuracy, RmsNorm) { check("rms norm", rms_norm); }
TEST(CudaAccuracy, Rotary) { check("rotary", rotary); }
TEST(CudaAccuracy, Gelu) { check("gelu", gelu); }
TEST(CudaAccuracy, SwiGlu) { check("swiglu", swiglu); }
TEST(CudaAccuracy, BiasDropout) { check("bias dropout", bias_dropout); }
TEST(CudaAccuracy, Attention) { check("attention", attention); }
TEST(CudaAccuracy, Embedding) { check("embedding", embedding); }
TEST(CudaAccuracy, CrossEntropy) { check("cross entropy", cross_entropy); }
TEST(CudaAccuracy, Elementwise) { check("elementwise", elementwise); }
TEST(CudaAccuracy, Optimizers) { check("optimizer", optimizers); }

}  // namespace
}  // namespace triax::kernels::testing
