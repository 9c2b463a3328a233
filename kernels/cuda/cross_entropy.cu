// Vocabulary-parallel cross-entropy over logits[T, V], row stride free; columns from `valid` on are padding. Statistics
// fp32 [T], the loss fp64 [1]. One block per row; sums in a fixed order, each thread's in compensated fp32.
//   max:      row_max = max over valid columns              reads T V elements
//   sum:      sum_exp = sum exp(logit - row_max); target    reads T V
//   loss:     loss_sum += sum mask (log sum_exp + row_max - target_logit)
//   backward: logits = (exp(logit - row_max) / sum_exp - [target]) mask factor loss_scale    reads and writes T V
// Each is the minimum of its pass; between them stands the ranks' communication.
#include "kernels/cuda/block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr int kRowBlock = 512;

template <class T, int V>
__global__ void __launch_bounds__(kRowBlock) row_maximum(Rows<const T> logits, int64_t valid, float* row_max) {
  __shared__ BlockScratch<float> scratch;
  const int64_t r = blockIdx.x;
  float max = -INFINITY;
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * V; c < valid; c += kRowBlock * V) {
    if (c + V <= valid) {
      float v[V];
      load(logits.at(r, c), v);
      TRIAX_UNROLL
      for (int i = 0; i < V; ++i) max = fmaxf(max, v[i]);
    } else {
      for (int64_t i = c; i < valid; ++i) max = fmaxf(max, to_float(global_read(logits.at(r, i))));
    }
  }
  max = block_max(max, scratch);
  if (threadIdx.x == 0) global_write(row_max + r, max);
}

/// A sum in fp32 with what its roundings left out (Kahan): as many terms as a vocabulary has cost no more than one
/// rounding.
struct CompensatedSum {
  float sum = 0, excess = 0;
  __device__ void add(float v) {
    const float term = v - excess, next = sum + term;
    excess = (next - sum) - term;
    sum = next;
  }
  __device__ double value() const { return static_cast<double>(sum) - static_cast<double>(excess); }
};

template <class T, int V>
__global__ void __launch_bounds__(kRowBlock)
    row_sum_exp(Rows<const T> logits, int64_t first, int64_t valid, const int32_t* target, const float* row_max,
                float* sum_exp, float* target_logit) {
  __shared__ BlockScratch<double> scratch;
  const int64_t r = blockIdx.x;
  const float max = global_read(row_max + r);
  CompensatedSum sum;
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * V; c < valid; c += kRowBlock * V) {
    if (c + V <= valid) {
      float v[V];
      load(logits.at(r, c), v);
      TRIAX_UNROLL
      for (int i = 0; i < V; ++i) sum.add(expf(v[i] - max));
    } else {
      for (int64_t i = c; i < valid; ++i) sum.add(expf(to_float(global_read(logits.at(r, i))) - max));
    }
  }
  const double total = block_sum(sum.value(), scratch);
  if (threadIdx.x == 0) {
    global_write(sum_exp + r, static_cast<float>(total));
    const int64_t id = global_read(target + r) - first;
    global_write(target_logit + r, id >= 0 && id < valid ? to_float(global_read(logits.at(r, id))) : 0.0f);
  }
}

constexpr int kLossBlock = 1024;

/// One block: T numbers are few.
__global__ void __launch_bounds__(kLossBlock)
    sum_losses(const float* row_max, const float* sum_exp, const float* target_logit, const float* mask, int64_t rows,
               double* loss_sum) {
  __shared__ BlockScratch<double> scratch;
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kLossBlock) {
    const double weight = mask == nullptr ? 1.0 : static_cast<double>(global_read(mask + r));
    if (weight == 0) continue;  // a masked row may hold anything
    sum +=
        weight * (log(static_cast<double>(global_read(sum_exp + r))) + static_cast<double>(global_read(row_max + r)) -
                  static_cast<double>(global_read(target_logit + r)));
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) global_write(loss_sum, global_read(loss_sum) + sum);
}

template <class T, int V>
__global__ void __launch_bounds__(kRowBlock)
    row_gradient(Rows<T> logits, int64_t cols, int64_t first, int64_t valid, const int32_t* target,
                 const float* row_max, const float* sum_exp, const float* mask, double seed_factor,
                 const StepBlock* step) {
  const int64_t r = blockIdx.x, id = global_read(target + r) - first;
  const float max = global_read(row_max + r);
  const float weight = (mask == nullptr ? 1.0f : global_read(mask + r)) *
                       static_cast<float>(seed_factor * global_read(&step->loss_scale));
  const float scale = static_cast<float>(static_cast<double>(weight) / static_cast<double>(global_read(sum_exp + r)));
  const auto gradient = [&](float logit, int64_t c) {
    if (c >= valid || weight == 0) return 0.0f;  // also of a masked row that holds NaN
    return expf(logit - max) * scale - (c == id ? weight : 0.0f);
  };
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * V; c < cols; c += kRowBlock * V) {
    if (c + V <= cols) {
      float v[V];
      load(logits.at(r, c), v);
      TRIAX_UNROLL
      for (int i = 0; i < V; ++i) v[i] = gradient(v[i], c + i);
      store(logits.at(r, c), v);
    } else {
      for (int64_t i = c; i < cols; ++i) {
        global_write(logits.at(r, i), from_float<T>(gradient(to_float(global_read(logits.at(r, i))), i)));
      }
    }
  }
}

void check_loss(const char* operation, const Tensor& logits, int64_t valid, const Tensor& row_max) {
  ensure(valid >= 0 && valid <= logits.cols(), "cross_entropy: more valid columns than columns");
  need_vector(operation, "row_max", row_max, DType::Float32, logits.rows());
}

/// f(Type<T>(), width) with the widest access that the rows allow.
template <class F>
void with_rows(const char* operation, const Tensor& logits, F&& f) {
  with_type(operation, logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (aligned_for(logits, kVector<T>)) return f(type, std::integral_constant<int, kVector<T>>());
    return f(type, std::integral_constant<int, 1>());
  });
}

}  // namespace

void CudaDevice::cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) {
  check_loss("cross_entropy_max", logits, valid, row_max);
  if (logits.rows() == 0) return;
  with_rows("cross_entropy_max", logits, [&](auto type, auto width) {
    using T = typename decltype(type)::type;
    TRIAX_LAUNCH((row_maximum<T, decltype(width)::value>), static_cast<unsigned>(logits.rows()), kRowBlock, 0, stream(),
                 rows_of<const T>(logits), valid, row_max.as<float>());
  });
}

void CudaDevice::cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                   Tensor sum_exp, Tensor target_logit) {
  const char* const name = "cross_entropy_sum";
  check_loss(name, logits, valid, row_max);
  need_vector(name, "target", target, DType::Int32, logits.rows());
  need_vector(name, "sum_exp", sum_exp, DType::Float32, logits.rows());
  need_vector(name, "target_logit", target_logit, DType::Float32, logits.rows());
  if (logits.rows() == 0) return;
  with_rows(name, logits, [&](auto type, auto width) {
    using T = typename decltype(type)::type;
    TRIAX_LAUNCH((row_sum_exp<T, decltype(width)::value>), static_cast<unsigned>(logits.rows()), kRowBlock, 0, stream(),
                 rows_of<const T>(logits), first, valid, target.as<int32_t>(), row_max.as<float>(), sum_exp.as<float>(),
                 target_logit.as<float>());
  });
}

void CudaDevice::cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask, Tensor loss_sum) {
  const char* const name = "cross_entropy_loss";
  const int64_t rows = row_max.numel();
  need_vector(name, "row_max", row_max, DType::Float32, rows);
  need_vector(name, "sum_exp", sum_exp, DType::Float32, rows);
  need_vector(name, "target_logit", target_logit, DType::Float32, rows);
  if (mask) need_vector(name, "mask", mask, DType::Float32, rows);
  need_vector(name, "loss_sum", loss_sum, DType::Float64, 1);
  TRIAX_LAUNCH(sum_losses, 1u, kLossBlock, 0, stream(), row_max.as<float>(), sum_exp.as<float>(),
               target_logit.as<float>(), static_cast<const float*>(mask.data()), rows, loss_sum.as<double>());
}

void CudaDevice::cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                        Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) {
  const char* const name = "cross_entropy_backward";
  check_loss(name, logits, valid, row_max);
  need_vector(name, "target", target, DType::Int32, logits.rows());
  need_vector(name, "sum_exp", sum_exp, DType::Float32, logits.rows());
  if (mask) need_vector(name, "mask", mask, DType::Float32, logits.rows());
  ensure(step != nullptr, "cross_entropy_backward: step is missing");
  if (logits.numel() == 0) return;
  with_rows(name, logits, [&](auto type, auto width) {
    using T = typename decltype(type)::type;
    TRIAX_LAUNCH((row_gradient<T, decltype(width)::value>), static_cast<unsigned>(logits.rows()), kRowBlock, 0,
                 stream(), rows_of<T>(logits), logits.cols(), first, valid, target.as<int32_t>(), row_max.as<float>(),
                 sum_exp.as<float>(), static_cast<const float*>(mask.data()), seed_factor, step);
  });
}

}  // namespace triax::kernels
