// AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) over flat ranges [n], many in one launch, with g = grad
// * grad_scale:
//   m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
//   w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w), param = w rounded to nearest even.
// lr, t, grad_scale and skip are read from the step block on the device. master, m, v: fp32.
// Bytes per element: 24 for w, m, v + the gradient + the parameter: 30 with fp32 gradients and bf16 parameters. The
// minimum.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/optimizer_launch.h"

namespace triax::kernels {
namespace {

struct AdamWPart {
  float *master, *exp_avg, *exp_avg_sq;
  const void* grad;
  void* param;
  int64_t n;
  float weight_decay;
  int first_block;  // of the launch; < 0: not aligned for 16 bytes, -1 - first_block
};

/// Ranges of one launch: what fits a kernel's arguments (4 KiB).
constexpr int kParts = 64;
constexpr int kWide = 4;
struct AdamWParts {
  AdamWPart of[kParts];
  int count;
  int64_t chunk;  // elements of a block
  double beta1, beta2;
  float eps;
};
static_assert(sizeof(AdamWParts) + sizeof(void*) <= 4096);

__host__ __device__ inline int first_block_of(const AdamWPart& part) {
  return part.first_block < 0 ? -1 - part.first_block : part.first_block;
}

/// What the elements of a step have in common.
struct AdamWFactors {
  bool skip;
  float learning_rate, grad_scale, inv_correction1, inv_sqrt_correction2;
  float b1, b2, one_minus_b1, one_minus_b2, eps;
};

template <int V, class G, class P>
__device__ __forceinline__ void update_elements(const AdamWPart& part, const AdamWFactors& f, int64_t i) {
  float w[V], m[V], v[V], g[V];
  load(part.master + i, w);
  load(part.exp_avg + i, m);
  load(part.exp_avg_sq + i, v);
  load(static_cast<const G*>(part.grad) + i, g);
  TRIAX_UNROLL
  for (int j = 0; j < V; ++j) {
    g[j] *= f.grad_scale;
    m[j] = f.b1 * m[j] + f.one_minus_b1 * g[j];
    v[j] = f.b2 * v[j] + f.one_minus_b2 * g[j] * g[j];
    const float direction = m[j] * f.inv_correction1 / (sqrtf(v[j]) * f.inv_sqrt_correction2 + f.eps);
    w[j] -= f.learning_rate * (direction + part.weight_decay * w[j]);
  }
  store(part.master + i, w);
  store(part.exp_avg + i, m);
  store(part.exp_avg_sq + i, v);
  store_parameter(static_cast<P*>(part.param), i, w);
}

template <class G, class P>
__global__ void __launch_bounds__(kBlock)
    adamw_kernel(const __grid_constant__ AdamWParts parts, const StepBlock* step) {
  __shared__ AdamWFactors shared;
  if (threadIdx.x == 0) {  // powers in fp64, once per block
    const auto update = static_cast<double>(global_read(&step->update));
    shared.skip = global_read(&step->skip) != 0;
    shared.learning_rate = static_cast<float>(global_read(&step->learning_rate));
    shared.grad_scale = static_cast<float>(global_read(&step->grad_scale));
    shared.inv_correction1 = static_cast<float>(1 / (1 - pow(parts.beta1, update)));
    shared.inv_sqrt_correction2 = static_cast<float>(1 / sqrt(1 - pow(parts.beta2, update)));
    shared.b1 = static_cast<float>(parts.beta1), shared.b2 = static_cast<float>(parts.beta2);
    shared.one_minus_b1 = static_cast<float>(1 - parts.beta1);
    shared.one_minus_b2 = static_cast<float>(1 - parts.beta2);
    shared.eps = parts.eps;
  }
  __syncthreads();
  const AdamWFactors f = shared;
  if (f.skip) return;
  const auto block = static_cast<int>(blockIdx.x);
  int low = 0, high = parts.count;  // the last part that begins at or before this block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_block_of(parts.of[middle]) <= block ? low : high) = middle;
  }
  const AdamWPart& part = parts.of[low];
  const int64_t begin = (block - first_block_of(part)) * parts.chunk;
  const int64_t end = begin + parts.chunk < part.n ? begin + parts.chunk : part.n;
  if (part.first_block < 0) {
    for (int64_t i = begin + threadIdx.x; i < end; i += kBlock) update_elements<1, G, P>(part, f, i);
    return;
  }
  for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * kWide; i < end; i += kBlock * kWide) {
    if (i + kWide <= end) {
      update_elements<kWide, G, P>(part, f, i);
    } else {
      for (int64_t j = i; j < end; ++j) update_elements<1, G, P>(part, f, j);
    }
  }
}

/// One launch for ranges of the same types.
void launch(const AdamW& like, AdamWParts& parts, int64_t total, const StepBlock* step, cudaStream_t stream) {
  constexpr int64_t kTurn = int64_t{kBlock} * kWide;
  parts.chunk = (total / kElementBlocks + kTurn - 1) / kTurn * kTurn;
  if (parts.chunk == 0) parts.chunk = kTurn;
  int64_t blocks = 0;
  for (int i = 0; i < parts.count; ++i) {
    AdamWPart& part = parts.of[i];
    part.first_block = static_cast<int>(part.first_block < 0 ? -1 - blocks : blocks);
    blocks += (part.n + parts.chunk - 1) / parts.chunk;
  }
  with_optimizer_types("adamw", like.grad, like.param, [&](auto g, auto p) {
    using G = typename decltype(g)::type;
    using P = typename decltype(p)::type;
    TRIAX_LAUNCH((adamw_kernel<G, P>), static_cast<unsigned>(blocks), kBlock, 0, stream, parts, step);
  });
}

bool wide(const AdamW& a) {
  return aligned_for(a.master.flat(), kWide) && aligned_for(a.exp_avg.flat(), kWide) &&
         aligned_for(a.exp_avg_sq.flat(), kWide) && aligned_for(a.grad.flat(), kWide) &&
         (!a.param || aligned_for(a.param.flat(), kWide));
}

bool alike(const AdamW& a, const AdamW& b) {
  return a.grad.dtype() == b.grad.dtype() && static_cast<bool>(a.param) == static_cast<bool>(b.param) &&
         (!a.param || a.param.dtype() == b.param.dtype()) && a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.eps == b.eps;
}

}  // namespace

void CudaDevice::adamw(const AdamW& a, const StepBlock* step) { adamw_many({&a, 1}, step); }

void CudaDevice::adamw_many(std::span<const AdamW> ranges, const StepBlock* step) {
  AdamWParts parts;
  for (size_t i = 0; i < ranges.size();) {
    const AdamW& like = ranges[i];
    parts.count = 0;
    parts.beta1 = like.beta1, parts.beta2 = like.beta2, parts.eps = static_cast<float>(like.eps);
    int64_t total = 0;
    for (; i < ranges.size() && parts.count < kParts && alike(like, ranges[i]); ++i) {
      const AdamW& a = ranges[i];
      check_optimizer("adamw", a.master, a.grad, a.param, step);
      const int64_t n = a.master.numel();
      need_vector("adamw", "exp_avg", a.exp_avg, DType::Float32, n);
      need_vector("adamw", "exp_avg_sq", a.exp_avg_sq, DType::Float32, n);
      if (n == 0) continue;
      parts.of[parts.count++] = {a.master.as<float>(),
                                 a.exp_avg.as<float>(),
                                 a.exp_avg_sq.as<float>(),
                                 a.grad.data(),
                                 a.param.data(),
                                 n,
                                 static_cast<float>(a.weight_decay),
                                 wide(a) ? 0 : -1};
      total += n;
    }
    if (parts.count > 0) launch(like, parts, total, step, stream());
  }
}

}  // namespace triax::kernels
