// Host matrices of any dtype with reference values in double, and one device per instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/device.h"

namespace triax::kernels::testing {

inline const std::vector<DType> kMathTypes{DType::Float64, DType::Float32, DType::BFloat16, DType::Float16};
inline DType statistics_type(DType d) { return d == DType::Float64 ? d : DType::Float32; }

/// Owner of a matrix whose rows may stand further apart than they are long; the gaps hold a pattern that is checked.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0)
      : bytes_(static_cast<size_t>(rows * (cols + gap)) * size_of(dtype) + 64, 0x5a), rows_(rows), gap_(gap) {
    whole_ = Tensor(bytes_.data(), dtype, {rows, cols + gap});
    t = gap == 0 ? whole_ : whole_.col_slice(0, cols);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) set(r, c, 0);
    }
  }
  double at(int64_t r, int64_t c) const { return get(r * t.row_stride() + c); }
  double at(int64_t i) const { return at(i / t.cols(), i % t.cols()); }
  void set(int64_t r, int64_t c, double v) {
    const auto i = static_cast<size_t>(r * t.row_stride() + c);
    char* p = bytes_.data() + i * size_of(t.dtype());
    switch (t.dtype()) {
      case DType::Float64:
        memcpy(p, &v, 8);
        break;
      case DType::Float32:
        put(p, static_cast<float>(v));
        break;
      case DType::BFloat16:
        put(p, bf16(static_cast<float>(v)));
        break;
      case DType::Float16:
        put(p, fp16(static_cast<float>(v)));
        break;
      case DType::Int32:
        put(p, static_cast<int32_t>(v));
        break;
      case DType::Int64:
        put(p, static_cast<int64_t>(v));
        break;
      default:
        FAIL() << "dtype";
    }
  }
  /// The same memory as a vector.
  Tensor vec() const { return t.flat(); }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<size_t>(t.numel()));
    for (int64_t i = 0; i < t.numel(); ++i) v[static_cast<size_t>(i)] = at(i);
    return v;
  }
  const std::vector<char>& bytes() const { return bytes_; }
  /// True when nothing was written between the rows or behind the last.
  bool gaps_intact() const {
    const size_t size = size_of(t.dtype());
    for (int64_t r = 0; r < rows_; ++r) {
      const size_t begin = static_cast<size_t>(r * t.row_stride() + t.cols()) * size;
      for (size_t i = begin; i < begin + static_cast<size_t>(gap_) * size; ++i) {
        if (bytes_[i] != 0x5a) return false;
      }
    }
    for (size_t i = bytes_.size() - 64; i < bytes_.size(); ++i) {
      if (bytes_[i] != 0x5a) return false;
    }
    return true;
  }

  Tensor t;

 private:
  template <class E>
  static void put(char* p, E e) {
    memcpy(p, &e, sizeof(E));
  }
  template <class E>
  E element(int64_t i) const {
    E e;
    memcpy(&e, bytes_.data() + static_cast<size_t>(i) * sizeof(E), sizeof(E));
    return e;
  }
  double get(int64_t i) const {
    switch (t.dtype()) {
      case DType::Float64:
        return element<double>(i);
      case DType::Float32:
        return element<float>(i);
      case DType::BFloat16:
        return static_cast<float>(element<bf16>(i));
      case DType::Float16:
        return static_cast<float>(element<fp16>(i));
      case DType::Int32:
        return element<int32_t>(i);
      default:
        return static_cast<double>(element<int64_t>(i));
    }
  }
  std::vector<char> bytes_;
  int64_t rows_, gap_;
  Tensor whole_;
};

inline Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed, double size = 1, int64_t gap = 0) {
  Matrix m(dtype, rows, cols, gap);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      m.set(r, c, size * normal_at(seed, 77, static_cast<uint64_t>(r * cols + c)));
    }
  }
  return m;
}

/// Rounding of one stored value, relative.
inline double unit(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 0x1p-53;
    case DType::Float32:
      return 0x1p-24;
    case DType::BFloat16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

/// |got - want| <= tolerance * max(1, |want|) everywhere, and finite.
inline void expect_close(const Matrix& got, const std::vector<double>& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.t.numel(), static_cast<int64_t>(want.size())) << what;
  double worst = 0;
  int64_t where = 0;
  for (int64_t i = 0; i < got.t.numel(); ++i) {
    const double w = want[static_cast<size_t>(i)];
    const double error = std::abs(got.at(i) - w) / std::max(1.0, std::abs(w));
    if (!(error <= worst)) worst = error, where = i;
    if (std::isnan(error)) break;
  }
  EXPECT_LE(worst, tolerance) << what << ": element " << where << " is " << got.at(where) << ", expected "
                              << want[static_cast<size_t>(where)];
  EXPECT_TRUE(got.gaps_intact()) << what << ": wrote between the rows";
}

/// A device of the named instruction set, or null when this processor lacks it.
inline std::unique_ptr<Device> device_with_isa(const char* isa, int threads) {
  setenv("TRIAX_CPU_ISA", isa, 1);
  std::unique_ptr<Device> device;
  try {
    device = make_cpu_device({threads});
  } catch (const ConfigError&) {
  }
  unsetenv("TRIAX_CPU_ISA");
  return device;
}

/// Runs the body once per instruction set of this machine, with two threads. The portable one runs everywhere.
inline void for_each_isa(const std::function<void(Device&, const std::string&)>& body) {
  for (const std::string isa : {"base", "avx2", "avx512", "avx512_bf16"}) {
    const auto device = device_with_isa(isa.c_str(), 2);
    if (device == nullptr) {
      ASSERT_NE(isa, "base") << "the portable kernels are refused";
      continue;
    }
    ASSERT_EQ(cpu_kernel_table(isa.c_str()).isa, isa);
    body(*device, isa);
  }
}

/// "avx2 bf16".
inline std::string label(const std::string& isa, DType dtype) { return isa + " " + std::string(name_of(dtype)); }

}  // namespace triax::kernels::testing
