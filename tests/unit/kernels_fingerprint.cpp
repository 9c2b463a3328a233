// Every field of every argument changes the fingerprint of an operation.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "kernels/fingerprint.h"

namespace triax::kernels {
namespace {

struct Everything {
  Gemm gemm;
  Attention attention;
  Dropout dropout;
  TokenIndex index;
  Tensor tensor;
  double number = 0.1;
  int64_t integer = 1;
  Accumulate accumulate = Accumulate::No;
};

Fingerprint fingerprint_of(const Everything& e) {
  Fingerprint f;
  f.add_all(e.gemm, e.attention, e.dropout, e.index, e.tensor, e.number, e.integer, e.accumulate);
  return f;
}

TEST(Fingerprint, EveryFieldCounts) {
  std::vector<float> memory(100);
  StepBlock block;
  const Tensor t(memory.data(), DType::Float32, {4, 6});
  Everything base;
  for (Tensor* each :
       {&base.gemm.a, &base.gemm.b, &base.gemm.c, &base.gemm.bias, &base.gemm.fp8_a.scale, &base.gemm.fp8_a.amax,
        &base.gemm.fp8_b.scale, &base.gemm.fp8_b.amax, &base.attention.index.sample, &base.attention.index.position,
        &base.index.sample, &base.index.position, &base.tensor}) {
    *each = t;
  }
  std::vector<std::function<void(Everything&)>> changes;
  // A tensor in each place where one stands, in each of its parts.
  using Place = std::function<Tensor&(Everything&)>;
  const std::vector<Place> places{[](auto& e) -> Tensor& { return e.gemm.a; },
                                  [](auto& e) -> Tensor& { return e.gemm.b; },
                                  [](auto& e) -> Tensor& { return e.gemm.c; },
                                  [](auto& e) -> Tensor& { return e.gemm.bias; },
                                  [](auto& e) -> Tensor& { return e.gemm.fp8_a.scale; },
                                  [](auto& e) -> Tensor& { return e.gemm.fp8_a.amax; },
                                  [](auto& e) -> Tensor& { return e.gemm.fp8_b.scale; },
                                  [](auto& e) -> Tensor& { return e.gemm.fp8_b.amax; },
                                  [](auto& e) -> Tensor& { return e.attention.index.sample; },
                                  [](auto& e) -> Tensor& { return e.attention.index.position; },
                                  [](auto& e) -> Tensor& { return e.index.sample; },
                                  [](auto& e) -> Tensor& { return e.index.position; },
                                  [](auto& e) -> Tensor& { return e.tensor; }};
  const std::vector<Tensor> others{Tensor(memory.data() + 1, DType::Float32, {4, 6}),
                                   Tensor(memory.data(), DType::Int32, {4, 6}),
                                   Tensor(memory.data(), DType::Float32, {6, 4}),
                                   Tensor(memory.data(), DType::Float32, {24}),
                                   Tensor(memory.data(), DType::Float32, {2, 2, 6}),
                                   Tensor(memory.data(), DType::Float32, {4, 12}).col_slice(0, 6),
                                   Tensor()};
  for (const Place& place : places) {
    for (const Tensor& other : others) changes.push_back([=](Everything& e) { place(e) = other; });
  }
  const std::vector<std::function<void(Everything&)>> fields{
      [](auto& e) { e.gemm.transpose_a = Transpose::Yes; },
      [](auto& e) { e.gemm.transpose_b = Transpose::Yes; },
      [](auto& e) { e.gemm.accumulate = Accumulate::Yes; },
      [](auto& e) { e.gemm.fp8_a.type = DType::Float8E5M2; },
      [](auto& e) { e.gemm.fp8_b.type = DType::Float8E5M2; },
      [](auto& e) { e.gemm.fp8_a.scaling = Fp8Scaling::Current; },
      [](auto& e) { e.gemm.fp8_b.scaling = Fp8Scaling::Current; },
      [](auto& e) { e.gemm.fp8_a.margin = 1; },
      [](auto& e) { e.gemm.fp8_b.margin = 1; },
      [](auto& e) { e.attention.batch = 2; },
      [](auto& e) { e.attention.seq_length = 2; },
      [](auto& e) { e.attention.heads = 2; },
      [](auto& e) { e.attention.kv_heads = 2; },
      [](auto& e) { e.attention.head_dim = 2; },
      [](auto& e) { e.attention.head_begin = 2; },
      [](auto& e) { e.attention.scale = 2; },
      [](auto& e) { e.attention.dropout.p = 0.5; },
      [](auto& e) { e.attention.dropout.seed = 2; },
      [](auto& e) { e.attention.dropout.site = 2; },
      [&](auto& e) { e.attention.dropout.step = &block; },
      [](auto& e) { e.dropout.p = 0.5; },
      [](auto& e) { e.dropout.seed = 2; },
      [](auto& e) { e.dropout.site = 2; },
      [&](auto& e) { e.dropout.step = &block; },
      [](auto& e) { e.number = 0.2; },
      [](auto& e) { e.number = -0.1; },
      [](auto& e) { e.integer = 2; },
      [](auto& e) { e.integer = -1; },
      [](auto& e) { e.accumulate = Accumulate::Yes; }};
  changes.insert(changes.end(), fields.begin(), fields.end());
  std::set<Fingerprint> all{fingerprint_of(base)};
  EXPECT_EQ(fingerprint_of(base), fingerprint_of(base));
  for (const auto& change : changes) {
    Everything e = base;
    change(e);
    all.insert(fingerprint_of(e));
  }
  EXPECT_EQ(all.size(), 1 + 13 * 7 + 29u);
}

TEST(Fingerprint, OrderCounts) {
  Fingerprint ab, ba, none, zero;
  ab.add_all(int64_t{1}, int64_t{2});
  ba.add_all(int64_t{2}, int64_t{1});
  zero.add(int64_t{0});
  EXPECT_NE(ab, ba);
  EXPECT_NE(none, zero);
}

}  // namespace
}  // namespace triax::kernels
