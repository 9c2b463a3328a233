// Sharded equals serial, layer by layer, in fp64: each tp rank compares its part with the same layer on a group of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "comm/process_grid.h"
#include "comm/self_comm.h"
#include "parallel/linear.h"
#include "parallel/vocab_embedding.h"
#include "tests/mpi/mpi_world.h"

namespace triax::parallel {
namespace {

constexpr int64_t kSeq = 8, kBatch = 3, kTokens = kSeq * kBatch, kIn = 12, kOut = 20, kVocab = 101;
constexpr double kTolerance = 1e-12;

// [rows, cols] of normal values, the same on every rank.
struct Matrix {
  int64_t rows, cols;
  std::vector<double> values;
  Matrix(int64_t r, int64_t c, uint64_t stream = 0) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {
    if (stream == 0) return;
    for (size_t i = 0; i < values.size(); ++i) values[i] = normal_at(7, stream, i);
  }
  Tensor view() { return {values.data(), DType::Float64, {rows, cols}}; }
  Tensor vector() { return {values.data(), DType::Float64, {rows * cols}}; }
  // Rows [r0, r1) x columns [c0, c1) as a matrix of its own.
  Matrix block(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const {
    Matrix m(r1 - r0, c1 - c0);
    for (int64_t r = r0; r < r1; ++r) {
      std::copy_n(&values[static_cast<size_t>(r * cols + c0)], c1 - c0,
                  &m.values[static_cast<size_t>((r - r0) * m.cols)]);
    }
    return m;
  }
};

void expect_near(Tensor got, const Matrix& expected, const char* what) {
  ASSERT_EQ(got.numel(), expected.rows * expected.cols) << what;
  for (int64_t i = 0; i < got.numel(); ++i) {
    ASSERT_NEAR(got.as<double>()[i], expected.values[static_cast<size_t>(i)], kTolerance) << what << " element " << i;
  }
}

class Layers : public testing::TestWithParam<SequenceParallel> {
 protected:
  Layers() {
    comm::GridOptions options;
    options.shape.tensor = test::session().size();
    grid_ = std::make_unique<comm::ProcessGrid>(test::session(), options);
    arena_ = std::make_unique<Arena>(grid_->memory());
    device_ = kernels::make_cpu_device({1});
    sharded_ = context(grid_->tensor(), GetParam());
    serial_ = context(self_, SequenceParallel::No);
  }
  LayerContext context(comm::Communicator& tensor, SequenceParallel sp) {
    LayerContext c;
    c.device = device_.get();
    c.arena = arena_.get();
    c.tensor = &tensor;
    c.dtype = c.state_dtype = DType::Float64;
    c.sequence_parallel = sp;
    c.seq_length = kSeq;
    c.micro_batch = kBatch;
    c.step = &step_;
    return c;
  }
  int64_t t() const { return sharded_.t(); }
  int64_t rank() const { return sharded_.tensor->rank(); }
  // This rank's rows of a [T, n] matrix outside of tensor-parallel regions.
  Matrix local(const Matrix& m) const {
    return m.block(sharded_.local_begin(), sharded_.local_begin() + sharded_.local_tokens(), 0, m.cols);
  }

  HeapProvider heap_;
  comm::SelfCommunicator self_{"tp", heap_};
  std::unique_ptr<comm::ProcessGrid> grid_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<kernels::Device> device_;
  kernels::StepBlock step_;
  LayerContext sharded_, serial_;
};

Matrix matrix_of(Tensor t) {
  Matrix m(t.rows(), t.cols());
  std::copy_n(t.as<double>(), t.numel(), m.values.begin());
  return m;
}

TEST_P(Layers, ColumnParallelLinear_matches_serial_linear) {
  Matrix x(kTokens, kIn, 1), w(kOut, kIn, 2), b(1, kOut, 3), dy(kTokens, kOut, 4);
  Matrix dw(kOut, kIn), db(1, kOut);
  const ColumnParallelLinear serial(serial_), sharded(sharded_);
  const LinearWeights whole{w.view(), b.vector(), dw.view(), db.vector()};
  const Buffer y = serial.forward(whole, x.view());
  const Buffer dx = serial.backward_input(whole, dy.view());
  serial.backward_weight(whole, x.view(), dy.view());

  const int64_t n = kOut / t(), r0 = n * rank();
  Matrix wi = w.block(r0, r0 + n, 0, kIn), bi = b.block(0, 1, r0, r0 + n), dwi(n, kIn), dbi(1, n);
  Matrix xi = local(x), dyi = dy.block(0, kTokens, r0, r0 + n);
  const LinearWeights part{wi.view(), bi.vector(), dwi.view(), dbi.vector()};
  const Buffer yi = sharded.forward(part, xi.view());
  expect_near(yi.view(DType::Float64, {kTokens, n}),
              matrix_of(y.view(DType::Float64, {kTokens, kOut})).block(0, kTokens, r0, r0 + n), "y");
  const Buffer dxi = sharded.backward_input(part, dyi.view());
  expect_near(dxi.view(DType::Float64, {sharded_.local_tokens(), kIn}),
              local(matrix_of(dx.view(DType::Float64, {kTokens, kIn}))), "dx");
  sharded.backward_weight(part, xi.view(), dyi.view());
  expect_near(dwi.view(), dw.block(r0, r0 + n, 0, kIn), "dw");
  expect_near(dbi.vector(), db.block(0, 1, r0, r0 + n), "db");
}

TEST_P(Layers, RowParallelLinear_matches_serial_linear) {
  Matrix x(kTokens, kIn, 1), w(kOut, kIn, 2), dy(kTokens, kOut, 4), dw(kOut, kIn);
  const RowParallelLinear serial(serial_), sharded(sharded_);
  const LinearWeights whole{w.view(), {}, dw.view(), {}};
  const Buffer y = serial.forward(whole, x.view());
  const Buffer dx = serial.backward_input(whole, dy.view());
  serial.backward_weight(whole, x.view(), dy.view());

  const int64_t n = kIn / t(), c0 = n * rank();
  Matrix wi = w.block(0, kOut, c0, c0 + n), dwi(kOut, n), xi = x.block(0, kTokens, c0, c0 + n), dyi = local(dy);
  const LinearWeights part{wi.view(), {}, dwi.view(), {}};
  const Buffer yi = sharded.forward(part, xi.view());
  expect_near(yi.view(DType::Float64, {sharded_.local_tokens(), kOut}),
              local(matrix_of(y.view(DType::Float64, {kTokens, kOut}))), "y");
  const Buffer gathered = sharded.gather_output_gradient(dyi.view());
  ASSERT_EQ(static_cast<bool>(gathered), sharded_.sp());
  const Tensor dy_whole = gathered ? gathered.view(DType::Float64, {kTokens, kOut}) : dyi.view();
  const Buffer dxi = sharded.backward_input(part, dy_whole);
  expect_near(dxi.view(DType::Float64, {kTokens, n}),
              matrix_of(dx.view(DType::Float64, {kTokens, kIn})).block(0, kTokens, c0, c0 + n), "dx");
  sharded.backward_weight(part, xi.view(), dy_whole);
  expect_near(dwi.view(), dw.block(0, kOut, c0, c0 + n), "dw");
}

TEST_P(Layers, VocabParallelEmbedding_matches_serial_embedding) {
  const int64_t padded = 104;  // 101 is prime: the last rank holds padding
  Matrix table(padded, kIn, 1), dy(kTokens, kIn, 2), dtable(padded, kIn);
  std::vector<int32_t> ids(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>((i * 37 + 100) % kVocab);
  const Tensor token(ids.data(), DType::Int32, {kTokens});
  const VocabParallelEmbedding serial(serial_, vocab_range(kVocab, padded, 0, 1));
  const Buffer y = serial.forward(table.view(), token);
  serial.backward_weight(token, dy.view(), dtable.view());

  const VocabRange range = vocab_range(kVocab, padded, static_cast<int>(rank()), static_cast<int>(t()));
  const VocabParallelEmbedding sharded(sharded_, range);
  Matrix part = table.block(range.first, range.first + range.rows, 0, kIn), dpart(range.rows, kIn), dyi = local(dy);
  const Buffer yi = sharded.forward(part.view(), token);
  expect_near(yi.view(DType::Float64, {sharded_.local_tokens(), kIn}),
              local(matrix_of(y.view(DType::Float64, {kTokens, kIn}))), "y");
  sharded.backward_weight(token, dyi.view(), dpart.view());
  expect_near(dpart.view(), dtable.block(range.first, range.first + range.rows, 0, kIn), "dtable");
}

TEST_P(Layers, VocabParallelCrossEntropy_matches_serial_and_ignores_padding) {
  const int64_t padded = 104;
  Matrix logits(kTokens, padded, 1);
  for (int64_t r = 0; r < kTokens; ++r) {  // padding must not matter, however large
    for (int64_t c = kVocab; c < padded; ++c) logits.values[static_cast<size_t>(r * padded + c)] = 1e6;
  }
  std::vector<int32_t> ids(kTokens);
  std::vector<float> mask(kTokens, 1.0f);
  for (int64_t i = 0; i < kTokens; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>((i * 37 + 100) % kVocab);
  mask[3] = 0.0f;
  const Tensor target(ids.data(), DType::Int32, {kTokens}), keep(mask.data(), DType::Float32, {kTokens});

  double expected_loss = 0;
  Matrix gradient(kTokens, padded);
  for (int64_t r = 0; r < kTokens; ++r) {
    if (mask[static_cast<size_t>(r)] == 0.0f) continue;
    const double* row = &logits.values[static_cast<size_t>(r * padded)];
    double sum = 0;
    for (int64_t c = 0; c < kVocab; ++c) sum += std::exp(row[c]);
    const auto label = static_cast<size_t>(ids[static_cast<size_t>(r)]);
    expected_loss += std::log(sum) - row[label];
    for (int64_t c = 0; c < kVocab; ++c)
      gradient.values[static_cast<size_t>(r * padded + c)] = 0.5 * std::exp(row[c]) / sum;
    gradient.values[static_cast<size_t>(r * padded) + label] -= 0.5;
  }

  const VocabRange range = vocab_range(kVocab, padded, static_cast<int>(rank()), static_cast<int>(t()));
  const VocabParallelCrossEntropy sharded(sharded_, range);
  Matrix part = logits.block(0, kTokens, range.first, range.first + range.rows);
  double loss = 0;
  const auto saved = sharded.forward(part.view(), target, keep, Tensor(&loss, DType::Float64, {1}));
  EXPECT_NEAR(loss, expected_loss, 1e-10);
  sharded.backward(saved, part.view(), target, keep, 0.5);
  expect_near(part.view(), gradient.block(0, kTokens, range.first, range.first + range.rows), "dlogits");
}

INSTANTIATE_TEST_SUITE_P(Modes, Layers, testing::Values(SequenceParallel::No, SequenceParallel::Yes),
                         [](const auto& mode) {
                           return std::string(mode.param == SequenceParallel::Yes ? "sequence_parallel"
                                                                                  : "tensor_parallel");
                         });

}  // namespace
}  // namespace triax::parallel
