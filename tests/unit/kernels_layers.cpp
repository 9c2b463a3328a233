// Norms, rotary embedding and activations: values against naive sums in double, gradients against differences of the
// naive function, every instruction set and dtype.
#include "tests/unit/kernels_testing.h"

namespace triax::kernels::testing {
namespace {

using Row = std::vector<double>;

/// Naive norm of one row; beta empty: RMSNorm.
Row norm_row(const Row& x, const Row& gamma, const Row& beta, double eps) {
  const auto h = static_cast<double>(x.size());
  double mean = 0, var = 0;
  if (!beta.empty()) {
    for (const double v : x) mean += v / h;
  }
  for (const double v : x) var += (v - mean) * (v - mean) / h;
  Row y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - mean) / std::sqrt(var + eps) * gamma[i] + (beta.empty() ? 0 : beta[i]));
  }
  return y;
}

Row row_of(const Matrix& m, int64_t r) {
  Row row;
  for (int64_t c = 0; c < m.t.cols(); ++c) row.push_back(m.at(r, c));
  return row;
}

/// d(sum of w * f(x)) / dx by a fourth-order central difference.
Row slope(const std::function<Row(const Row&)>& f, Row x, const Row& w) {
  constexpr double kStep = 1e-3;
  const auto value = [&](size_t i, double to) {
    const double before = std::exchange(x[i], to);
    const Row y = f(x);
    x[i] = before;
    double sum = 0;
    for (size_t j = 0; j < y.size(); ++j) sum += w[j] * y[j];
    return sum;
  };
  Row d;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    d.push_back(
        (8 * (value(i, at + kStep) - value(i, at - kStep)) - (value(i, at + 2 * kStep) - value(i, at - 2 * kStep))) /
        (12 * kStep));
  }
  return d;
}

void check_norm(Device& device, const std::string& isa, DType dtype, int64_t h, bool centered) {
  constexpr int64_t kRows = 70;
  constexpr double kEps = 1e-5;
  const std::string what = label(isa, dtype) + (centered ? " layer norm h=" : " rms norm h=") + std::to_string(h);
  const Matrix x = random_matrix(dtype, kRows, h, 1, 2, 3), dy = random_matrix(dtype, kRows, h, 2);
  const Matrix gamma = random_matrix(dtype, 1, h, 3), beta = random_matrix(dtype, 1, h, 4);
  Matrix y(dtype, kRows, h, 2), dx = random_matrix(dtype, kRows, h, 5, 1, 1);
  Matrix mean(statistics_type(dtype), 1, kRows), rstd(statistics_type(dtype), 1, kRows);
  Matrix dgamma = random_matrix(statistics_type(dtype), 1, h, 6),
         dbeta = random_matrix(statistics_type(dtype), 1, h, 7);
  Row want_y, want_dx, want_dgamma = dgamma.values(), want_dbeta = dbeta.values();
  const Row g = gamma.values(), b = centered ? beta.values() : Row();
  for (int64_t r = 0; r < kRows; ++r) {
    const Row xr = row_of(x, r), dyr = row_of(dy, r);
    const Row yr = norm_row(xr, g, b, kEps);
    want_y.insert(want_y.end(), yr.begin(), yr.end());
    if (dtype != DType::Float64 && r > 3) continue;
    const Row d = slope([&](const Row& v) { return norm_row(v, g, b, kEps); }, xr, dyr);
    for (int64_t c = 0; c < h; ++c) want_dx.push_back(d[static_cast<size_t>(c)] + dx.at(r, c));
  }
  for (int64_t r = 0; r < kRows; ++r) {
    const Row hat =
        norm_row(row_of(x, r), Row(static_cast<size_t>(h), 1), centered ? Row(static_cast<size_t>(h), 0) : Row(), kEps);
    for (size_t c = 0; c < hat.size(); ++c) {
      want_dgamma[c] += dy.at(r, static_cast<int64_t>(c)) * hat[c];
      want_dbeta[c] += dy.at(r, static_cast<int64_t>(c));
    }
  }
  const double sums = 40 * unit(statistics_type(dtype));
  if (centered) {
    device.layer_norm_forward(x.t, gamma.vec(), beta.vec(), kEps, y.t, mean.vec(), rstd.vec());
    device.layer_norm_backward(dy.t, x.t, gamma.vec(), mean.vec(), rstd.vec(), dx.t, Accumulate::Yes, dgamma.vec(),
                               dbeta.vec());
  } else {
    device.rms_norm_forward(x.t, gamma.vec(), kEps, y.t, rstd.vec());
    device.rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), dx.t, Accumulate::Yes, dgamma.vec());
  }
  expect_close(y, want_y, sums + unit(dtype), what + " y");
  expect_close(dgamma, want_dgamma, 4 * sums, what + " dgamma");
  if (centered) expect_close(dbeta, want_dbeta, 4 * sums, what + " dbeta");
  if (dtype != DType::Float64) {  // only the first rows' differences were taken
    for (size_t i = 0; i < want_dx.size(); ++i) {
      EXPECT_NEAR(dx.at(static_cast<int64_t>(i)), want_dx[i],
                  (sums + unit(dtype)) * std::max(1.0, std::abs(want_dx[i])))
          << what;
    }
  } else {
    expect_close(dx, want_dx, 1e-9, what + " dx");
  }
  // Without gradients of the weights, and overwriting, dx is the same without what it held.
  Matrix fresh(dtype, kRows, h);
  if (centered) {
    device.layer_norm_backward(dy.t, x.t, gamma.vec(), mean.vec(), rstd.vec(), fresh.t, Accumulate::No, {}, {});
  } else {
    device.rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), fresh.t, Accumulate::No, {});
  }
  const Matrix held = random_matrix(dtype, kRows, h, 5);
  for (int64_t i = 0; i < h; ++i) EXPECT_NEAR(fresh.at(i) + held.at(i), dx.at(i), 8 * unit(dtype)) << what;
}

TEST(Norms, MatchNaiveValuesAndDifferences) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      for (const int64_t h : {5, 33, 64, 100}) {
        check_norm(device, isa, dtype, h, false);
        check_norm(device, isa, dtype, h, true);
      }
    }
  });
}

TEST(Norms, BitsDoNotDependOnThreads) {
  const Matrix x = random_matrix(DType::Float32, 999, 96, 1), dy = random_matrix(DType::Float32, 999, 96, 2);
  const Matrix gamma = random_matrix(DType::Float32, 1, 96, 3);
  std::vector<std::vector<char>> results;
  for (const int threads : {1, 2, 3, 7}) {
    const auto device = make_cpu_device({threads});
    Matrix y(DType::Float32, 999, 96), dx(DType::Float32, 999, 96), rstd(DType::Float32, 1, 999),
        dgamma(DType::Float32, 1, 96);
    device->rms_norm_forward(x.t, gamma.vec(), 1e-5, y.t, rstd.vec());
    device->rms_norm_backward(dy.t, x.t, gamma.vec(), rstd.vec(), dx.t, Accumulate::No, dgamma.vec());
    for (const Matrix* m : {&y, &dx, &dgamma}) results.push_back(m->bytes());
  }
  for (size_t i = 3; i < results.size(); ++i) EXPECT_EQ(results[i % 3], results[i]) << i;
}

TEST(Rotary, RotatesPairsAndBackwardIsItsTranspose) {
  constexpr int64_t kRows = 9, kHeads = 3, kPositions = 20;
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      for (const auto& [dim, half] : std::vector<std::pair<int64_t, int64_t>>{{10, 5}, {64, 32}, {80, 16}}) {
        const Matrix before = random_matrix(dtype, kRows, kHeads * dim, 1, 1, 4);
        Matrix x = random_matrix(dtype, kRows, kHeads * dim, 1, 1, 4);
        Matrix cos(statistics_type(dtype), kPositions, half), sin(statistics_type(dtype), kPositions, half);
        Matrix position(DType::Int32, 1, kRows);
        for (int64_t p = 0; p < kPositions; ++p) {
          for (int64_t i = 0; i < half; ++i) {
            const double angle =
                static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
            cos.set(p, i, std::cos(angle));
            sin.set(p, i, std::sin(angle));
          }
        }
        for (int64_t r = 0; r < kRows; ++r) position.set(0, r, static_cast<double>((r * 7) % kPositions));
        std::vector<double> want = before.values();
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t p = (r * 7) % kPositions;
          for (int64_t j = 0; j < kHeads; ++j) {
            for (int64_t i = 0; i < half; ++i) {
              const double x0 = before.at(r, j * dim + i), x1 = before.at(r, j * dim + half + i);
              const auto at = static_cast<size_t>(r * kHeads * dim + j * dim + i);
              want[at] = x0 * cos.at(p, i) - x1 * sin.at(p, i);
              want[at + static_cast<size_t>(half)] = x1 * cos.at(p, i) + x0 * sin.at(p, i);
            }
          }
        }
        device.rotary(x.t, cos.t, sin.t, position.vec(), kHeads, Device::RotaryDirection::Forward);
        expect_close(x, want, 4 * unit(statistics_type(dtype)) + unit(dtype), label(isa, dtype) + " rotary");
        device.rotary(x.t, cos.t, sin.t, position.vec(), kHeads, Device::RotaryDirection::Backward);
        expect_close(x, before.values(), 8 * unit(statistics_type(dtype)) + 3 * unit(dtype),
                     label(isa, dtype) + " back");
      }
    }
  });
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double swiglu(double g, double u) { return g / (1 + std::exp(-g)) * u; }

TEST(Gelu, MatchesTheTanhForm) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      const Matrix x = random_matrix(dtype, 11, 37, 1, 3, 3), dy = random_matrix(dtype, 11, 37, 2);
      Matrix y(dtype, 11, 37, 1), dx(dtype, 11, 37, 2);
      Row want_y, want_dx;
      for (int64_t i = 0; i < x.t.numel(); ++i) {
        want_y.push_back(gelu(x.at(i)));
        want_dx.push_back(slope([](const Row& v) { return Row{gelu(v[0])}; }, {x.at(i)}, {dy.at(i)})[0]);
      }
      device.gelu_forward(x.t, y.t);
      device.gelu_backward(dy.t, x.t, dx.t);
      expect_close(y, want_y, 4 * unit(statistics_type(dtype)) + unit(dtype), label(isa, dtype) + " gelu");
      expect_close(dx, want_dx, (dtype == DType::Float64 ? 1e-10 : 4e-6) + unit(dtype), label(isa, dtype) + " gelu dx");
    }
  });
}

TEST(Gelu, KeepsRelativePrecisionForVeryNegativeInputs) {
  for_each_isa([](Device& device, const std::string& isa) {
    Matrix x(DType::Float64, 1, 4), y(DType::Float64, 1, 4);
    for (int64_t i = 0; i < 4; ++i) x.set(0, i, -3.0 - static_cast<double>(i));
    device.gelu_forward(x.t, y.t);
    for (int64_t i = 0; i < 4; ++i) {
      const double v = x.at(i);
      const double want = v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      EXPECT_NEAR(y.at(i) / want, 1, 1e-13) << isa;
    }
  });
}

TEST(SwiGlu, MatchesSiluTimesUp) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      constexpr int64_t kF = 21;
      const Matrix x = random_matrix(dtype, 9, 2 * kF, 1, 3, 3), dy = random_matrix(dtype, 9, kF, 2);
      Matrix y(dtype, 9, kF, 1), dx(dtype, 9, 2 * kF, 2);
      Row want_y, want_dx(static_cast<size_t>(18 * kF));
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t c = 0; c < kF; ++c) {
          const double g = x.at(r, c), u = x.at(r, kF + c);
          want_y.push_back(swiglu(g, u));
          const Row d = slope([](const Row& v) { return Row{swiglu(v[0], v[1])}; }, {g, u}, {dy.at(r, c)});
          want_dx[static_cast<size_t>(r * 2 * kF + c)] = d[0];
          want_dx[static_cast<size_t>(r * 2 * kF + kF + c)] = d[1];
        }
      }
      device.swiglu_forward(x.t, y.t);
      device.swiglu_backward(dy.t, x.t, dx.t);
      expect_close(y, want_y, 4 * unit(statistics_type(dtype)) + unit(dtype), label(isa, dtype) + " swiglu");
      expect_close(dx, want_dx, (dtype == DType::Float64 ? 1e-9 : 2e-6) + unit(dtype),
                   label(isa, dtype) + " swiglu dx");
    }
  });
}

/// GELU is x or 0, SiLU times 1 is too, and their slopes are 1 or 0, where the squares and cubes inside overflow.
TEST(Activations, FarFromZeroAreTheirArgumentOrNothing) {
  for_each_isa([](Device& device, const std::string& isa) {
    for (const DType dtype : kMathTypes) {
      std::vector<double> far{40, 100, 9000, 60000};
      if (dtype != DType::Float16) far.insert(far.end(), {1e10, 1e15, 1e20, 3e38});
      const auto n = 2 * static_cast<int64_t>(far.size()) + 1;
      Matrix x(dtype, 1, n), ones(dtype, 1, n), gate_up(dtype, 1, 2 * n);
      Matrix gelu_y(dtype, 1, n), gelu_dx(dtype, 1, n), silu_y(dtype, 1, n), silu_dx(dtype, 1, 2 * n);
      for (int64_t i = 0; i < n; ++i) {
        const double size = i == n - 1 ? NAN : far[static_cast<size_t>(i / 2)];
        x.set(0, i, i % 2 == 0 ? size : -size);
        gate_up.set(0, i, x.at(i));
        gate_up.set(0, n + i, 1);
        ones.set(0, i, 1);
      }
      device.gelu_forward(x.t, gelu_y.t);
      device.gelu_backward(ones.t, x.t, gelu_dx.t);
      device.swiglu_forward(gate_up.t, silu_y.t);
      device.swiglu_backward(ones.t, gate_up.t, silu_dx.t);
      for (int64_t i = 0; i < n; ++i) {
        const std::string what = label(isa, dtype) + " of " + std::to_string(x.at(i));
        const double value = x.at(i) > 0 ? x.at(i) : 0, slope = x.at(i) > 0 ? 1 : 0;
        for (const auto& [got, want] :
             {std::pair{gelu_y.at(i), value}, {gelu_dx.at(i), slope}, {silu_y.at(i), value}, {silu_dx.at(i), slope}}) {
          // A value not below 1 is exact; the others may be as large as e^-40 times their argument.
          if (std::isnan(x.at(i))) {
            EXPECT_TRUE(std::isnan(got)) << what;
          } else {
            EXPECT_NEAR(got, want, 1e-15) << what;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace triax::kernels::testing
