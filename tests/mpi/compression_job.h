// What the MPI tests of compressed sums share: gradients by content, a group, references.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "comm/compression/compressed_sum.h"
#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm::testing {

inline constexpr CompressionMethod kMethods[] = {CompressionMethod::TopK, CompressionMethod::PowerSgd,
                                                 CompressionMethod::Qsgd, CompressionMethod::Int8,
                                                 CompressionMethod::BFloat16};

inline GradientTensor tensor(const std::string& name, int64_t begin, int64_t rows, int64_t cols,
                             int64_t global_begin = 0, int64_t global_cols = 0) {
  return {name, stream_of(name), begin, rows * cols, rows, cols, global_begin, global_cols > 0 ? global_cols : cols};
}

/// Two buckets of matrices and vectors with gaps of zeros between; one tensor of each is exempt.
inline std::vector<CompressedBucket> buckets_of() {
  CompressedBucket a{0, 4800, {tensor("a", 0, 40, 50), tensor("bias", 2016, 1, 70), tensor("b", 2112, 7, 300)}};
  CompressedBucket b{4800, 7680, {tensor("table", 4800, 20, 24), tensor("c", 5280, 48, 50)}};
  a.tensors[1].compressed = false;
  b.tensors[0].compressed = false;
  return {a, b};
}

struct Job {
  explicit Job(DType type = DType::Float64, int64_t elements = 7680)
      : grid(test::session(), options()),
        device(kernels::make_cpu_device({1})),
        arena(device->memory()),
        buffer(arena.allocate(type, elements, MemoryCategory::Gradients)),
        gradient(buffer.view(type, {elements})),
        reference_buffer(arena.allocate(type, elements, MemoryCategory::Gradients)),
        reference(reference_buffer.view(type, {elements})) {
    device->fill(gradient, 0);
  }
  static GridOptions options() {
    GridOptions options;
    options.shape.data = test::session().size();
    options.timeout_s = 60;
    return options;
  }
  CompressionContext context() { return {&grid.data(), device.get(), &arena, gradient}; }
  int rank() { return grid.data().rank(); }
  int ranks() { return grid.data().size(); }
  double get(Tensor t, int64_t i) const {
    return t.dtype() == DType::Float64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
  }
  void set(int64_t i, double v) {
    if (gradient.dtype() == DType::Float64) {
      gradient.as<double>()[i] = v;
    } else {
      gradient.as<float>()[i] = static_cast<float>(v);
    }
  }
  /// By content: name, element of the global tensor, step and rank.
  void fill(const std::vector<CompressedBucket>& buckets, uint64_t step) {
    device->fill(gradient, 0);
    for (const CompressedBucket& b : buckets) {
      for (const GradientTensor& t : b.tensors) {
        for (int64_t i = 0; i < t.count; ++i) {
          const int64_t global = t.global_begin + i / t.cols * t.global_cols + i % t.cols;
          set(t.begin + i,
              normal_at(step * 100 + static_cast<uint64_t>(rank()), t.stream, static_cast<uint64_t>(global)));
        }
      }
    }
  }
  /// reference = sum over ranks of the gradient, uncompressed.
  void sum_reference() {
    device->copy(gradient, reference);
    grid.data().all_reduce(reference, ReduceOp::Sum).wait();
  }
  void run(BucketSum& sum, size_t buckets, uint64_t step) {
    for (size_t b = 0; b < buckets; ++b) sum.start(b, step);
    sum.finish();
  }
  double over_ranks(double x) {
    grid.data().all_reduce(Tensor(&x, DType::Float64, {1}), ReduceOp::Sum).wait();
    return x;
  }
  double sent() { return grid.ledger().total_sent_bytes(); }
  /// All ranks hold the gradient of rank 0, bit for bit.
  void expect_replicated() {
    device->copy(gradient, reference);
    grid.data().broadcast(reference, 0).wait();
    EXPECT_EQ(std::memcmp(reference.data(), gradient.data(), static_cast<size_t>(gradient.bytes())), 0);
  }

  ProcessGrid grid;
  std::unique_ptr<kernels::Device> device;
  Arena arena;
  Buffer buffer;
  Tensor gradient;
  Buffer reference_buffer;
  Tensor reference;
};

inline CompressionOptions options_of(CompressionMethod method) {
  CompressionOptions options;
  options.method = method;
  options.density = 0.1;
  options.rank = 3;
  options.block_length = 64;
  options.min_elements = 0;
  return options;
}

}  // namespace triax::comm::testing
