// Times of one device's kernels: from the machine's tables where they were measured, else by rooflines.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "plan/collective_time.h"

namespace triax::plan {

struct GemmShape {
  bench::GemmLayout layout = bench::GemmLayout::TN;
  bool accumulate = false;
  double m = 0, n = 0, k = 0;  ///< as the machine's table has them: forward [m,n] += [m,k] [k,n]
  bool wide = false;           ///< in 16 bits, where the others are in 8
};

/// The machine with what its description lacks filled in by shares of its peaks, each tagged assumed. Throws
/// ConfigError where not even those are there: a peak or a measured GEMM of the dtype, the bandwidth of the memory.
bench::Hardware with_defaults(const bench::Hardware& hardware, DType dtype);

/// A machine at one dtype. All rates are of one device.
class DeviceTimes {
 public:
  /// Of with_defaults(hardware, dtype), whose errors it throws.
  DeviceTimes(const bench::Hardware& hardware, DType dtype);

  /// Measured: the line of equal n, k, layout and accumulation over m, else the roofline times what the nearest
  /// measured shapes take against it. Roofline: waves 2mnk / F + e (mk + kn + mn) / B + floor; a weight gradient takes
  /// `weight_gradient` times that.
  double gemm_s(const GemmShape& shape) const;
  /// `count` products [m,k] [k,n] in one launch, by the roofline with F / (1 + (half / d)^power), d the least of m, n,
  /// k.
  double batched_gemm_s(double count, double m, double n, double k) const;
  /// One kernel that moves `bytes`.
  double bytes_s(double bytes) const { return bytes <= 0 ? 0 : kernel_floor_s + bytes / memory_bytes_per_s; }
  /// A measured kernel (bench::KernelPoint names) over rows x cols; nothing where the machine has no such point.
  bool has_kernel(const std::string& name) const { return kernels_.contains(name); }
  double kernel_s(const std::string& name, double rows, double cols) const;
  /// Bytes that making an 8-bit operand of one element takes: read at 16 bits, written as it is and transposed.
  double cast_bytes() const { return wide_flops > 0 ? 4 : 0; }
  double element_bytes() const { return element_bytes_; }

  // What the rooflines take; a fit writes here.
  double score_bytes_per_s = 0;  ///< of passes over attention scores
  double batched_half = 0;       ///< least dimension at which batched products reach half of gemm_flops
  double batched_power = 1;      ///< how steeply they fall below it
  /// Of a GPU; 0: a product is not cut into tiles. A product takes whole waves of tiles, one tile on each
  /// multiprocessor: 256 x 128, or 128 x 128 at small_tile_share of its speed, or 128 x 64 at the square of that,
  /// whichever is fastest, with the sum over k cut in up to 8, each cut costing the time of split_depth more of k.
  double multiprocessors = 0, small_tile_share = 1, split_depth = 0;
  /// Of its speed that a product keeps whose rows begin at odd elements, so that they are read one at a time; 8 and
  /// multiples of it: all.
  double unaligned_share = 1;
  double gemm_flops = 0, gemm_bytes_per_s = 0, gemm_floor_s = 0, weight_gradient = 1;
  double memory_bytes_per_s = 0, kernel_floor_s = 0;
  double attention_flops = 0, attention_backward_flops = 0, attention_floor_s = 0;
  double optimizer_bytes_per_s = 0;
  double peak_flops = 0;
  double wide_flops = 0;  ///< of 16-bit products, where the dtype is fp8; else 0

 private:
  struct MeasuredGemm {
    double m, n, k, time_s;
  };
  double roofline_s(const GemmShape& shape) const;
  /// Time of the waves over that of the bare arithmetic at the speed of the largest tile.
  double waves(const GemmShape& shape) const;
  double alignment(const GemmShape& shape) const;
  double measured_s(const std::vector<MeasuredGemm>& points, const GemmShape& shape) const;

  double element_bytes_ = 2;
  std::map<std::pair<bench::GemmLayout, bool>, std::vector<MeasuredGemm>> gemms_;
  std::map<std::string, MeasuredCurve> kernels_;  ///< over rows * cols
};

}  // namespace triax::plan
