// Dropout masks: exactly the bits of the key, whatever slice of the batch a rank holds.
#include "kernels/dropout_key.h"
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr int64_t kBatch = 3, kSeq = 10, kHidden = 203;

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

TEST(DropoutKey, PhiloxIsTheOneOfBase) {
  for (uint32_t i = 0; i < 100; ++i) {
    const PhiloxWords mine = dropout_philox({{i, i * 7, ~i, i << 20}}, {{i * 3, 12345}});
    const PhiloxCounter base = philox4x32({i, i * 7, ~i, i << 20}, {i * 3, 12345});
    for (size_t w = 0; w < 4; ++w) EXPECT_EQ(mine.word[w], base[w]);
  }
}

TEST(DropoutKey, KnownBits) {
  // Fixed for ever: a mask must not change between versions or devices.
  const DropoutKey key = dropout_key(1234, 7, 9);
  std::string bits;
  for (int64_t e = 0; e < 40; ++e) bits += dropout_keeps(key, dropout_threshold(0.5), 100, 3, 2, e) ? '1' : '0';
  EXPECT_EQ(bits, "0110000000110101111101111100111110111010");
}

TEST(DropoutKey, EveryPartOfTheKeyMatters) {
  const auto word = [](uint64_t seed, int64_t step, uint32_t site, int64_t sample, int64_t position, int64_t head,
                       int64_t block) {
    return dropout_philox(dropout_counter(sample, position, head, block), dropout_key(seed, step, site)).word[0];
  };
  const std::vector<uint32_t> words{
      word(1, 2, 3, 4, 5, 6, 7),         word(9, 2, 3, 4, 5, 6, 7),        word(1, 9, 3, 4, 5, 6, 7),
      word(1, 2, 9, 4, 5, 6, 7),         word(1, 2, 3, 9, 5, 6, 7),        word(1, 2, 3, 4, 9, 6, 7),
      word(1, 2, 3, 4, 5, 9, 7),         word(1, 2, 3, 4, 5, 6, 9),        word(1ull << 40, 2, 3, 4, 5, 6, 7),
      word(1, 2ll << 40, 3, 4, 5, 6, 7), word(1, 2, 3, 4ll << 33, 5, 6, 7)};
  for (size_t i = 0; i < words.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(words[i], words[j]) << i << " " << j;
  }
}

TEST(DropoutKey, ThresholdIsTheRule) {
  for (const double p : {0.0, 1e-12, 0.1, 0.25, 0.5, 1 / 3.0, 0.999999}) {
    const uint32_t t = dropout_threshold(p);
    if (t > 0) {
      EXPECT_LT(uniform_from(t - 1), p);
    }
    EXPECT_GE(uniform_from(t), p);
  }
}

TEST(BiasDropoutAdd, MatchesTheRuleElementByElement) {
  const Site site;
  for_each_isa([&](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix x = random_matrix(dtype, kSeq * kBatch, kHidden, 1, 1, 3),
                   residual = random_matrix(dtype, kSeq * kBatch, kHidden, 2, 1, 1);
      const Matrix bias = random_matrix(dtype, 1, kHidden, 3);
      Matrix y(dtype, kSeq * kBatch, kHidden, 2), dx(dtype, kSeq * kBatch, kHidden);
      Matrix dbias = random_matrix(statistics_type(dtype), 1, kHidden, 4);
      std::vector<double> want, want_dx, want_dbias = dbias.values();
      for (int64_t r = 0; r < kSeq * kBatch; ++r) {
        for (int64_t c = 0; c < kHidden; ++c) {
          const double m = site.keeps(r, c) ? 1 / 0.7 : 0;
          want.push_back(residual.at(r, c) + (x.at(r, c) + bias.at(c)) * m);
          want_dx.push_back(x.at(r, c) * m);
          want_dbias[static_cast<size_t>(c)] += want_dx.back();
        }
      }
      device.bias_dropout_add_forward(x.t, bias.vec(), residual.t, site.dropout, site.index(), y.t);
      device.bias_dropout_backward(x.t, site.dropout, site.index(), dx.t, dbias.vec());
      const double tolerance = 8 * unit(statistics_type(dtype)) + unit(dtype);
      expect_close(y, want, tolerance, label(isa, dtype) + " y");
      expect_close(dx, want_dx, tolerance, label(isa, dtype) + " dx");
      expect_close(dbias, want_dbias, 8 * tolerance, label(isa, dtype) + " dbias");
      for (int64_t i = 0; i < dx.t.numel(); ++i) {
        ASSERT_EQ(dx.at(i) == 0, !site.keeps(i / kHidden, i % kHidden)) << label(isa, dtype);
      }
    }
  });
}

TEST(BiasDropoutAdd, InPlaceAndWithoutDropoutIsAPlainSum) {
  Site site;
  site.dropout.p = 0;
  for_each_isa([&](Device& device, const std::string& isa) {
    Matrix x = random_matrix(DType::Float32, kSeq * kBatch, kHidden, 1);
    const Matrix residual = random_matrix(DType::Float32, kSeq * kBatch, kHidden, 2);
    std::vector<double> want;
    for (int64_t i = 0; i < x.t.numel(); ++i) want.push_back(x.at(i) + residual.at(i));
    device.bias_dropout_add_forward(x.t, {}, residual.t, site.dropout, {}, x.t);
    expect_close(x, want, 0x1p-23, isa);
  });
}

TEST(BiasDropoutAdd, ASliceOfRowsOrSamplesHasTheSameMask) {
  const Site site;
  const auto device = make_cpu_device({2});
  const Matrix x = random_matrix(DType::Float32, kSeq * kBatch, kHidden, 1);
  Matrix whole(DType::Float32, kSeq * kBatch, kHidden);
  device->bias_dropout_add_forward(x.t, {}, {}, site.dropout, site.index(), whole.t);
  // Sequence parallelism: positions 4..7 of all samples.
  Matrix rows(DType::Float32, 4 * kBatch, kHidden);
  device->bias_dropout_add_forward(x.t.row_slice(4 * kBatch, 8 * kBatch), {}, {}, site.dropout,
                                   {site.sample.vec(), site.position.vec().range(4 * kBatch, 8 * kBatch)}, rows.t);
  for (int64_t r = 0; r < 4 * kBatch; ++r) {
    for (int64_t c = 0; c < kHidden; ++c) ASSERT_EQ(rows.at(r, c), whole.at(4 * kBatch + r, c));
  }
  // Data parallelism: sample 2 alone.
  Matrix one(DType::Float32, kSeq, kHidden), mine(DType::Float32, kSeq, kHidden), position(DType::Int32, 1, kSeq);
  for (int64_t t = 0; t < kSeq; ++t) {
    position.set(0, t, static_cast<double>(t + 4));
    for (int64_t c = 0; c < kHidden; ++c) mine.set(t, c, x.at(t * kBatch + 2, c));
  }
  device->bias_dropout_add_forward(mine.t, {}, {}, site.dropout, {site.sample.vec().range(2, 3), position.vec()},
                                   one.t);
  for (int64_t t = 0; t < kSeq; ++t) {
    for (int64_t c = 0; c < kHidden; ++c) ASSERT_EQ(one.at(t, c), whole.at(t * kBatch + 2, c));
  }
}

TEST(BiasDropoutAdd, KeepsTheRightShare) {
  Site site;
  const auto device = make_cpu_device({2});
  Matrix x(DType::Float32, kSeq * kBatch, 4000), y(DType::Float32, kSeq * kBatch, 4000);
  device->fill(x.t, 1);
  for (const double p : {0.1, 0.5, 0.9}) {
    site.dropout.p = p;
    device->bias_dropout_add_forward(x.t, {}, {}, site.dropout, site.index(), y.t);
    double kept = 0;
    for (int64_t i = 0; i < y.t.numel(); ++i) kept += y.at(i) != 0 ? 1 : 0;
    const auto n = static_cast<double>(y.t.numel());
    EXPECT_NEAR(kept / n, 1 - p, 5 * std::sqrt(p * (1 - p) / n));
  }
}

}  // namespace
}  // namespace triax::kernels::testing
