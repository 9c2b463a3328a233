// Causal flash attention, backward (Dao 2022, arXiv 2205.14135, algorithm 4): one sample and KV head at a time. With
// S = scale q k^T, P = exp(S - lse), M the dropout mask times 1/(1-p), D = rowsum(do * o):
//   dv = (P M)^T do,  dS = P ((do v^T) M - D),  dk = scale dS^T q,  dq = scale dS k.
#include "kernels/cpu/isa/attention_dropout.h"
#include "kernels/cpu/isa/attention_tiles.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class T>
struct Scratch {
  using C = typename Format<T>::C;
  using E = typename Format<T>::E;
  using W = typename Format<T>::W;
  static constexpr bool kGrouped = Format<T>::kGroup > 1;
  W *keys_t, *values_t;           // of the KV head: [tiles][depth][kBlock]
  W* keys;                        // grouped rows
  C *dkeys, *dvalues;             // [s][padded]
  E *queries, *dout;              // of one query head: packed rows
  W *query_groups, *dout_groups;  // grouped rows; the memory of the packed rows when a group is one row
  C *dqueries, *lse, *delta;      // [s][padded], [s], [s]
  C *p, *ds;                      // one tile each: P M and dS
  W *p_groups, *ds_groups;        // grouped rows of those, or the same memory
  E* ds_rows;                     // dS as packed rows, or the same memory
  int64_t bytes;

  Scratch(const HeadShape<T>& s, void* memory) {
    Carver carve(memory);
    const int64_t groups = s.rows / Format<T>::kGroup * s.padded;
    carve.take(keys_t, s.rows * s.depth);
    carve.take(values_t, s.rows * s.depth);
    carve.take(keys, groups);
    carve.take(dkeys, s.rows * s.padded);
    carve.take(dvalues, s.rows * s.padded);
    carve.take(queries, s.rows * s.row);
    carve.take(dout, s.rows * s.row);
    carve.take(dqueries, s.rows * s.padded);
    carve.take(lse, s.rows);
    carve.take(delta, s.rows);
    carve.take(p, kBlock * kBlock);
    carve.take(ds, kBlock * kBlock);
    if constexpr (kGrouped) {
      carve.take(query_groups, groups);
      carve.take(dout_groups, groups);
      carve.take(p_groups, kBlock * kBlock / Format<T>::kGroup);
      carve.take(ds_groups, kBlock * kBlock / Format<T>::kGroup);
      carve.take(ds_rows, kBlock * kBlock);
    } else {
      query_groups = queries;
      dout_groups = dout;
      p_groups = p;
      ds_groups = ds_rows = ds;
    }
    bytes = carve.used();
  }
};

/// Row of a tile: q k^T -> P M (in p) and do v^T -> dS (in ds). Lanes beyond the visible keys become zero.
template <class C>
TRIAX_INLINE void gradient_row(const AttentionArgs& a, const uint32_t* words, int64_t keys, int64_t width, C lse,
                               C delta, C* p, C* ds) {
  const C keep_scale = static_cast<C>(a.dropout.keep_scale);
  const C scale = static_cast<C>(a.scale);
  for_lanes<C>(keys, [&](int64_t c, auto n) {
    const auto exponent = mul_add(load_padded(p + c, n), splat(scale), splat(-lse));
    const auto probability = first_lanes<C>(exp_of(exponent), n, C{0});
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

/// The operands of the products with P M and dS from their tiles, where a word is not a number of the compute type.
template <class T>
TRIAX_INLINE void regroup(const Scratch<T>&, int64_t, int64_t) {
  static_assert(Format<T>::kGroup == 1);
}
#if defined(__AVX512BF16__)
TRIAX_INLINE __m512i pair_of_bf16(const float* low, const float* high) {
  const __m512i words = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load(high))));
  return _mm512_or_si512(_mm512_slli_epi32(words, 16),
                         _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(load(low)))));
}
template <>
TRIAX_INLINE void regroup<Bf16>(const Scratch<Bf16>& s, int64_t rows, int64_t width) {
  if (rows % 2 == 1) {  // the missing partner of the last row
    memset(s.p + rows * kBlock, 0, sizeof(float) * static_cast<size_t>(kBlock));
    memset(s.ds + rows * kBlock, 0, sizeof(float) * static_cast<size_t>(kBlock));
  }
  for (int64_t r = 0; r < rows; r += 2) {
    const float* p = s.p + r * kBlock;
    const float* ds = s.ds + r * kBlock;
    for (int64_t c = 0; c < width; c += kLanes<float>) {
      _mm512_storeu_si512(s.p_groups + r / 2 * kBlock + c, pair_of_bf16(p + c, p + kBlock + c));
      _mm512_storeu_si512(s.ds_groups + r / 2 * kBlock + c, pair_of_bf16(ds + c, ds + kBlock + c));
      store(load(ds + c), s.ds_rows + r * kBlock + c);
      store(load(ds + kBlock + c), s.ds_rows + (r + 1) * kBlock + c);
    }
  }
}
#endif

/// Adds the tile of queries [begin, ...) and keys [first, ...) to dq, dk and dv.
template <class T>
void tile(const AttentionArgs& a, const HeadShape<T>& shape, const Scratch<T>& s, int64_t i, int64_t j, int64_t begin,
          int64_t first) {
  using C = typename Format<T>::C;
  using W = typename Format<T>::W;
  using Product = TileProduct<C, W>;
  const bool diagonal = begin == first;
  const int64_t rows = min_of(kBlock, a.seq - begin);
  const int64_t keys = min_of(kBlock, a.seq - first);
  const int64_t width = round_up(keys, kLanes<C>);
  const int64_t ld = shape.padded;
  const int64_t row = words_of<T>(shape.row);
  const Part lower = diagonal ? Part::LowerC : Part::All;
  const W* const queries = as_words<W>(s.queries + begin * shape.row);
  const W* const dout = as_words<W>(s.dout + begin * shape.row);
  multiply_tile<false>(
      Product{rows, width, shape.depth, queries, row, 1, s.keys_t + first * shape.depth, kBlock, s.p, kBlock}, lower);
  multiply_tile<false>(
      Product{rows, width, shape.depth, dout, row, 1, s.values_t + first * shape.depth, kBlock, s.ds, kBlock}, lower);
  const KeyPositions positions(a, i, first, keys);
  alignas(64) uint32_t words[kBlock];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t visible = diagonal ? r + 1 : keys;
    gradient_row<C>(a, positions.words(begin + r, j, visible, words), visible, width, s.lse[begin + r],
                    s.delta[begin + r], s.p + r * kBlock, s.ds + r * kBlock);
  }
  regroup<T>(s, rows, width);
  const Part upper = diagonal ? Part::UpperA : Part::All;
  const int64_t depth = words_of<T>(rows);
  const int64_t group = words_of<T>(begin) * ld;
  multiply_tile<true>(
      Product{keys, ld, depth, s.p_groups, 1, kBlock, s.dout_groups + group, ld, s.dvalues + first * ld, ld}, upper);
  multiply_tile<true>(
      Product{keys, ld, depth, s.ds_groups, 1, kBlock, s.query_groups + group, ld, s.dkeys + first * ld, ld}, upper);
  multiply_tile<true>(Product{rows, ld, words_of<T>(keys), as_words<W>(s.ds_rows), words_of<T>(kBlock), 1,
                              s.keys + words_of<T>(first) * ld, ld, s.dqueries + begin * ld, ld},
                      diagonal ? Part::LowerA : Part::All);
}

/// Rows of a gradient = factor * accumulator, all s of them.
template <class T, class C>
void unpack(const View& view, const AttentionArgs& a, int64_t i, int64_t j, const C* from, int64_t padded, C factor) {
  for (int64_t r = 0; r < a.seq; ++r, from += padded) {
    T* to = head_row<T>(view, a, r, i, j);
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store(load_padded(from + c, n) * factor, to + c, n); });
  }
}

template <class T>
void query_head(const AttentionArgs& a, const HeadShape<T>& shape, const Scratch<T>& s, int64_t i, int64_t j) {
  using C = typename Format<T>::C;
  pack_rows<T>(a.q, a, shape, i, j, 0, a.seq, s.queries);
  pack_rows<T>(a.dout, a, shape, i, j, 0, a.seq, s.dout);
  group_rows<T>(shape, s.queries, a.seq, s.query_groups);
  group_rows<T>(shape, s.dout, a.seq, s.dout_groups);
  memset(s.dqueries, 0, sizeof(C) * static_cast<size_t>(shape.rows * shape.padded));
  const C* lse = static_cast<const C*>(a.lse) + j * a.seq * a.batch;
  for (int64_t r = 0; r < a.seq; ++r) {
    const T* o = head_row<T>(a.o, a, r, i, j);
    prefetch_row(head_row<T>(a.o, a, min_of(r + kPrefetchRows, a.seq - 1), i, j), a.dim);
    Pair<C> sum;
    for_lanes<C>(a.dim, [&](int64_t c, auto n) {
      collect_product<C>(sum, load(o + c, n), load_padded(s.dout + r * shape.row + c, n));
    });
    s.delta[r] = sum_of_lanes(sum);
    s.lse[r] = lse[r * a.batch + i];
  }
  for (int64_t first = 0; first < a.seq; first += kBlock) {
    for (int64_t begin = first; begin < a.seq; begin += kBlock) tile<T>(a, shape, s, i, j, begin, first);
  }
  unpack<T>(a.dq, a, i, j, s.dqueries, shape.padded, static_cast<C>(a.scale));
}

template <class T>
void backward(const AttentionArgs& a, int64_t i, int64_t kv, void* memory) {
  using C = typename Format<T>::C;
  const HeadShape<T> shape(a);
  const Scratch<T> s(shape, memory);
  for (int64_t first = 0; first < a.seq; first += kBlock) {  // s.queries serves as the place of packed rows here
    const int64_t keys = min_of(kBlock, a.seq - first);
    pack_rows<T>(a.v, a, shape, i, kv, first, keys, s.queries);
    transpose_tile<T>(shape, s.queries, keys, s.values_t + first * shape.depth);
    pack_rows<T>(a.k, a, shape, i, kv, first, keys, s.queries);
    transpose_tile<T>(shape, s.queries, keys, s.keys_t + first * shape.depth);
    group_rows<T>(shape, s.queries, keys, s.keys + words_of<T>(first) * shape.padded);
  }
  memset(s.dkeys, 0, sizeof(C) * static_cast<size_t>(shape.rows * shape.padded));
  memset(s.dvalues, 0, sizeof(C) * static_cast<size_t>(shape.rows * shape.padded));
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) query_head<T>(a, shape, s, i, j);
  unpack<T>(a.dk, a, i, kv, s.dkeys, shape.padded, static_cast<C>(a.scale));
  unpack<T>(a.dv, a, i, kv, s.dvalues, shape.padded, C{1});
}

template <class T>
int64_t backward_bytes(const AttentionArgs& a) {
  return Scratch<T>(HeadShape<T>(a), nullptr).bytes;
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
