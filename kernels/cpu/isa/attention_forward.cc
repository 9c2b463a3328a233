// Causal flash attention, forward (Dao 2022, arXiv 2205.14135, algorithm 1): tiles of kBlock queries by kBlock keys,
// running maximum and sum per query. Keys are visited in order, so a row's bits depend on nothing but its sequence.
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
  W* keys_t;  // [tiles][depth][kBlock]
  W* values;  // grouped rows
  E* packed;  // kBlock packed rows: of queries, and on the way to the two above
  C* scores;  // [kBlock][kBlock]
  E* probs;   // [kBlock][kBlock]; the scores' memory when the types agree
  C *out, *max, *sum;
  int64_t bytes;
  Scratch(const HeadShape<T>& s, void* memory) {
    Carver carve(memory);
    carve.take(keys_t, s.rows * s.depth);
    carve.take(values, s.rows / Format<T>::kGroup * s.padded);
    carve.take(packed, kBlock * s.row);
    carve.take(scores, kBlock * kBlock);
    carve.take(out, kBlock * s.padded);
    carve.take(max, kBlock);
    carve.take(sum, kBlock);
    if constexpr (Format<T>::kGroup == 1) {
      probs = scores;
    } else {
      carve.take(probs, kBlock * kBlock);
    }
    bytes = carve.used();
  }
};

/// Turns a row of a tile of products q k^T into unnormalised probabilities; `keys` of them are visible, up to `width`
/// (whole vectors) are written. Updates the running maximum and sum, and rescales the output row when the maximum grew.
/// Dropout (words not null) zeroes probabilities but not their part in the sum; its factor is left to the end.
template <class C, class E>
TRIAX_INLINE void softmax_row(const C* scores, C scale, int64_t keys, int64_t width, const uint32_t* words,
                              uint32_t threshold, E* probs, C* out, int64_t padded, C& max, C& sum) {
  constexpr C kLowest = -__builtin_inff();
  Pair<C> best{splat<C>(kLowest), splat<C>(kLowest)};
  for_lanes<C>(keys, [&](int64_t i, auto n) {
    collect_largest<C>(best, first_lanes<C>(load_padded(scores + i, n), n, kLowest));
  });
  const C largest = largest_lane(best) * scale;  // scale > 0
  const C updated = largest > max ? largest : max;
  Pair<C> total;
  for_lanes<C>(keys, [&](int64_t i, auto n) {
    auto p = exp_of(mul_add(load_padded(scores + i, n), splat(scale), splat(-updated)));
    p = first_lanes<C>(p, n, C{0});
    collect<C>(total, p);
    if (words != nullptr) p = p * keep_factor(words + i, threshold, C{1}, n);
    store_padded(p, probs + i, n);
  });
  for (int64_t i = round_up(keys, kLanes<C>); i < width; i += kLanes<C>) store(Vec<C>{}, probs + i);
  if (updated != max) {
    const C factor = exp_of(splat(max - updated))[0];  // 0 for the first tile
    sum *= factor;
    for (int64_t c = 0; c < padded; c += kLanes<C>) store(load(out + c) * factor, out + c);
    max = updated;
  }
  sum += sum_of_lanes(total);
}

/// Query rows [begin, begin + rows) of head j: the loop over tiles of keys.
template <class T>
void query_block(const AttentionArgs& a, const HeadShape<T>& shape, const Scratch<T>& s, int64_t i, int64_t j,
                 int64_t begin, int64_t rows) {
  using C = typename Format<T>::C;
  using W = typename Format<T>::W;
  pack_rows<T>(a.q, a, shape, i, j, begin, rows, s.packed);
  memset(s.out, 0, sizeof(C) * static_cast<size_t>(kBlock * shape.padded));
  for (int64_t r = 0; r < rows; ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = 0;
  }
  for (int64_t first = 0; first <= begin; first += kBlock) {
    const bool diagonal = first == begin;
    const int64_t keys = min_of(kBlock, a.seq - first);
    const int64_t width = round_up(keys, kLanes<C>);
    const TileProduct<C, W> product{
        rows,   width,    shape.depth, as_words<W>(s.packed), words_of<T>(shape.row), 1, s.keys_t + first * shape.depth,
        kBlock, s.scores, kBlock};
    multiply_tile<false>(product, diagonal ? Part::LowerC : Part::All);
    const KeyPositions positions(a, i, first, keys);
    alignas(64) uint32_t words[kBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t visible = diagonal ? r + 1 : keys;
      softmax_row<C>(s.scores + r * kBlock, static_cast<C>(a.scale), visible, width,
                     positions.words(begin + r, j, visible, words), a.dropout.threshold, s.probs + r * kBlock,
                     s.out + r * shape.padded, shape.padded, s.max[r], s.sum[r]);
    }
    const TileProduct<C, W> sums{rows,
                                 shape.padded,
                                 words_of<T>(keys),
                                 as_words<W>(s.probs),
                                 words_of<T>(kBlock),
                                 1,
                                 s.values + words_of<T>(first) * shape.padded,
                                 shape.padded,
                                 s.out,
                                 shape.padded};
    multiply_tile<true>(sums, diagonal ? Part::LowerA : Part::All);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = (begin + r) * a.batch + i;
    T* o = head_row<T>(a.o, a, begin + r, i, j);
    const C* out = s.out + r * shape.padded;
    const C inverse = static_cast<C>(a.dropout.keep_scale) / s.sum[r];
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store(load_padded(out + c, n) * inverse, o + c, n); });
    static_cast<C*>(a.lse)[j * a.seq * a.batch + row] = s.max[r] + log_of(s.sum[r]);
  }
}

template <class T>
void forward(const AttentionArgs& a, int64_t i, int64_t kv, int64_t begin, int64_t end, void* memory) {
  const HeadShape<T> shape(a);
  const Scratch<T> s(shape, memory);
  for (int64_t first = 0; first < end; first += kBlock) {
    const int64_t keys = min_of(kBlock, a.seq - first);
    pack_rows<T>(a.k, a, shape, i, kv, first, keys, s.packed);
    transpose_tile<T>(shape, s.packed, keys, s.keys_t + first * shape.depth);
    pack_rows<T>(a.v, a, shape, i, kv, first, keys, s.packed);
    group_rows<T>(shape, s.packed, keys, s.values + words_of<T>(first) * shape.padded);
  }
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) {
    for (int64_t first = begin; first < end; first += kBlock) {
      query_block<T>(a, shape, s, i, j, first, min_of(kBlock, end - first));
    }
  }
}

template <class T>
int64_t forward_bytes(const AttentionArgs& a) {
  return Scratch<T>(HeadShape<T>(a), nullptr).bytes;
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.attention_forward = forward<T>;
    k.attention_forward_bytes = forward_bytes<T>;
  }
};

}  // namespace

void register_attention_forward(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA
