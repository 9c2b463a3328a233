// oneDNN's matmul, by the interface of 2.x or of 3.x. On AVX-512 its results do not depend on how M and N are split,
// nor on the number of threads (tests/unit/kernels_gemm.cpp holds it to that).
#include "kernels/cpu/dnnl_gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <unordered_map>

namespace triax::kernels {
namespace {

/// What a primitive depends on.
struct Key {
  std::array<int64_t, 7> values;  // m, n, k, row strides of a, b, c, packed flags
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 14695981039346656037ull;
    for (const int64_t v : key.values) h = (h ^ static_cast<uint64_t>(v)) * 1099511628211ull;
    return static_cast<size_t>(h ^ (h >> 32));
  }
};

/// A primitive with its arguments, whose data pointers are set at each run.
struct Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratch;
  size_t scratch_bytes = 0;
  bool usable = false;
};

/// oneDNN starts as many OpenMP threads as the calling thread's setting says.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  ThreadScope(ThreadScope&&) = delete;
  ThreadScope& operator=(ThreadScope&&) = delete;
  ~ThreadScope() { omp_set_num_threads(before_); }

 private:
  int before_;
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::Float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

/// The rows of A and C that a product takes, all or every second; B is whole.
struct Rows {
  int64_t count;
  void *a, *c;
  int64_t a_stride, c_stride;
};

/// Rows first, first + step, ... of op(A) = A and of C.
Rows rows_of(const Gemm& g, int64_t first, int64_t step) {
  const auto at = [&](const Tensor& t) {
    return static_cast<char*>(t.data()) + first * t.row_stride() * static_cast<int64_t>(size_of(t.dtype()));
  };
  return {(g.c.rows() - first + step - 1) / step, at(g.a), at(g.c), step * g.a.row_stride(), step * g.c.row_stride()};
}

dnnl::memory::desc matrix(DType dtype, int64_t rows, int64_t cols, int64_t row_stride, Transpose transpose) {
  const dnnl::memory::dims strides =
      transpose == Transpose::Yes ? dnnl::memory::dims{1, row_stride} : dnnl::memory::dims{row_stride, 1};
  return {{rows, cols}, type_of(dtype), strides};
}

dnnl::matmul::primitive_desc make_description(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                              const dnnl::memory::desc& b, const dnnl::memory::desc* bias,
                                              const dnnl::memory::desc& c, const dnnl::primitive_attr& attributes) {
  constexpr bool kAllowEmpty = true;
#if DNNL_VERSION_MAJOR >= 3
  return bias != nullptr ? dnnl::matmul::primitive_desc(engine, a, b, *bias, c, attributes, kAllowEmpty)
                         : dnnl::matmul::primitive_desc(engine, a, b, c, attributes, kAllowEmpty);
#else
  const dnnl::matmul::desc description =
      bias != nullptr ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
  return dnnl::matmul::primitive_desc(description, attributes, engine, kAllowEmpty);
#endif
}

/// op(A) = A, op(B) = B with dense rows of A: oneDNN 2.x then takes another way through A, a sixth slower in fp32 (a
/// third at k = 50304) and in bf16 from this k on. Rows 0, 2, 4 ... and 1, 3, 5 ... as two products are not dense. The
/// choice looks at k alone, as the sides of C may be cut by tensor parallelism.
bool better_in_two(const Gemm& g, int64_t k) {
#if DNNL_VERSION_MAJOR >= 3 || !defined(__x86_64__)
  (void)g;
  (void)k;
  return false;
#else
  if (!__builtin_cpu_supports("avx512bw")) return false;
  constexpr int64_t kLeastBf16 = 2048;
  const bool plain = g.transpose_a == Transpose::No && g.transpose_b == Transpose::No;
  return plain && g.c.rows() > 1 && g.a.row_stride() == k && (g.a.dtype() == DType::Float32 || k >= kLeastBf16);
#endif
}

[[noreturn]] void fail(const dnnl::error& e, const char* call, int line) {
  throw ApiError("oneDNN", call, static_cast<int>(e.status), e.message, __FILE__, line);
}

}  // namespace

struct DnnlGemm::Impl {
  Impl(Arena& arena, int thread_count)
      : workspace(&arena), threads(thread_count), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  Product make(const Gemm& g, const Rows& rows, int64_t n, int64_t k) const {
    const int64_t m = rows.count;
    const dnnl::memory::desc a = matrix(g.a.dtype(), m, k, rows.a_stride, g.transpose_a);
    const dnnl::memory::desc b = matrix(g.b.dtype(), k, n, g.b.row_stride(), g.transpose_b);
    const dnnl::memory::desc c = matrix(g.c.dtype(), m, n, rows.c_stride, Transpose::No);
    const dnnl::memory::desc bias = matrix(g.a.dtype(), 1, n, n, Transpose::No);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (g.accumulate == Accumulate::Yes) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attributes.set_post_ops(ops);
    }
    Product product;
    const dnnl::matmul::primitive_desc pd = make_description(engine, a, b, g.bias ? &bias : nullptr, c, attributes);
    // The reference implementation would be slower than converting to fp32 and multiplying there.
    if (!pd || std::strncmp(pd.impl_info_str(), "ref", 3) == 0) return product;
    product.primitive = dnnl::matmul(pd);
    product.a = dnnl::memory(a, engine, nullptr);
    product.b = dnnl::memory(b, engine, nullptr);
    product.c = dnnl::memory(c, engine, nullptr);
    if (g.bias) product.bias = dnnl::memory(bias, engine, nullptr);
    product.scratch = dnnl::memory(pd.scratchpad_desc(), engine, nullptr);
    product.scratch_bytes = pd.scratchpad_desc().get_size();
    product.usable = true;
    return product;
  }

  void execute(Product& product, const Gemm& g, const Rows& rows) const {
    Buffer scratch;
    if (product.scratch_bytes > 0) {
      scratch = workspace->allocate(product.scratch_bytes, MemoryCategory::Workspace);
      product.scratch.set_data_handle(scratch.data());
    }
    product.a.set_data_handle(rows.a);
    product.b.set_data_handle(g.b.data());
    product.c.set_data_handle(rows.c);
    // The C interface takes an array, where the C++ one would build a map at every call.
    std::array<dnnl_exec_arg_t, 5> arguments{{{DNNL_ARG_SRC, product.a.get()},
                                              {DNNL_ARG_WEIGHTS, product.b.get()},
                                              {DNNL_ARG_DST, product.c.get()},
                                              {DNNL_ARG_SCRATCHPAD, product.scratch.get()},
                                              {}}};
    int count = 4;
    if (g.bias) {
      product.bias.set_data_handle(g.bias.data());
      arguments[static_cast<size_t>(count++)] = {DNNL_ARG_BIAS, product.bias.get()};
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(product.primitive.get(), stream.get(), count, arguments.data()),
                            "could not execute a matmul");
  }

  /// False when oneDNN has nothing fast for it.
  bool multiply(const Gemm& g, const Rows& rows, int64_t k) {
    const int64_t flags = (g.a.dtype() == DType::BFloat16 ? 1 : 0) | (g.c.dtype() == DType::BFloat16 ? 2 : 0) |
                          (g.transpose_a == Transpose::Yes ? 4 : 0) | (g.transpose_b == Transpose::Yes ? 8 : 0) |
                          (g.accumulate == Accumulate::Yes ? 16 : 0) | (g.bias ? 32 : 0);
    const Key key{{rows.count, g.c.cols(), k, rows.a_stride, g.b.row_stride(), rows.c_stride, flags}};
    auto found = products.find(key);
    if (found == products.end()) found = products.emplace(key, make(g, rows, g.c.cols(), k)).first;
    if (!found->second.usable) return false;
    execute(found->second, g, rows);
    return true;
  }

  Arena* workspace;
  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
  std::unordered_map<Key, Product, KeyHash> products;
};

DnnlGemm::DnnlGemm(Arena& workspace, int threads) {
  try {
    impl_ = std::make_unique<Impl>(workspace, threads);
  } catch (const dnnl::error& e) {
    fail(e, "engine and stream", __LINE__);
  }
}

DnnlGemm::~DnnlGemm() = default;

std::string DnnlGemm::description() const {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

bool DnnlGemm::run(const Gemm& g) {
  if (g.a.dtype() != DType::Float32 && g.a.dtype() != DType::BFloat16) return false;
  if (g.c.dtype() != DType::Float32 && g.c.dtype() != DType::BFloat16) return false;
  const int64_t k = g.transpose_a == Transpose::Yes ? g.a.rows() : g.a.cols();
  try {
    const ThreadScope scope(impl_->threads);
    if (!better_in_two(g, k)) return impl_->multiply(g, rows_of(g, 0, 1), k);
    return impl_->multiply(g, rows_of(g, 0, 2), k) && impl_->multiply(g, rows_of(g, 1, 2), k);
  } catch (const dnnl::error& e) {
    fail(e, "matmul", __LINE__);
  }
}

}  // namespace triax::kernels
