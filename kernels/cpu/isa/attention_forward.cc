// Causal flash attention, forward (Dao 2022, arXiv 2205.14135, algorithm 1): tiles of kBlock queries by kBlock keys,
// running maximum and sum per query. Keys are visited in order, so a row's bits depend on nothing but its sequence.
#include "kernels/cpu/isa/attention_tiles.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class C>
struct Scratch {
  C *keys_t, *values, *queries, *scores, *out, *max, *sum;
  Scratch(const AttentionShape<C>& s, void* memory) {
    Carver carve(memory);
    keys_t = carve.take<C>(s.rows * s.dim);      // [tiles][d][kBlock]
    values = carve.take<C>(s.rows * s.padded);   // [s][padded]
    queries = carve.take<C>(kBlock * s.padded);  // scaled
    scores = carve.take<C>(kBlock * kBlock);
    out = carve.take<C>(kBlock * s.padded);
    max = carve.take<C>(kBlock);
    sum = carve.take<C>(kBlock);
  }
  static int64_t bytes(const AttentionShape<C>& s) {
    return Carver::size_of_array<C>(s.rows * s.dim) + Carver::size_of_array<C>(s.rows * s.padded) +
           2 * Carver::size_of_array<C>(kBlock * s.padded) + Carver::size_of_array<C>(kBlock * kBlock) +
           2 * Carver::size_of_array<C>(kBlock);
  }
};

/// Turns row r of a tile of scores into unnormalised probabilities; `keys` of them are visible, up to `width` (whole
/// vectors) are written. Updates the running maximum and sum, and rescales the output row when the maximum grew.
template <class C>
TRIAX_INLINE void softmax_row(C* scores, int64_t keys, int64_t width, C* out, int64_t padded, C& max, C& sum) {
  constexpr C kLowest = -__builtin_inff();
  Pair<C> best{splat<C>(kLowest), splat<C>(kLowest)};
  for_lanes<C>(keys, [&](int64_t i, auto n) {
    collect_largest<C>(best, first_lanes<C>(load_padded(scores + i, n), n, kLowest));
  });
  const C largest = largest_lane(best);
  const C updated = largest > max ? largest : max;
  Pair<C> total;
  for_lanes<C>(keys, [&](int64_t i, auto n) {
    const auto p = first_lanes<C>(exp_of(load_padded(scores + i, n) - updated), n, C{0});
    collect<C>(total, p);
    store_padded(p, scores + i, n);
  });
  for (int64_t i = round_up(keys, kLanes<C>); i < width; i += kLanes<C>) store(Vec<C>{}, scores + i);
  if (updated != max) {
    const C factor = exp_of(splat(max - updated))[0];  // 0 for the first tile
    sum *= factor;
    for (int64_t c = 0; c < padded; c += kLanes<C>) store(load(out + c) * factor, out + c);
    max = updated;
  }
  sum += sum_of_lanes(total);
}

template <class C>
TRIAX_INLINE void drop_row(const AttentionArgs& a, const uint32_t* words, C* scores, int64_t width) {
  for (int64_t c = 0; c < width; c += kLanes<C>) {
    store(load(scores + c) * keep_factor(words + c, a.dropout.threshold, static_cast<C>(a.dropout.keep_scale)),
          scores + c);
  }
}

/// Query rows [begin, begin + rows) of head j: the loop over tiles of keys.
template <class T, class C>
void query_block(const AttentionArgs& a, const AttentionShape<C>& shape, const Scratch<C>& s, int64_t i, int64_t j,
                 int64_t begin, int64_t rows) {
  pack_rows<T, C>(a.q, a, i, j, begin, begin + rows, static_cast<C>(a.scale), s.queries, shape.padded);
  memset(s.out, 0, sizeof(C) * static_cast<size_t>(kBlock * shape.padded));
  for (int64_t r = 0; r < rows; ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = 0;
  }
  for (int64_t first = 0; first <= begin; first += kBlock) {
    const bool diagonal = first == begin;
    const int64_t keys = min_of(kBlock, a.seq - first);
    const int64_t width = round_up(keys, kLanes<C>);
    multiply_tile<C, false>(
        {rows, width, shape.dim, s.queries, shape.padded, 1, s.keys_t + first * shape.dim, kBlock, s.scores, kBlock},
        diagonal ? Part::LowerC : Part::All);
    const KeyPositions positions(a, i, first, keys);
    alignas(64) uint32_t words[kBlock];
    for (int64_t r = 0; r < rows; ++r) {
      C* scores = s.scores + r * kBlock;
      const int64_t visible = diagonal ? r + 1 : keys;
      softmax_row<C>(scores, visible, width, s.out + r * shape.padded, shape.padded, s.max[r], s.sum[r]);
      if (a.dropout.active) {
        positions.words(query_counter(a, begin + r, i, j), visible, words);
        drop_row<C>(a, words, scores, round_up(visible, kLanes<C>));
      }
    }
    multiply_tile<C, true>({rows, shape.padded, keys, s.scores, kBlock, 1, s.values + first * shape.padded,
                            shape.padded, s.out, shape.padded},
                           diagonal ? Part::LowerA : Part::All);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = (begin + r) * a.batch + i;
    T* o = head_row<T>(a.o, a, begin + r, i, j);
    const C* out = s.out + r * shape.padded;
    const C inverse = 1 / s.sum[r];
    for_lanes<C>(a.dim, [&](int64_t c, auto n) { store(load_padded(out + c, n) * inverse, o + c, n); });
    static_cast<C*>(a.lse)[j * a.seq * a.batch + row] = s.max[r] + log_of(s.sum[r]);
  }
}

template <class T>
void forward(const AttentionArgs& a, int64_t i, int64_t kv, int64_t begin, int64_t end, void* memory) {
  using C = Compute<T>;
  const AttentionShape<C> shape(a);
  const Scratch<C> s(shape, memory);
  pack_rows<T, C>(a.v, a, i, kv, 0, end, C{1}, s.values, shape.padded);
  for (int64_t first = 0; first < end; first += kBlock) {
    const int64_t keys = min_of(kBlock, a.seq - first);
    pack_rows<T, C>(a.k, a, i, kv, first, first + keys, C{1}, s.queries, shape.padded);
    transpose_tile<C>(s.queries, keys, shape.dim, shape.padded, s.keys_t + first * shape.dim);
  }
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) {
    for (int64_t first = begin; first < end; first += kBlock) {
      query_block<T, C>(a, shape, s, i, j, first, min_of(kBlock, end - first));
    }
  }
}

template <class T>
int64_t forward_bytes(const AttentionArgs& a) {
  using C = Compute<T>;
  return Scratch<C>::bytes(AttentionShape<C>(a));
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
