// Causal flash attention, backward (Dao 2022, arXiv 2205.14135, algorithm 4): one sample and KV head at a time. With
// S = scale q k^T, P = exp(S - lse), M the dropout mask times 1/(1-p), D = rowsum(do * o):
//   dv = (P M)^T do,  dS = P ((do v^T) M - D),  dk = scale dS^T q,  dq = scale dS k.
#include "kernels/cpu/isa/attention_tiles.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class C>
struct Scratch {
  C *keys, *keys_t, *values_t, *dkeys, *dvalues;  // of the KV head; transposes are [tiles][d][kBlock]
  C *queries, *dout, *dqueries, *lse, *delta;     // of one query head; queries are scaled
  C *p, *ds;                                      // one tile each
  Scratch(const AttentionShape<C>& s, void* memory) {
    Carver carve(memory);
    keys = carve.take<C>(s.rows * s.padded);
    dkeys = carve.take<C>(s.rows * s.padded);
    dvalues = carve.take<C>(s.rows * s.padded);
    queries = carve.take<C>(s.rows * s.padded);
    dout = carve.take<C>(s.rows * s.padded);
    dqueries = carve.take<C>(s.rows * s.padded);
    keys_t = carve.take<C>(s.rows * s.dim);
    values_t = carve.take<C>(s.rows * s.dim);
    lse = carve.take<C>(s.rows);
    delta = carve.take<C>(s.rows);
    p = carve.take<C>(kBlock * kBlock);
    ds = carve.take<C>(kBlock * kBlock);
  }
  static int64_t bytes(const AttentionShape<C>& s) {
    return 6 * Carver::size_of_array<C>(s.rows * s.padded) + 2 * Carver::size_of_array<C>(s.rows * s.dim) +
           2 * Carver::size_of_array<C>(s.rows) + 2 * Carver::size_of_array<C>(kBlock * kBlock);
  }
};

/// Row r of a tile: scores -> P M (in p) and do v^T -> dS (in ds). Lanes beyond the visible keys become zero.
template <class C>
TRIAX_INLINE void gradient_row(const AttentionArgs& a, const uint32_t* words, int64_t keys, int64_t width, C lse,
                               C delta, C* p, C* ds) {
  const C keep_scale = static_cast<C>(a.dropout.keep_scale);
  for_lanes<C>(keys, [&](int64_t c, auto n) {
    const auto probability = first_lanes<C>(exp_of(load_padded(p + c, n) - lse), n, C{0});
    auto dp = load_padded(ds + c, n);
    auto kept = probability;
    if (words != nullptr) {
      const auto mask = keep_factor(words + c, a.dropout.threshold, keep_scale, n);
      dp = dp * mask;
      kept = kept * mask;
    }
    store_padded(kept, p + c, n);
    store_padded(first_lanes<C>(probability * (dp - delta), n, C{0}), ds + c, n);
  });
  for (int64_t c = round_up(keys, kLanes<C>); c < width; c += kLanes<C>) {
    store(Vec<C>{}, p + c);
    store(Vec<C>{}, ds + c);
  }
}

/// Adds the tile of queries [begin, ...) and keys [first, ...) to dq, dk and dv.
template <class C>
void tile(const AttentionArgs& a, const AttentionShape<C>& shape, const Scratch<C>& s, int64_t i, int64_t j,
          int64_t begin, int64_t first) {
  const bool diagonal = begin == first;
  const int64_t rows = min_of(kBlock, a.seq - begin);
  const int64_t keys = min_of(kBlock, a.seq - first);
  const int64_t width = round_up(keys, kLanes<C>);
  const int64_t ld = shape.padded;
  const C* queries = s.queries + begin * ld;
  const C* dout = s.dout + begin * ld;
  const Part part = diagonal ? Part::LowerC : Part::All;
  multiply_tile<C, false>({rows, width, shape.dim, queries, ld, 1, s.keys_t + first * shape.dim, kBlock, s.p, kBlock},
                          part);
  multiply_tile<C, false>({rows, width, shape.dim, dout, ld, 1, s.values_t + first * shape.dim, kBlock, s.ds, kBlock},
                          part);
  const KeyPositions positions(a, i, first, keys);
  alignas(64) uint32_t words[kBlock];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t visible = diagonal ? r + 1 : keys;
    if (a.dropout.active) {
      positions.words(query_counter(a, begin + r, i, j), visible, words);
    }
    gradient_row<C>(a, a.dropout.active ? words : nullptr, visible, width, s.lse[begin + r], s.delta[begin + r],
                    s.p + r * kBlock, s.ds + r * kBlock);
  }
  const Part upper = diagonal ? Part::UpperA : Part::All;
  multiply_tile<C, true>({keys, ld, rows, s.p, 1, kBlock, dout, ld, s.dvalues + first * ld, ld}, upper);
  multiply_tile<C, true>({keys, ld, rows, s.ds, 1, kBlock, queries, ld, s.dkeys + first * ld, ld}, upper);
  multiply_tile<C, true>({rows, ld, keys, s.ds, kBlock, 1, s.keys + first * ld, ld, s.dqueries + begin * ld, ld},
                         diagonal ? Part::LowerA : Part::All);
}

/// to = factor * packed rows, all s of them.
template <class T, class C>
void unpack(const View& view, const AttentionArgs& a, int64_t i, int64_t j, const C* from, int64_t padded, C factor) {
  for (int64_t r = 0; r < a.seq; ++r, from += padded) {
    T* to = head_row<T>(view, a, r, i, j);
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store(load_padded(from + c, n) * factor, to + c, n); });
  }
}

template <class T, class C>
void query_head(const AttentionArgs& a, const AttentionShape<C>& shape, const Scratch<C>& s, int64_t i, int64_t j) {
  const int64_t ld = shape.padded;
  pack_rows<T, C>(a.q, a, i, j, 0, a.seq, static_cast<C>(a.scale), s.queries, ld);
  pack_rows<T, C>(a.dout, a, i, j, 0, a.seq, C{1}, s.dout, ld);
  memset(s.dqueries, 0, sizeof(C) * static_cast<size_t>(shape.rows * ld));
  const C* lse = static_cast<const C*>(a.lse) + j * a.seq * a.batch;
  for (int64_t r = 0; r < a.seq; ++r) {
    const T* o = head_row<T>(a.o, a, r, i, j);
    Pair<C> sum;
    for_lanes<C>(a.dim, [&](int64_t c, auto n) {
      collect_product<C>(sum, load(o + c, n), load_padded(s.dout + r * ld + c, n));
    });
    s.delta[r] = sum_of_lanes(sum);
    s.lse[r] = lse[r * a.batch + i];
  }
  for (int64_t first = 0; first < a.seq; first += kBlock) {
    for (int64_t begin = first; begin < a.seq; begin += kBlock) tile<C>(a, shape, s, i, j, begin, first);
  }
  unpack<T, C>(a.dq, a, i, j, s.dqueries, ld, static_cast<C>(a.scale));
}

template <class T>
void backward(const AttentionArgs& a, int64_t i, int64_t kv, void* memory) {
  using C = Compute<T>;
  const AttentionShape<C> shape(a);
  const Scratch<C> s(shape, memory);
  const int64_t ld = shape.padded;
  pack_rows<T, C>(a.v, a, i, kv, 0, a.seq, C{1}, s.keys, ld);  // only for its transpose
  for (int64_t first = 0; first < a.seq; first += kBlock) {
    transpose_tile<C>(s.keys + first * ld, min_of(kBlock, a.seq - first), shape.dim, ld,
                      s.values_t + first * shape.dim);
  }
  pack_rows<T, C>(a.k, a, i, kv, 0, a.seq, C{1}, s.keys, ld);
  for (int64_t first = 0; first < a.seq; first += kBlock) {
    transpose_tile<C>(s.keys + first * ld, min_of(kBlock, a.seq - first), shape.dim, ld, s.keys_t + first * shape.dim);
  }
  memset(s.dkeys, 0, sizeof(C) * static_cast<size_t>(shape.rows * ld));
  memset(s.dvalues, 0, sizeof(C) * static_cast<size_t>(shape.rows * ld));
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) query_head<T, C>(a, shape, s, i, j);
  unpack<T, C>(a.dk, a, i, kv, s.dkeys, ld, C{1});
  unpack<T, C>(a.dv, a, i, kv, s.dvalues, ld, C{1});
}

template <class T>
int64_t backward_bytes(const AttentionArgs& a) {
  using C = Compute<T>;
  return Scratch<C>::bytes(AttentionShape<C>(a));
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.attention_backward = backward<T>;
    k.attention_backward_bytes = backward_bytes<T>;
  }
};

}  // namespace

void register_attention_backward(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA
