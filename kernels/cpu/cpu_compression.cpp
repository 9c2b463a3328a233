#include "kernels/cpu/cpu_compression.h"

#include <cmath>

#include "base/philox.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/compression_kernels.h"

namespace triax::kernels {
namespace {

bool is_wide(const char* operation, const Tensor& t) {
  ensure(t.dtype() == DType::Float64 || t.dtype() == DType::Float32,
         std::string(operation) + ": fp32 or fp64, not " + t.describe());
  return t.dtype() == DType::Float64;
}

char* at(const Tensor& t, int64_t element) {
  return static_cast<char*>(t.data()) + element * static_cast<int64_t>(size_of(t.dtype()));
}

void check_segment(Codec codec, const CodeSegment& s, const Tensor& flat, const Tensor& packed) {
  ensure(s.begin >= 0 && s.count >= 0 && s.begin + s.count <= flat.numel() && s.phase >= 0 && s.phase < s.row_length &&
             s.block_length > 0 && s.block_length <= kLongestBlock,
         "compression: a segment outside of its array, or a block too long");
  ensure(s.packed >= 0 && s.packed + packed_bytes(codec, s) <= packed.numel(), "compression: packed array too short");
}

}  // namespace

void CpuCompression::encode(const Encode& args) {
  const bool wide = is_wide("encode", args.x);
  ensure(args.packed.dtype() == DType::UInt8 && args.x.contiguous() && args.packed.contiguous(),
         "encode: contiguous tensors, packed bytes uint8");
  ensure(!args.residual || args.residual.dtype() == args.x.dtype(), "encode: the residual has the gradient's dtype");
  ensure(args.codec != Codec::Qsgd || (args.levels >= 1 && args.levels <= 127), "encode: 1 to 127 levels");
  threads_->ranges(static_cast<int64_t>(args.segments.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CodeSegment& s = args.segments[static_cast<size_t>(i)];
      check_segment(args.codec, s, args.x, args.packed);
      if (args.residual) ensure(s.state >= 0 && s.state + s.count <= args.residual.numel(), "encode: residual");
      encode_segment(wide, {args.codec, s, at(args.x, s.begin), args.residual ? at(args.residual, s.state) : nullptr,
                            args.packed.as<uint8_t>() + s.packed, args.levels, args.draw});
    }
  });
}

void CpuCompression::decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) {
  const bool wide = is_wide("decode", y);
  ensure(packed.dtype() == DType::UInt8 && packed.contiguous() && y.contiguous(),
         "decode: contiguous tensors, packed bytes uint8");
  threads_->ranges(static_cast<int64_t>(segments.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CodeSegment& s = segments[static_cast<size_t>(i)];
      check_segment(codec, s, y, packed);
      decode_segment(wide, {codec, s, packed.as<uint8_t>() + s.packed, at(y, s.begin), mode});
    }
  });
}

void CpuCompression::top_k(std::span<const TopK> tensors) {
  int64_t longest = 0;
  for (const TopK& t : tensors) {
    is_wide("top_k", t.x);
    const int64_t n = t.x.numel(), k = t.value.numel();
    check_vector("top_k", "x", t.x, t.x.dtype(), n);
    check_vector("top_k", "value", t.value, t.x.dtype(), k);
    check_vector("top_k", "index", t.index, DType::Int32, k);
    if (t.residual) check_vector("top_k", "residual", t.residual, t.x.dtype(), n);
    ensure(k >= 1 && k <= n && t.base >= 0 && t.base + n <= int64_t{1} << 31, "top_k: 1 <= k <= n, indices of 31 bits");
    longest = std::max(longest, n);
  }
  threads_->tasks(static_cast<int64_t>(tensors.size()), [&](int64_t i, int) {
    const TopK& t = tensors[static_cast<size_t>(i)];
    const bool wide = t.x.dtype() == DType::Float64;
    const int64_t n = t.x.numel();
    if (t.residual) add_elements(wide, t.x.data(), t.residual.data(), t.residual.data(), n);
    select_largest(wide, t.residual ? t.residual.data() : t.x.data(), t.residual ? t.residual.data() : nullptr, n,
                   t.value.numel(), t.base, t.value.data(), t.index.as<int32_t>());
  });
}

void CpuCompression::scatter(Tensor index, Tensor value, Tensor y, Decode mode) {
  const int64_t n = value.numel();
  check_vector("scatter", "index", index, DType::Int32, n);
  ensure(value.dtype() == y.dtype() && y.contiguous(), "scatter: values have y's dtype");
  const int32_t* places = index.as<int32_t>();
  const auto write = [&](const auto* from, auto* to) {
    threads_->ranges(n, kElementGrain, [&](int64_t begin, int64_t end) {
      if (mode == Decode::Add) {
        for (int64_t i = begin; i < end; ++i) to[places[i]] += from[i];
      } else {
        for (int64_t i = begin; i < end; ++i) to[places[i]] = from[i];
      }
    });
  };
  if (is_wide("scatter", y)) {
    write(value.as<double>(), y.as<double>());
  } else {
    write(value.as<float>(), y.as<float>());
  }
}

void CpuCompression::orthonormalize(Tensor x, uint64_t seed, uint64_t stream) {
  const bool wide = is_wide("orthonormalize", x);
  const int64_t rows = x.rows(), n = x.cols();
  ensure(x.contiguous() && rows <= n, "orthonormalize: x[r, n], r <= n");
  // A row that shrinks below this under the projections is rounding noise of the rows before it.
  const double noise = 64 * (wide ? 0x1p-53 : 0x1p-24) * std::sqrt(static_cast<double>(n));
  for (int64_t r = 0; r < rows; ++r) {
    void* row = at(x, r * n);
    double before = std::sqrt(dot(wide, row, row, n));
    for (int attempt = 0;; ++attempt) {
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t q = 0; q < r; ++q) add_scaled(wide, -dot(wide, row, at(x, q * n), n), at(x, q * n), row, n);
      }
      const double after = std::sqrt(dot(wide, row, row, n));
      // Not finite: left as it is, for the norm of the gradient to find.
      if (!std::isfinite(after)) break;
      if (after > noise * before && after > 1e-150) {
        blend(wide, 1 / after, row, 0, row, n);
        if (before <= after * 1e3) break;
        before = 1;  // most of the row cancelled: once more, now that its length is 1
        continue;
      }
      ensure(attempt < 8, "orthonormalize: no direction found");
      for (int64_t i = 0; i < n; ++i) {
        const double value = normal_at(seed, stream + static_cast<uint64_t>(attempt) * 0x9E3779B97F4A7C15ULL,
                                       static_cast<uint64_t>(r * n + i));
        if (wide) {
          x.as<double>()[r * n + i] = value;
        } else {
          x.as<float>()[r * n + i] = static_cast<float>(value);
        }
      }
      before = std::sqrt(dot(wide, row, row, n));
    }
  }
}

void CpuCompression::momentum(Tensor m, double beta, double factor, Tensor g) {
  const bool wide = is_wide("momentum", g);
  check_vector("momentum", "m", m, g.dtype(), g.numel());
  ensure(g.contiguous(), "momentum: contiguous gradient");
  threads_->ranges(g.numel(), kElementGrain,
                   [&](int64_t b, int64_t e) { blend(wide, beta, at(m, b), factor, at(g, b), e - b); });
}

void CpuCompression::frozen_adam(const FrozenAdam& a, const StepBlock* step) {
  const bool wide = is_wide("frozen_adam", a.master);
  const int64_t n = a.master.numel();
  check_vector("frozen_adam", "exp_avg", a.exp_avg, a.master.dtype(), n);
  check_vector("frozen_adam", "exp_avg_sq", a.exp_avg_sq, a.master.dtype(), n);
  if (step->skip != 0) return;
  const FrozenAdamArgs args{1 / (1 - std::pow(a.beta1, static_cast<double>(step->update))), step->learning_rate, a.eps,
                            a.weight_decay, a.inv_sqrt_correction2};
  threads_->ranges(n, kElementGrain, [&](int64_t b, int64_t e) {
    frozen_adam_run(wide, args, at(a.master, b), at(a.exp_avg, b), at(a.exp_avg_sq, b), e - b);
  });
}

}  // namespace triax::kernels
