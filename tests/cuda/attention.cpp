// Flash attention on the GPU against the naive s x s computation in double: tensor cores and plain kernels, ragged
// sequences, grouped heads, dropout with the bits of kernels/dropout_key.h, and the same bits in two runs.
#include "kernels/dropout_key.h"
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

struct Shape {
  int64_t batch, seq, heads, kv_heads, dim;
};

/// One problem: q, k, v as column slices of one matrix, as the fused projection leaves them.
struct Problem {
  Shape s;
  Matrix qkv, dout, o, lse, dqkv, sample, position;
  StepBlock step;
  Attention args;

  Problem(DType dtype, const Shape& shape, double dropout, int64_t gap = 0)
      : s(shape),
        qkv(random_matrix(dtype, rows(), (s.heads + 2 * s.kv_heads) * s.dim, 11, 1, gap)),
        dout(random_matrix(dtype, rows(), s.heads * s.dim, 12, 1, gap)),
        o(dtype, rows(), s.heads * s.dim, gap),
        lse(DType::Float32, s.heads, rows()),
        dqkv(dtype, rows(), qkv.t.cols(), gap),
        sample(DType::Int64, 1, s.batch),
        position(DType::Int32, 1, rows()) {
    for (int64_t i = 0; i < s.batch; ++i) sample.set(0, i, static_cast<double>((int64_t{1} << 33) + 7 * i));
    for (int64_t r = 0; r < rows(); ++r) position.set(0, r, static_cast<double>(r / s.batch));
    step.step = 5;
    args = {s.batch,
            s.seq,
            s.heads,
            s.kv_heads,
            s.dim,
            3,
            1 / std::sqrt(static_cast<double>(s.dim)),
            {dropout, 99, 13, &step},
            {sample.vec(), position.vec()}};
  }
  int64_t rows() const { return s.batch * s.seq; }
  Tensor q(const Matrix& m) const { return m.t.col_slice(0, s.heads * s.dim); }
  Tensor k(const Matrix& m) const { return m.t.col_slice(s.heads * s.dim, (s.heads + s.kv_heads) * s.dim); }
  Tensor v(const Matrix& m) const { return m.t.col_slice((s.heads + s.kv_heads) * s.dim, m.t.cols()); }
  void forward() { mirrored().attention_forward(args, q(qkv), k(qkv), v(qkv), o.t, lse.t.flat()); }
  void backward() {
    mirrored().attention_backward(args, dout.t, q(qkv), k(qkv), v(qkv), o.t, lse.t.flat(), q(dqkv), k(dqkv), v(dqkv));
  }
};

struct Reference {
  std::vector<double> o, lse, dqkv;
};

/// What dropout multiplies the score of (query row t, key row u) by.
double mask_of(const Problem& p, int64_t sample, int64_t head, int64_t t, int64_t u) {
  const double drop = p.args.dropout.p;
  if (drop == 0) return 1;
  const DropoutKey key = dropout_key(p.args.dropout.seed, p.step.step, p.args.dropout.site);
  const auto at = [&](int64_t row) { return static_cast<int64_t>(p.position.at(row * p.s.batch + sample)); };
  const bool keeps = dropout_keeps(key, dropout_threshold(drop), static_cast<int64_t>(p.sample.at(sample)), at(t),
                                   p.args.head_begin + head, at(u));
  return keeps ? 1 / (1 - drop) : 0;
}

/// One head of one sample, naive, by the chain rule through the whole s x s matrix.
void naive_head(const Problem& p, int64_t i, int64_t j, Reference& ref) {
  const Shape& s = p.s;
  const int64_t width = p.qkv.t.cols(), out_width = s.heads * s.dim;
  const int64_t qc = j * s.dim, kc = (s.heads + j * s.kv_heads / s.heads) * s.dim, vc = kc + s.kv_heads * s.dim;
  const auto q = [&](int64_t t, int64_t c) { return p.qkv.at(t * s.batch + i, c); };
  for (int64_t t = 0; t < s.seq; ++t) {
    const int64_t r = t * s.batch + i;
    std::vector<double> prob(static_cast<size_t>(t + 1)), dp(prob.size()), mask(prob.size());
    double max = -1e300, sum = 0, delta = 0;
    for (int64_t u = 0; u <= t; ++u) {
      double score = 0;
      for (int64_t c = 0; c < s.dim; ++c) score += q(t, qc + c) * q(u, kc + c);
      max = std::max(max, prob[static_cast<size_t>(u)] = score * p.args.scale);
    }
    for (const double v : prob) sum += std::exp(v - max);
    const double lse = max + std::log(sum);
    ref.lse[static_cast<size_t>(j * p.rows() + r)] = lse;
    for (int64_t u = 0; u <= t; ++u) {
      const auto x = static_cast<size_t>(u);
      prob[x] = std::exp(prob[x] - lse);
      mask[x] = mask_of(p, i, j, t, u);
      for (int64_t c = 0; c < s.dim; ++c) {
        const double g = p.dout.at(r, qc + c);
        ref.o[static_cast<size_t>(r * out_width + qc + c)] += prob[x] * mask[x] * q(u, vc + c);
        ref.dqkv[static_cast<size_t>((u * s.batch + i) * width + vc + c)] += prob[x] * mask[x] * g;
        dp[x] += g * q(u, vc + c) * mask[x];
      }
      delta += prob[x] * dp[x];
    }
    for (int64_t u = 0; u <= t; ++u) {
      const double ds = prob[static_cast<size_t>(u)] * (dp[static_cast<size_t>(u)] - delta) * p.args.scale;
      for (int64_t c = 0; c < s.dim; ++c) {
        ref.dqkv[static_cast<size_t>(r * width + qc + c)] += ds * q(u, kc + c);
        ref.dqkv[static_cast<size_t>((u * s.batch + i) * width + kc + c)] += ds * q(t, qc + c);
      }
    }
  }
}

Reference naive(const Problem& p) {
  Reference ref;
  ref.o.assign(static_cast<size_t>(p.rows() * p.s.heads * p.s.dim), 0);
  ref.lse.assign(static_cast<size_t>(p.s.heads * p.rows()), 0);
  ref.dqkv.assign(static_cast<size_t>(p.rows() * p.qkv.t.cols()), 0);
  for (int64_t i = 0; i < p.s.batch; ++i) {
    for (int64_t j = 0; j < p.s.heads; ++j) naive_head(p, i, j, ref);
  }
  return ref;
}

void check(Problem& p, DType dtype, const std::string& more) {
  const Reference want = naive(p);
  p.forward();
  p.backward();
  const std::string what = std::string(name_of(dtype)) + " b=" + std::to_string(p.s.batch) +
                           " s=" + std::to_string(p.s.seq) + " d=" + std::to_string(p.s.dim) +
                           " heads=" + std::to_string(p.s.heads) + "/" + std::to_string(p.s.kv_heads) + more;
  // Probabilities are rounded to the tensor's type before they multiply v.
  expect_close(p.o, want.o, 1e-5 + 3 * unit(dtype), what + " o");
  expect_close(p.lse, want.lse, 1e-5, what + " lse");
  // So are ds and p before they multiply k, q and dout; delta takes the rounded o.
  expect_close(p.dqkv, want.dqkv, 1e-4 + 8 * unit(dtype), what + " dq dk dv");
}

TEST(CudaAttention, PlainKernelsMatchTheNaiveComputation) {
  for (const Shape& shape :
       {Shape{1, 1, 1, 1, 16}, Shape{2, 33, 4, 2, 80}, Shape{1, 67, 2, 1, 5}, Shape{1, 40, 1, 1, 128}}) {
    for (const double dropout : {0.0, 0.3}) {
      Problem p(DType::Float32, shape, dropout);
      check(p, DType::Float32, dropout > 0 ? " dropout" : "");
    }
  }
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    Problem odd(dtype, {1, 37, 2, 2, 20}, 0.1);  // not a multiple of 8
    check(odd, dtype, " d % 8");
    Problem unaligned(dtype, {1, 37, 2, 2, 32}, 0.1, 3);
    check(unaligned, dtype, " unaligned");
  }
}

TEST(CudaAttention, TensorCoresMatchTheNaiveComputation) {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    for (const Shape& shape : {Shape{1, 1, 1, 1, 64}, Shape{2, 100, 4, 1, 64}, Shape{1, 130, 2, 2, 80},
                               Shape{1, 64, 1, 1, 96}, Shape{2, 67, 2, 1, 128}, Shape{1, 65, 1, 1, 16}}) {
      for (const double dropout : {0.0, 0.3}) {
        Problem p(dtype, shape, dropout, 8);
        check(p, dtype, dropout > 0 ? " tensor cores, dropout" : " tensor cores");
      }
    }
  }
  if (is_emulated()) return;
  for (const Shape& shape : {Shape{2, 1000, 8, 2, 128}, Shape{1, 777, 4, 4, 64}, Shape{1, 513, 6, 3, 96}}) {
    Problem p(DType::BFloat16, shape, 0.1);
    check(p, DType::BFloat16, " large");
  }
}

/// Forward and backward take the kernels for Hopper where the GPU is one, and not where the common ones are asked for.
void check_kernels(DType dtype, const Shape& shape, double dropout, AttentionKernels kernels) {
  const bool hopper = cuda_device().describe().find("compute capability 9.0") != std::string::npos;
  const int64_t before = cuda_device().special_calls().hopper_attention;
  Problem p(dtype, shape, dropout, 8);
  cuda_device().set_attention_kernels(kernels);
  check(p, dtype, kernels == AttentionKernels::Best ? " best kernels" : " common kernels");
  cuda_device().set_attention_kernels(AttentionKernels::Best);
  EXPECT_EQ(cuda_device().special_calls().hopper_attention - before,
            hopper && kernels == AttentionKernels::Best ? 2 : 0);
}

TEST(CudaAttention, HopperKernelsAndCommonOnesHoldTheSameBound) {
  // Three steps of 128 keys, ragged; several query heads to a key head; every padded head dimension.
  for (const Shape& shape : {Shape{1, 300, 2, 1, 64}, Shape{2, 150, 2, 2, 80}, Shape{1, 129, 1, 1, 96},
                             Shape{1, 200, 2, 1, 128}, Shape{3, 5, 2, 1, 8}}) {
    check_kernels(DType::BFloat16, shape, 0, AttentionKernels::Best);
  }
  for (const AttentionKernels kernels : {AttentionKernels::Best, AttentionKernels::Common}) {
    check_kernels(DType::Float16, {1, 140, 2, 1, 128}, 0, kernels);
    check_kernels(DType::BFloat16, {2, 130, 2, 1, 64}, 0.3, kernels);
  }
}

TEST(CudaAttention, DropoutFollowsThePositionsGiven) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    Problem p(dtype, {2, 70, 2, 1, 64}, 0.4);
    // Not consecutive, and not from a multiple of four: the score by score path.
    for (int64_t r = 0; r < p.rows(); ++r) {
      p.position.set(0, r, static_cast<double>(3 + r / 2 + (r / 2 > 20 ? 2 : 0)));
    }
    check(p, dtype, " positions");
    Problem shifted(dtype, {1, 70, 2, 1, 64}, 0.4);  // a later part of a sequence: consecutive from a multiple of four
    for (int64_t r = 0; r < 70; ++r) shifted.position.set(0, r, static_cast<double>(1024 + r));
    check(shifted, dtype, " shifted positions");
  }
}

TEST(CudaAttention, TwoRunsHaveTheSameBits) {
  const Shape shape = is_emulated() ? Shape{1, 100, 4, 2, 64} : Shape{4, 2048, 16, 4, 128};
  std::vector<std::vector<char>> results;
  for (int run = 0; run < 2; ++run) {
    Problem p(DType::BFloat16, shape, 0.1);
    p.forward();
    p.backward();
    results.push_back(p.o.bytes());
    results.push_back(p.dqkv.bytes());
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

TEST(CudaAttention, RefusesHeadsThatAreTooWide) {
  Problem p(DType::BFloat16, {1, 4, 1, 1, 136}, 0);
  try {
    p.forward();
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("136"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("128"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace triax::kernels::testing
