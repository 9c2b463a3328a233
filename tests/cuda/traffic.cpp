// Bytes of the memory-bound kernels against the fewest possible: every input read once, every output written once.
// Counted on the emulated device in sectors of 32 bytes per access of a warp (tests/emulated/traffic.h), tensors at
// multiples of 32 bytes, rows enough that what a block reads once for all of its rows is small.
#include "tests/emulated/traffic.h"

#include "kernels/compression.h"
#include "tests/cuda/cuda_testing.h"

namespace triax::kernels::testing {
namespace {

constexpr double kMost = 1.05;

/// Device memory of one test.
class Memory {
 public:
  Tensor filled(DType dtype, int64_t rows, int64_t cols, double value = 0.5) {
    buffers_.push_back(arena_.allocate(dtype, rows * cols, MemoryCategory::Workspace));
    const Tensor t = buffers_.back().view(dtype, {rows, cols});
    if (dtype <= DType::Float16) cuda_device().fill(t, value);
    return t;
  }
  Tensor vector(DType dtype, int64_t n, double value = 0.5) { return filled(dtype, 1, n, value).flat(); }
  template <class T>
  Tensor integers(DType dtype, int64_t n, T (*value)(int64_t)) {
    std::vector<T> host;
    for (int64_t i = 0; i < n; ++i) host.push_back(value(i));
    const Tensor t = vector(dtype, n);
    cuda_device().upload(Tensor(host.data(), dtype, {n}), t);
    return t;
  }
  const StepBlock* step() {
    buffers_.push_back(arena_.allocate(sizeof(StepBlock), MemoryCategory::Workspace));
    auto* const at = static_cast<StepBlock*>(buffers_.back().data());
    cuda_device().upload_step({}, at);
    return at;
  }

 private:
  Arena arena_{cuda_device().memory()};
  std::vector<Buffer> buffers_;
};

int64_t bytes_of(std::initializer_list<Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  return bytes;
}

struct Moved {
  double bytes = 0;
  uint64_t launches = 0;
};

/// What the kernels of `call` load and store.
template <class F>
Moved moved_by(F&& call) {
  static const auto count =
      reinterpret_cast<simt::CountTraffic>(cuda_module_symbol(CudaModule::Emulated, "triax_emulated_count_traffic"));
  static const auto read =
      reinterpret_cast<simt::ReadTraffic>(cuda_module_symbol(CudaModule::Emulated, "triax_emulated_traffic"));
  cuda_device().synchronize();
  count(1);
  call(cuda_device());
  cuda_device().synchronize();
  count(0);
  const char* names[16];
  simt::Traffic traffic[16];
  const size_t kernels = read(names, traffic, 16);
  Moved all;
  for (size_t i = 0; i < kernels; ++i) {
    all.bytes += static_cast<double>(traffic[i].loaded_bytes + traffic[i].stored_bytes);
    all.launches += traffic[i].launches;
  }
  return all;
}

/// The bytes of `read` and `written` are the fewest that `call` can move; less than that would be an access that is not
/// counted.
template <class F>
void expect_minimum(const std::string& what, std::initializer_list<Tensor> read, std::initializer_list<Tensor> written,
                    F&& call) {
  const auto fewest = static_cast<double>(bytes_of(read) + bytes_of(written));
  const double ratio = moved_by(call).bytes / fewest;
  std::printf("%-40s %12.0f bytes at least, %.3f times that moved\n", what.c_str(), fewest, ratio);
  EXPECT_GE(ratio, 1) << what;
  EXPECT_LE(ratio, kMost) << what;
}

std::string of(const char* operation, DType dtype) {
  return std::string(operation) + " " + std::string(name_of(dtype));
}

class CudaTraffic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_emulated()) GTEST_SKIP() << "bytes are counted on the emulated device";
  }
};

TEST_F(CudaTraffic, Elementwise) {
  for (const DType from : kCudaTypes) {
    Memory m;
    const Tensor x = m.filled(from, 300, 1024);
    for (const DType to : kCudaTypes) {
      const Tensor y = m.filled(to, 300, 1024);
      const std::string pair = of("copy", from) + " to " + std::string(name_of(to));
      expect_minimum(pair, {x}, {y}, [&](Device& d) { d.copy(x, y); });
      expect_minimum("add in " + pair, {x, y}, {y}, [&](Device& d) { d.add(x, y); });
    }
    expect_minimum(of("scale", from), {x}, {x}, [&](Device& d) { d.scale(x, 0.5); });
    expect_minimum(of("fill", from), {}, {x}, [&](Device& d) { d.fill(x, 2); });
  }
}

TEST_F(CudaTraffic, Activations) {
  for (const DType dtype : kCudaTypes) {
    Memory m;
    const Tensor x = m.filled(dtype, 150, 2048), dx = m.filled(dtype, 150, 2048);
    const Tensor y = m.filled(dtype, 150, 1024), dy = m.filled(dtype, 150, 1024), z = m.filled(dtype, 150, 2048);
    expect_minimum(of("gelu_forward", dtype), {x}, {z}, [&](Device& d) { d.gelu_forward(x, z); });
    expect_minimum(of("gelu_backward", dtype), {z, x}, {dx}, [&](Device& d) { d.gelu_backward(z, x, dx); });
    expect_minimum(of("swiglu_forward", dtype), {x}, {y}, [&](Device& d) { d.swiglu_forward(x, y); });
    expect_minimum(of("swiglu_backward", dtype), {dy, x}, {dx}, [&](Device& d) { d.swiglu_backward(dy, x, dx); });
  }
}

// Rows of 1024 bytes; LayerNorm in bf16, where the weights weigh most, and RMSNorm in fp32.
TEST_F(CudaTraffic, NormsForward) {
  Memory m;
  const int64_t rows = 12288;
  const Tensor mean = m.vector(DType::Float32, rows), rstd = m.vector(DType::Float32, rows);
  const Tensor x = m.filled(DType::BFloat16, rows, 512), y = m.filled(DType::BFloat16, rows, 512);
  const Tensor gamma = m.vector(DType::BFloat16, 512), beta = m.vector(DType::BFloat16, 512);
  expect_minimum("layer_norm_forward bf16", {x, gamma, beta}, {y, mean, rstd},
                 [&](Device& d) { d.layer_norm_forward(x, gamma, beta, 1e-5, y, mean, rstd); });
  const Tensor wide = m.filled(DType::Float32, rows, 256), out = m.filled(DType::Float32, rows, 256);
  const Tensor weight = m.vector(DType::Float32, 256);
  expect_minimum("rms_norm_forward fp32", {wide, weight}, {out, rstd},
                 [&](Device& d) { d.rms_norm_forward(wide, weight, 1e-5, out, rstd); });
}

TEST_F(CudaTraffic, NormsBackward) {
  Memory m;
  const int64_t rows = 16384, cols = 512;
  const Tensor mean = m.vector(DType::Float32, rows, 0), rstd = m.vector(DType::Float32, rows, 1);
  const Tensor dgamma = m.vector(DType::Float32, cols), dbeta = m.vector(DType::Float32, cols);
  const auto matrix = [&](DType dtype) { return m.filled(dtype, rows, cols); };
  const Tensor dy = matrix(DType::BFloat16), x = matrix(DType::BFloat16), dx = matrix(DType::BFloat16);
  const Tensor gamma = m.vector(DType::BFloat16, cols);
  expect_minimum(
      "layer_norm_backward bf16", {dy, x, gamma, mean, rstd, dgamma, dbeta}, {dx, dgamma, dbeta},
      [&](Device& d) { d.layer_norm_backward(dy, x, gamma, mean, rstd, dx, Accumulate::No, dgamma, dbeta); });
  const auto half = [&] { return m.filled(DType::Float32, rows, cols / 2); };
  const Tensor dy32 = half(), x32 = half(), dx32 = half(), gamma32 = m.vector(DType::Float32, cols / 2);
  const Tensor dgamma32 = m.vector(DType::Float32, cols / 2);
  expect_minimum("rms_norm_backward fp32, dx accumulates", {dy32, x32, gamma32, rstd, dgamma32, dx32}, {dx32, dgamma32},
                 [&](Device& d) { d.rms_norm_backward(dy32, x32, gamma32, rstd, dx32, Accumulate::Yes, dgamma32); });
}

TEST_F(CudaTraffic, AKernelThatReadsItsRowsTwiceFails) {
  // Unaligned rows take the kernel that passes over them again: what the bound is there to find.
  Memory m;
  const Tensor whole = m.filled(DType::Float32, 64, 1032), out = m.filled(DType::Float32, 64, 1032);
  const Tensor x = whole.col_slice(0, 1023), y = out.col_slice(0, 1023);
  const Tensor gamma = m.vector(DType::Float32, 1023), rstd = m.vector(DType::Float32, 64);
  const double ratio = moved_by([&](Device& d) { d.rms_norm_forward(x, gamma, 1e-5, y, rstd); }).bytes /
                       static_cast<double>(bytes_of({x, y, gamma, rstd}));
  EXPECT_GT(ratio, 1.4);
}

TEST_F(CudaTraffic, Rotary) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    Memory m;
    const int64_t rows = 4096, heads = 3, dim = 128;
    const Tensor x = m.filled(dtype, rows, heads * dim);
    const Tensor cos = m.filled(DType::Float32, rows, dim / 2), sin = m.filled(DType::Float32, rows, dim / 2);
    const Tensor position =
        m.integers<int32_t>(DType::Int32, rows, [](int64_t i) { return static_cast<int32_t>(i * 37 % 4096); });
    expect_minimum(of("rotary", dtype), {x, cos, sin, position}, {x},
                   [&](Device& d) { d.rotary(x, cos, sin, position, heads, Device::RotaryDirection::Forward); });
  }
}

TEST_F(CudaTraffic, DropoutAndBias) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    Memory m;
    const int64_t rows = 12288, cols = 512;
    const Tensor x = m.filled(dtype, rows, cols), residual = m.filled(dtype, rows, cols),
                 y = m.filled(dtype, rows, cols);
    const Tensor bias = m.vector(dtype, cols), dbias = m.vector(DType::Float32, cols);
    const Dropout dropout{0.1, 1, 3, m.step()};
    const TokenIndex index{
        m.integers<int64_t>(DType::Int64, 4, [](int64_t i) { return i; }),
        m.integers<int32_t>(DType::Int32, rows, [](int64_t i) { return static_cast<int32_t>(i / 4); })};
    expect_minimum(of("bias_dropout_add_forward", dtype), {x, bias, residual, index.position, index.sample}, {y},
                   [&](Device& d) { d.bias_dropout_add_forward(x, bias, residual, dropout, index, y); });
    expect_minimum(of("bias_dropout_backward", dtype), {x, index.position, index.sample, dbias}, {y, dbias},
                   [&](Device& d) { d.bias_dropout_backward(x, dropout, index, y, dbias); });
    expect_minimum(of("bias_backward", dtype), {x, dbias}, {dbias}, [&](Device& d) { d.bias_backward(x, dbias); });
  }
}

TEST_F(CudaTraffic, CrossEntropyPassByPass) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    Memory m;
    const int64_t rows = 5, vocabulary = 50304, valid = 50257;
    const Tensor logits = m.filled(dtype, rows, vocabulary), seen = logits.col_slice(0, valid);
    const Tensor max = m.vector(DType::Float32, rows), sum = m.vector(DType::Float32, rows, 2);
    const Tensor picked = m.vector(DType::Float32, rows), mask = m.vector(DType::Float32, rows, 1);
    const Tensor target =
        m.integers<int32_t>(DType::Int32, rows, [](int64_t i) { return static_cast<int32_t>(i * 9000); });
    const StepBlock* const step = m.step();
    expect_minimum(of("cross_entropy_max", dtype), {seen}, {max},
                   [&](Device& d) { d.cross_entropy_max(logits, valid, max); });
    expect_minimum(of("cross_entropy_sum", dtype), {seen, max, target}, {sum, picked},
                   [&](Device& d) { d.cross_entropy_sum(logits, 0, valid, target, max, sum, picked); });
    expect_minimum(of("cross_entropy_backward", dtype), {logits, max, sum, target, mask}, {logits},
                   [&](Device& d) { d.cross_entropy_backward(logits, 0, valid, target, max, sum, mask, 1, step); });
  }
  Memory m;
  const int64_t rows = 16384;
  const Tensor max = m.vector(DType::Float32, rows), sum = m.vector(DType::Float32, rows),
               loss = m.vector(DType::Int64, 1);
  const Tensor total(loss.data(), DType::Float64, {1});
  cuda_device().fill(total, 0);
  expect_minimum("cross_entropy_loss", {max, sum, max, total}, {total},
                 [&](Device& d) { d.cross_entropy_loss(max, sum, max, {}, total); });
}

TEST_F(CudaTraffic, Reductions) {
  for (const DType dtype : kCudaTypes) {
    Memory m;
    const Tensor x = m.vector(dtype, 500000);
    const Tensor out(m.vector(DType::Int64, 1).data(), DType::Float64, {1});
    cuda_device().fill(out, 0);
    expect_minimum(of("sum_of_squares", dtype), {x, out}, {out}, [&](Device& d) { d.sum_of_squares(x, out); });
    expect_minimum(of("count_nonfinite", dtype), {x, out}, {out}, [&](Device& d) { d.count_nonfinite(x, out); });
  }
}

TEST_F(CudaTraffic, Optimizers) {
  for (const DType grad_type : kCudaTypes) {
    for (const DType param_type : {DType::Float32, DType::BFloat16}) {
      Memory m;
      const int64_t n = 300000;
      const Tensor w = m.vector(DType::Float32, n), v = m.vector(DType::Float32, n), s = m.vector(DType::Float32, n);
      const Tensor grad = m.vector(grad_type, n);
      const Tensor param = param_type == DType::Float32 ? Tensor() : m.vector(param_type, n);
      const StepBlock* const step = m.step();
      const std::string types = of("grad", grad_type) + (param ? " param bf16" : "");
      expect_minimum("adamw " + types, {w, v, s, grad}, {w, v, s, param}, [&](Device& d) {
        d.adamw({w, v, s, grad, param, 0.9, 0.95, 1e-8, 0.1}, step);
      });
      expect_minimum("sgd " + types, {w, v, grad}, {w, v, param}, [&](Device& d) {
        d.sgd({w, v, grad, param, 0.9, 0.1}, step);
      });
    }
  }
}

TEST_F(CudaTraffic, AdamWOfManyRangesIsOneLaunch) {
  Memory m;
  const auto array = [&](DType dtype) { return m.vector(dtype, 200000); };
  const Tensor w = array(DType::Float32), v = array(DType::Float32), s = array(DType::Float32);
  const Tensor grad = array(DType::Float32), param = array(DType::BFloat16);
  const StepBlock* const step = m.step();
  std::vector<AdamW> ranges;
  for (int64_t begin = 0; begin < 200000; begin += 4000) {
    const auto part = [&](const Tensor& t) { return t.range(begin, begin + 4000); };
    ranges.push_back(
        {part(w), part(v), part(s), part(grad), part(param), 0.9, 0.95, 1e-8, begin % 8000 == 0 ? 0.1 : 0});
  }
  const Moved moved = moved_by([&](Device& d) { d.adamw_many(ranges, step); });
  EXPECT_EQ(moved.launches, 1u);
  EXPECT_LE(moved.bytes, kMost * 200000 * 30);
}

TEST_F(CudaTraffic, Compression) {
  Memory m;
  const int64_t n = 1 << 20, k = n / 100;
  const Tensor x = m.vector(DType::Float32, n), residual = m.vector(DType::Float32, n, 0.25);
  const CodeSegment s{.count = n, .row_length = n, .block_length = 256};
  for (const Codec codec : {Codec::BFloat16, Codec::Int8, Codec::Qsgd, Codec::Sign}) {
    const Tensor packed = m.vector(DType::UInt8, packed_bytes(codec, s));
    const std::string which = std::to_string(static_cast<int>(codec));
    expect_minimum("encode of codec " + which, {x, residual}, {residual, packed}, [&](Device& d) {
      d.compression()->encode({codec, {&s, 1}, x, residual, packed, 127, {}});
    });
    expect_minimum("decode of codec " + which, {packed}, {x}, [&](Device& d) {
      d.compression()->decode(codec, {&s, 1}, packed, x, Decode::Store);
    });
  }
  // Top-K's own minimum (kernels/cuda/top_k.cu): seven passes, a sector for each cleared element, histograms.
  const Tensor value = m.vector(DType::Float32, k), index = m.vector(DType::Int32, k);
  const TopK job{x, residual, value, index, 0};
  const double moved = moved_by([&](Device& d) { d.compression()->top_k({&job, 1}); }).bytes;
  const double blocks = static_cast<double>(n) / 4096;
  EXPECT_GE(moved, 28.0 * n);
  EXPECT_LE(moved, 1.05 * (28.0 * n + 3 * 32.0 * k + 3 * 16384 * blocks));
}

TEST_F(CudaTraffic, Embedding) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    Memory m;
    const int64_t rows = 700, cols = 1024;
    const Tensor table = m.filled(dtype, 2000, cols), dtable = m.filled(DType::Float32, 2000, cols);
    const Tensor y = m.filled(dtype, rows, cols);
    const Tensor token =
        m.integers<int32_t>(DType::Int32, rows, [](int64_t i) { return static_cast<int32_t>(i * 31 % 1999); });
    expect_minimum(of("embedding_forward", dtype), {token, table.row_slice(0, rows)}, {y},
                   [&](Device& d) { d.embedding_forward(token, table, 0, Accumulate::No, y); });
    // Its own minimum: every row of dy, and every row of dtable in and out once.
    const Tensor touched = dtable.row_slice(0, rows);
    expect_minimum(of("embedding_backward", dtype), {token, token, y, touched}, {touched},
                   [&](Device& d) { d.embedding_backward(token, y, 0, dtable); });
    // Tokens that occur twice: each pair touches one row, and for every 512 columns looks through 128 tokens.
    const Tensor twice =
        m.integers<int32_t>(DType::Int32, rows, [](int64_t i) { return static_cast<int32_t>(i / 2 * 5); });
    const Tensor half = dtable.row_slice(0, rows / 2), seen = m.vector(DType::Int32, rows / 2 * 128 * (cols / 512));
    expect_minimum(of("embedding_backward, pairs", dtype), {token, token, y, half, seen}, {half},
                   [&](Device& d) { d.embedding_backward(twice, y, 0, dtable); });
  }
}

}  // namespace
}  // namespace triax::kernels::testing
