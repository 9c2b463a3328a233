// Bias, dropout and residual on the GPU: exactly the bits of kernels/dropout_key.h, which the CPU device has too.
#include "kernels/dropout_key.h"
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr int64_t kBatch = 3, kSeq = 17;

struct Site {
  StepBlock step;
  Matrix sample{DType::Int64, 1, kBatch}, position{DType::Int32, 1, kSeq*kBatch};
  Dropout dropout;
  Site() {
    step.step = 41;
    for (int64_t i = 0; i < kBatch; ++i) sample.set(0, i, static_cast<double>((int64_t{1} << 33) + 5 * i));
    for (int64_t r = 0; r < kSeq * kBatch; ++r) position.set(0, r, static_cast<double>(r / kBatch + 4));
    dropout = {0.3, 0x123456789abcdefull, 17, &step};
  }
  TokenIndex index() const { return {sample.vec(), position.vec()}; }
  bool keeps(int64_t r, int64_t c) const {
    return dropout_keeps(dropout_key(dropout.seed, step.step, dropout.site), dropout_threshold(dropout.p),
                         static_cast<int64_t>(sample.at(r % kBatch)), static_cast<int64_t>(position.at(r)), 0, c);
  }
};

void check_site(DType dtype, int64_t hidden, int64_t gap) {
  const Site site;
  const std::string what = std::string(name_of(dtype)) + " h=" + std::to_string(hidden);
  const int64_t rows = kSeq * kBatch;
  const Matrix x = random_matrix(dtype, rows, hidden, 1, 1, gap),
               residual = random_matrix(dtype, rows, hidden, 2, 1, gap);
  const Matrix bias = random_matrix(dtype, 1, hidden, 3);
  Matrix y(dtype, rows, hidden, gap), dx(dtype, rows, hidden, gap), alone(dtype, rows, hidden, gap);
  Matrix dbias = random_matrix(DType::Float32, 1, hidden, 4);
  std::vector<double> want, want_dx, want_dbias = dbias.values();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < hidden; ++c) {
      const double m = site.keeps(r, c) ? 1 / 0.7 : 0;
      want.push_back(residual.at(r, c) + (x.at(r, c) + bias.at(c)) * m);
      want_dx.push_back(x.at(r, c) * m);
      want_dbias[static_cast<size_t>(c)] += want_dx.back();
    }
  }
  mirrored().bias_dropout_add_forward(x.t, bias.vec(), residual.t, site.dropout, site.index(), y.t);
  mirrored().bias_dropout_backward(x.t, site.dropout, site.index(), dx.t, dbias.vec());
  mirrored().bias_dropout_backward(x.t, site.dropout, site.index(), alone.t, {});
  expect_close(y, want, rounding(dtype, 8), what + " y");
  expect_close(dx, want_dx, rounding(dtype, 8), what + " dx");
  expect_close(dbias, want_dbias, 8 * rounding(dtype, 8), what + " dbias");
  EXPECT_EQ(alone.bytes(), dx.bytes()) << what;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < hidden; ++c)
      ASSERT_EQ(dx.at(r, c) == 0, !site.keeps(r, c)) << what << " " << r << ", " << c;
  }
}

TEST(CudaDropout, HasTheBitsOfTheRule) {
  for (const DType dtype : kCudaTypes) {
    check_site(dtype, 203, 3);  // element by element
    check_site(dtype, 256, 8);  // runs of eight
    check_site(dtype, 60, 4);   // a run that ends inside
  }
}

TEST(CudaDropout, InPlaceAndWithoutDropoutIsAPlainSum) {
  Site site;
  site.dropout.p = 0;
  Matrix x = random_matrix(DType::Float32, 50, 203, 1);
  const Matrix residual = random_matrix(DType::Float32, 50, 203, 2);
  std::vector<double> want;
  for (int64_t i = 0; i < x.t.numel(); ++i) want.push_back(x.at(i) + residual.at(i));
  mirrored().bias_dropout_add_forward(x.t, {}, residual.t, site.dropout, {}, x.t);
  expect_close(x, want, 0x1p-23, "in place");
}

}  // namespace
}  // namespace triax::kernels::testing
