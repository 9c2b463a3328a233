// Which scores of a tile dropout keeps. A score's random word belongs to (sample, position of the query, head, position
// of the key), one Philox call giving those of four keys (kernels/dropout_key.h).
#pragma once

#include "kernels/cuda/attention_problem.h"

namespace triax::kernels {

/// The part of a dropout site that one sample has. A block keeps it in shared memory: registers are scarce.
struct AttentionDropout {
  DropoutKey key;
  uint32_t threshold;
  int64_t sample;
  const int32_t* position;  // of the sample: row t at position[t * batch]
  int batch, seq;

  /// 0 beyond the sequence, where nothing is stored.
  __device__ int32_t at(int t) const { return t < seq ? position[static_cast<int64_t>(t) * batch] : 0; }
};

/// Fills shared memory when the site is active; the block's next barrier makes it visible.
__device__ __forceinline__ void prepare_dropout(AttentionDropout& shared, const AttentionShape& shape, int sample) {
  const DropoutSite& site = shape.dropout;
  if (!site.active || threadIdx.x != 0) return;
  shared.key = site.key();
  shared.threshold = site.threshold;
  shared.sample = site.sample[sample];
  shared.position = site.position + sample;
  shared.batch = shape.batch;
  shared.seq = shape.seq;
}

/// head: global index. One score at a time, for keys that do not stand at consecutive positions.
__device__ __forceinline__ bool keeps_score(const AttentionDropout& d, int head, int query, int key) {
  return dropout_keeps(d.key, d.threshold, d.sample, d.at(query), head, d.at(key));
}

/// Whether keys first .. first + count - 1 stand at consecutive positions from a multiple of 4: then the words of four
/// neighbours come from one call. The same answer in all lanes.
__device__ __forceinline__ bool consecutive_keys(const AttentionDropout& d, int first, int count) {
  const int32_t begin = d.at(first);
  bool ok = begin % 4 == 0;
  for (int c = threadIdx.x % kWarp; c < count && first + c < d.seq; c += kWarp) ok = ok && d.at(first + c) == begin + c;
  return __all_sync(kAllLanes, ok) != 0;
}

__device__ __forceinline__ uint32_t select_word(const PhiloxWords& w, int i) {
  const uint32_t low = i & 1 ? w.word[1] : w.word[0], high = i & 1 ? w.word[3] : w.word[2];
  return i & 2 ? high : low;
}

/// Scores of a warp as mma leaves them, queries down and keys across: bit 4 n + e of the result says whether element e
/// of 8-column tile n is kept. Rows query0 + g and + 8, columns key0 + 8 n + 2 t and + 1 (g = lane / 4, t = lane % 4).
template <int Tiles>
__device__ __forceinline__ uint32_t keep_bits_query_rows(const AttentionDropout& d, int head, int query0, int key0) {
  static_assert(Tiles * 4 <= 32);
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  uint32_t bits = 0;
  if (!consecutive_keys(d, key0, 8 * Tiles)) {
    TRIAX_ROLLED
    for (int e = 0; e < 4 * Tiles; ++e) {
      const int query = query0 + g + (e & 2 ? 8 : 0), key = key0 + e / 4 * 8 + 2 * t + (e & 1);
      if (keeps_score(d, head, query, key)) bits |= 1u << e;
    }
    return bits;
  }
  // Lanes t and t ^ 1 hold the two halves of a call's four keys, for both rows: the even one calls for row g, the odd
  // one for row g + 8, and each hands the other its half.
  const bool odd = t & 1;
  const int64_t query = d.at(query0 + g + (odd ? 8 : 0));
  const int64_t block0 = d.at(key0) / 4 + t / 2;
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    const PhiloxWords w = dropout_philox(dropout_counter(d.sample, query, head, block0 + 2 * n), d.key);
    const uint32_t got0 = __shfl_xor_sync(kAllLanes, odd ? w.word[0] : w.word[2], 1);
    const uint32_t got1 = __shfl_xor_sync(kAllLanes, odd ? w.word[1] : w.word[3], 1);
    const uint32_t of_element[4] = {odd ? got0 : w.word[0], odd ? got1 : w.word[1], odd ? w.word[2] : got0,
                                    odd ? w.word[3] : got1};
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (of_element[e] >= d.threshold) bits |= 1u << (4 * n + e);
    }
  }
  return bits;
}

/// Scores that are not kept become 0; bits as from keep_bits_query_rows, for tiles First ..
template <int First = 0, int Tiles>
__device__ __forceinline__ void drop_scores(float (&s)[Tiles][4], uint32_t keep) {
  TRIAX_UNROLL
  for (int n = 0; n < 8 && First + n < Tiles; ++n) {
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) {
      if ((keep >> (4 * n + e) & 1) == 0) s[First + n][e] = 0;
    }
  }
}

/// The same with keys down (key0 + g and + 8) and queries across (query0 + 8 n + 2 t and + 1).
template <int Tiles>
__device__ __forceinline__ uint32_t keep_bits_key_rows(const AttentionDropout& d, int head, int key0, int query0) {
  static_assert(Tiles * 4 <= 32);
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  uint32_t bits = 0;
  if (!consecutive_keys(d, key0, 16)) {
    TRIAX_ROLLED
    for (int e = 0; e < 4 * Tiles; ++e) {
      const int key = key0 + g + (e & 2 ? 8 : 0), query = query0 + e / 4 * 8 + 2 * t + (e & 1);
      if (keeps_score(d, head, query, key)) bits |= 1u << e;
    }
    return bits;
  }
  // A call's four keys are four lanes (g % 4). These lanes need four calls (two rows of keys, two queries): lane i
  // makes call i and a transpose in three exchanges gives every lane its word of each.
  const int i = g % 4;
  const int64_t block = d.at(key0) / 4 + g / 4 + (i & 2);
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    const int64_t query = d.at(query0 + 8 * n + 2 * t + (i & 1));
    const PhiloxWords w = dropout_philox(dropout_counter(d.sample, query, head, block), d.key);
    TRIAX_UNROLL
    for (int round = 0; round < 4; ++round) {
      const uint32_t sent = select_word(w, i ^ round);
      const uint32_t got = round == 0 ? sent : __shfl_xor_sync(kAllLanes, sent, 4 * round);
      if (got >= d.threshold) bits |= 1u << (4 * n + (i ^ round));
    }
  }
  return bits;
}

}  // namespace triax::kernels
