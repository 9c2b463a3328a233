// Flash attention against the naive s x s computation in double: values, gradients, dropout, layouts and slices.
#include "kernels/cpu/cpu_device.h"
#include "kernels/dropout_key.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

struct Shape {
  int64_t batch, seq, heads, kv_heads, dim;
};

/// One problem: q, k, v as column slices of one matrix, as the fused projection leaves them.
struct Problem {
  Shape s;
  DType dtype;
  Matrix qkv, dout, o, lse, dqkv;
  Matrix sample, position;
  StepBlock step;
  Attention args;

  Problem(DType type, const Shape& shape, double dropout)
      : s(shape),
        dtype(type),
        qkv(random_matrix(type, rows(), (s.heads + 2 * s.kv_heads) * s.dim, 11)),
        dout(random_matrix(type, rows(), s.heads * s.dim, 12)),
        o(type, rows(), s.heads * s.dim, 3),
        lse(statistics_type(type), s.heads, rows()),
        dqkv(type, rows(), qkv.t.cols(), 5),
        sample(DType::Int64, 1, s.batch),
        position(DType::Int32, 1, rows()) {
    for (int64_t i = 0; i < s.batch; ++i) sample.set(0, i, static_cast<double>(1000 + 7 * i));
    for (int64_t r = 0; r < rows(); ++r) position.set(0, r, static_cast<double>(r / s.batch));
    step.step = 5;
    args.batch = s.batch;
    args.seq_length = s.seq;
    args.heads = s.heads;
    args.kv_heads = s.kv_heads;
    args.head_dim = s.dim;
    args.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    args.dropout = {dropout, 99, 13, &step};
    args.index = {sample.vec(), position.vec()};
  }
  int64_t rows() const { return s.batch * s.seq; }
  Tensor q(const Matrix& m) const { return m.t.col_slice(0, s.heads * s.dim); }
  Tensor k(const Matrix& m) const { return m.t.col_slice(s.heads * s.dim, (s.heads + s.kv_heads) * s.dim); }
  Tensor v(const Matrix& m) const { return m.t.col_slice((s.heads + s.kv_heads) * s.dim, m.t.cols()); }
  void forward(Device& device) { device.attention_forward(args, q(qkv), k(qkv), v(qkv), o.t, lse.t); }
  void backward(Device& device) {
    device.attention_backward(args, dout.t, q(qkv), k(qkv), v(qkv), o.t, lse.t, q(dqkv), k(dqkv), v(dqkv));
  }
};

struct Reference {
  std::vector<double> o, lse, dqkv;
};

/// Naive, in double, from the stored inputs; gradients by the chain rule through the whole s x s matrix.
Reference naive(const Problem& p) {
  const Shape& s = p.s;
  const int64_t width = p.qkv.t.cols(), out_width = s.heads * s.dim;
  Reference ref;
  ref.o.assign(static_cast<size_t>(p.rows() * out_width), 0);
  ref.lse.assign(static_cast<size_t>(s.heads * p.rows()), 0);
  ref.dqkv.assign(static_cast<size_t>(p.rows() * width), 0);
  const double keep = 1 / (1 - p.args.dropout.p);
  const DropoutKey key = dropout_key(p.args.dropout.seed, p.step.step, p.args.dropout.site);
  const uint32_t threshold = dropout_threshold(p.args.dropout.p);
  std::vector<double> prob(static_cast<size_t>(s.seq)), mask(prob), dp(prob);
  for (int64_t i = 0; i < s.batch; ++i) {
    for (int64_t j = 0; j < s.heads; ++j) {
      const int64_t qc = j * s.dim, kc = (s.heads + j * s.kv_heads / s.heads) * s.dim, vc = kc + s.kv_heads * s.dim;
      for (int64_t t = 0; t < s.seq; ++t) {
        const int64_t r = t * s.batch + i;
        double sum = 0, delta = 0, max = -1e300;
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t c = 0; c < s.dim; ++c) score += p.qkv.at(r, qc + c) * p.qkv.at(u * s.batch + i, kc + c);
          prob[static_cast<size_t>(u)] = score * p.args.scale;
          max = std::max(max, score * p.args.scale);
        }
        for (int64_t u = 0; u <= t; ++u) sum += std::exp(prob[static_cast<size_t>(u)] - max);
        const double lse = max + std::log(sum);
        ref.lse[static_cast<size_t>(j * p.rows() + r)] = lse;
        for (int64_t u = 0; u <= t; ++u) {
          const auto x = static_cast<size_t>(u);
          prob[x] = std::exp(prob[x] - lse);
          mask[x] = p.args.dropout.p == 0 ? 1
                    : dropout_keeps(key, threshold, static_cast<int64_t>(p.sample.at(i)),
                                    static_cast<int64_t>(p.position.at(r)), p.args.head_begin + j,
                                    static_cast<int64_t>(p.position.at(u * s.batch + i)))
                        ? keep
                        : 0;
          dp[x] = 0;
          for (int64_t c = 0; c < s.dim; ++c) {
            const double v = p.qkv.at(u * s.batch + i, vc + c), g = p.dout.at(r, qc + c);
            ref.o[static_cast<size_t>(r * out_width + qc + c)] += prob[x] * mask[x] * v;
            ref.dqkv[static_cast<size_t>((u * s.batch + i) * width + vc + c)] += prob[x] * mask[x] * g;
            dp[x] += g * v * mask[x];
          }
          delta += prob[x] * dp[x];
        }
        for (int64_t u = 0; u <= t; ++u) {
          const auto x = static_cast<size_t>(u);
          const double ds = prob[x] * (dp[x] - delta) * p.args.scale;
          for (int64_t c = 0; c < s.dim; ++c) {
            ref.dqkv[static_cast<size_t>(r * width + qc + c)] += ds * p.qkv.at(u * s.batch + i, kc + c);
            ref.dqkv[static_cast<size_t>((u * s.batch + i) * width + kc + c)] += ds * p.qkv.at(r, qc + c);
          }
        }
      }
    }
  }
  return ref;
}

void check(Device& device, const std::string& isa, DType dtype, const Shape& shape, double dropout) {
  Problem p(dtype, shape, dropout);
  const Reference want = naive(p);
  p.forward(device);
  p.backward(device);
  const double single = dtype == DType::Float64 ? 1e-13 : 1e-5;
  const std::string what = label(isa, dtype) + " s=" + std::to_string(shape.seq) + " d=" + std::to_string(shape.dim) +
                           " heads=" + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads);
  expect_close(p.o, want.o, single + 2 * unit(dtype), what + " o");
  expect_close(p.lse, want.lse, single, what + " lse");
  // D = rowsum(do * o) uses the stored o, whose rounding enters the gradients as often as there are columns.
  expect_close(p.dqkv, want.dqkv, 10 * single + 8 * unit(dtype), what + " dq dk dv");
}

TEST(Attention, MatchesTheNaiveComputation) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const Shape& shape :
         {Shape{1, 1, 1, 1, 16}, Shape{2, 7, 2, 1, 64}, Shape{2, 33, 4, 1, 80}, Shape{1, 64, 2, 2, 96},
          Shape{2, 100, 8, 2, 16}, Shape{1, 130, 2, 1, 128}, Shape{1, 67, 1, 1, 5}}) {
      for (const double dropout : {0.0, 0.3}) check(device, isa, DType::Float64, shape, dropout);
      check(device, isa, DType::Float32, shape, 0.1);
    }
    check(device, isa, DType::BFloat16, {2, 100, 4, 1, 64}, 0.1);
    check(device, isa, DType::Float16, {1, 70, 2, 2, 80}, 0);
  });
}

TEST(Attention, GradientsAreDifferencesOfTheForwardPass) {
  const auto device = make_cpu_device({2});
  const Shape shape{2, 70, 4, 2, 16};
  Problem p(DType::Float64, shape, 0.2);
  p.forward(*device);
  p.backward(*device);
  const auto loss = [&](int64_t r, int64_t c, double to) {
    Problem moved(DType::Float64, shape, 0.2);
    moved.qkv.set(r, c, to);
    moved.forward(*device);
    double sum = 0;
    for (int64_t i = 0; i < moved.o.t.numel(); ++i) sum += moved.o.at(i) * p.dout.at(i);
    return sum;
  };
  for (int64_t n = 0; n < 24; ++n) {
    const int64_t r = (n * 37) % p.rows(), c = (n * 29) % p.qkv.t.cols();
    const double x = p.qkv.at(r, c), h = 1e-3;
    const double slope =
        (8 * (loss(r, c, x + h) - loss(r, c, x - h)) - (loss(r, c, x + 2 * h) - loss(r, c, x - 2 * h))) / (12 * h);
    EXPECT_NEAR(p.dqkv.at(r, c), slope, 1e-9) << r << ", " << c;
  }
}

TEST(Attention, HeadsAndSamplesOfASliceHaveTheSameBits) {
  const auto device = make_cpu_device({1});
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16}) {
    const Shape whole{3, 90, 4, 2, 32};
    Problem p(dtype, whole, 0.25);
    p.forward(*device);
    p.backward(*device);
    // Sample 1 and KV head 1 (query heads 2 and 3) alone.
    Problem part(dtype, {1, 90, 2, 1, 32}, 0.25);
    part.args.head_begin = 2;
    part.sample.set(0, 0, p.sample.at(1));
    for (int64_t t = 0; t < 90; ++t) {
      for (int64_t c = 0; c < 64; ++c) {
        part.qkv.set(t, c, p.qkv.at(t * 3 + 1, 64 + c));
        part.dout.set(t, c, p.dout.at(t * 3 + 1, 64 + c));
      }
      for (int64_t c = 0; c < 32; ++c) {
        part.qkv.set(t, 64 + c, p.qkv.at(t * 3 + 1, 128 + 32 + c));
        part.qkv.set(t, 96 + c, p.qkv.at(t * 3 + 1, 192 + 32 + c));
      }
    }
    part.forward(*device);
    part.backward(*device);
    for (int64_t t = 0; t < 90; ++t) {
      for (int64_t c = 0; c < 64; ++c) {
        ASSERT_EQ(part.o.at(t, c), p.o.at(t * 3 + 1, 64 + c)) << name_of(dtype);
        ASSERT_EQ(part.dqkv.at(t, c), p.dqkv.at(t * 3 + 1, 64 + c)) << name_of(dtype);
      }
      for (int64_t c = 0; c < 32; ++c) {
        ASSERT_EQ(part.dqkv.at(t, 64 + c), p.dqkv.at(t * 3 + 1, 160 + c)) << name_of(dtype);
        ASSERT_EQ(part.dqkv.at(t, 96 + c), p.dqkv.at(t * 3 + 1, 224 + c)) << name_of(dtype);
      }
    }
  }
}

TEST(Attention, DropoutFollowsThePositionsGiven) {
  for_each_isa([](Device& device, const std::string& isa) {
    Problem p(DType::Float64, {2, 70, 1, 1, 16}, 0.4);
    // Not consecutive, and not from a multiple of four: the element-wise path.
    for (int64_t r = 0; r < p.rows(); ++r)
      p.position.set(0, r, static_cast<double>(3 + (r / 2) + (r / 2 > 20 ? 2 : 0)));
    const Reference want = naive(p);
    p.forward(device);
    p.backward(device);
    expect_close(p.o, want.o, 1e-13, isa);
    expect_close(p.dqkv, want.dqkv, 1e-12, isa);
  });
}

TEST(Attention, BitsDoNotDependOnThreads) {
  for (const DType dtype : {DType::Float64, DType::Float32, DType::BFloat16}) {
    for (const Shape& shape : {Shape{1, 300, 3, 1, 32}, Shape{5, 100, 4, 4, 16}}) {
      Problem a(dtype, shape, 0.1);
      const auto one = make_cpu_device({1});
      a.forward(*one);
      a.backward(*one);
      for (const int threads : {2, 3, 7}) {
        Problem b(dtype, shape, 0.1);
        const auto many = make_cpu_device({threads});
        b.forward(*many);
        b.backward(*many);
        EXPECT_EQ(a.o.bytes(), b.o.bytes()) << threads << " threads";
        EXPECT_EQ(a.lse.bytes(), b.lse.bytes()) << threads << " threads";
        EXPECT_EQ(a.dqkv.bytes(), b.dqkv.bytes()) << threads << " threads";
      }
    }
  }
}

TEST(Attention, MemoryGrowsWithTheSequenceNotItsSquare) {
  std::vector<int64_t> peak;
  for (const int64_t seq : {512, 1024}) {
    CpuDevice device({1});
    Problem p(DType::Float32, {1, seq, 1, 1, 16}, 0);
    p.forward(device);
    p.backward(device);
    peak.push_back(device.workspace().ledger().peak_total);
    EXPECT_EQ(device.workspace().ledger().live_total, 0);
  }
  EXPECT_LE(peak[1], 2 * peak[0]);
}

}  // namespace
}  // namespace triax::kernels::testing
