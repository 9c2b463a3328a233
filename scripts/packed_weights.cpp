// Would weights that are packed once a step, in the layout that oneDNN likes best, pay? Times y = x W^T and dx = dy W
// at the shapes of two models with weights as they lie and packed, and the packing. No part of the build; oneDNN 2.x:
//   g++ -O2 -std=c++20 -fopenmp scripts/packed_weights.cpp -ldnnl -o packed_weights
//   OMP_NUM_THREADS=2 ./packed_weights [rounds, default 4]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

namespace {

using dnnl::memory;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// y [M, n] = x [M, k] W [n, k]^T, `count` times in a model.
struct Weight {
  const char* name;
  int64_t n, k;
  int count;
};

struct Times {
  double plain_ms = 0, packed_ms = 0, pack_ms = 0;
};

/// Rows first, first + 2, ... where `halves` is 2: how kernels/cpu/dnnl_gemm.cc multiplies a dense A in two products.
void multiply(const dnnl::matmul& product, const dnnl::stream& stream, const memory& a, const memory& b,
              const memory& c, int halves, size_t a_row, size_t c_row, memory& a_part, memory& c_part) {
  if (halves == 1) {
    product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    return;
  }
  for (size_t h = 0; h < 2; ++h) {
    a_part.set_data_handle(static_cast<char*>(a.get_data_handle()) + h * a_row);
    c_part.set_data_handle(static_cast<char*>(c.get_data_handle()) + h * c_row);
    product.execute(stream, {{DNNL_ARG_SRC, a_part}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c_part}});
  }
}

Times measure(const Weight& w, bool backward, bool bf16, int64_t m, int rounds) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const size_t size = bf16 ? 2 : 4;
  const int64_t k = backward ? w.n : w.k, n = backward ? w.k : w.n;
  const memory::desc a({m, k}, type, memory::dims{k, 1}), c({m, n}, type, memory::dims{n, 1});
  const memory::desc b({k, n}, type, backward ? memory::dims{n, 1} : memory::dims{1, k});
  const memory::desc any({k, n}, type, memory::format_tag::any);
  const int halves = backward && (!bf16 || k >= 2048) ? 2 : 1;
  const memory::desc a_half({m / 2, k}, type, memory::dims{2 * k, 1}), c_half({m / 2, n}, type, memory::dims{2 * n, 1});
  const auto describe = [&](const memory::desc& x, const memory::desc& y, const memory::desc& z) {
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, y, z), engine);
  };
  const auto plain_pd = halves == 2 ? describe(a_half, b, c_half) : describe(a, b, c);
  const auto packed_pd = describe(a, any, c);
  const dnnl::matmul plain(plain_pd), packed(packed_pd);
  // As many weights in turn as the model has, so that they come from memory.
  const auto sets = static_cast<size_t>(std::clamp<int64_t>((300 << 20) / (w.n * w.k * 4), 1, w.count));
  std::vector<memory> weights, packs;
  memory x(a, engine), y(c, engine), x_half(a_half, engine, nullptr), y_half(c_half, engine, nullptr);
  const auto fill = [&](memory& t) {
    std::memset(t.get_data_handle(), 0x3c, t.get_desc().get_size());  // small numbers in both types
  };
  fill(x);
  Times best{1e9, 1e9, 1e9};
  for (size_t i = 0; i < sets; ++i) {
    fill(weights.emplace_back(b, engine));
    packs.emplace_back(packed_pd.weights_desc(), engine);
  }
  for (int round = 0; round < rounds; ++round) {
    double begin = now_ms();
    for (size_t i = 0; i < sets; ++i) dnnl::reorder(weights[i], packs[i]).execute(stream, weights[i], packs[i]);
    best.pack_ms = std::min(best.pack_ms, (now_ms() - begin) / static_cast<double>(sets));
    begin = now_ms();
    for (const memory& t : weights) multiply(plain, stream, x, t, y, halves, k * size, n * size, x_half, y_half);
    best.plain_ms = std::min(best.plain_ms, (now_ms() - begin) / static_cast<double>(sets));
    begin = now_ms();
    for (const memory& t : packs) multiply(packed, stream, x, t, y, 1, 0, 0, x_half, y_half);
    best.packed_ms = std::min(best.packed_ms, (now_ms() - begin) / static_cast<double>(sets));
  }
  return best;
}

void measure_model(const char* name, const std::vector<Weight>& weights, int rounds) {
  for (const bool bf16 : {false, true}) {
    for (const int64_t m : {256, 1024, 2048}) {
      Times all;
      for (const Weight& w : weights) {
        for (const bool backward : {false, true}) {
          const Times t = measure(w, backward, bf16, m, rounds);
          std::printf("%-5s %s M %4ld %-8s %-2s %8.3f ms, packed %8.3f ms, packing %7.3f ms\n", name,
                      bf16 ? "bf16" : "fp32", m, w.name, backward ? "dx" : "y", t.plain_ms, t.packed_ms, t.pack_ms);
          all.plain_ms += t.plain_ms * w.count;
          all.packed_ms += std::min(t.plain_ms, t.packed_ms) * w.count;
          all.pack_ms += t.pack_ms * w.count;
        }
      }
      std::printf("%-5s %s M %4ld all: %.2f ms, the better of both %.2f ms, packing %.2f ms\n", name,
                  bf16 ? "bf16" : "fp32", m, all.plain_ms, all.packed_ms, all.pack_ms);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 4;
  measure_model("10m",
                {{"qkv", 960, 320, 6},
                 {"proj", 320, 320, 6},
                 {"gate, up", 1664, 320, 6},
                 {"down", 320, 832, 6},
                 {"head", 8192, 320, 1}},
                rounds);
  measure_model("gpt2",
                {{"qkv", 2304, 768, 12},
                 {"proj", 768, 768, 12},
                 {"fc", 3072, 768, 12},
                 {"proj2", 768, 3072, 12},
                 {"head", 50304, 768, 1}},
                rounds);
}
