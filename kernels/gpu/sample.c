// Rows of matrices, and the choice of tokens.
#include "weights.h"

INLINE void embed(const gr_embed GR_CONSTANT *a, gr_work w) {
  if (w.group >= a->T) return;
  const uint32_t row = (uint32_t)a->tokens[w.group];
  float GLOBAL *x = ROW(a->x, a->x_row, w.group);
  for (uint32_t c = thread_id(); c < a->N; c += THREADS) x[c] = matrix_value(a->w, row, c);
}

// A value with its index as a number: greater for a greater value, and for a lower index among equals; above 0.
typedef uint64_t rank;
INLINE rank rank_of(float x, uint32_t i) {
  const uint32_t bits = bits_of(x + 0.0f); // not -0
  uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000;
  if (x != x) key = 0;
  return (rank)key << 32 | ~i;
}
INLINE uint32_t index_of(rank r) { return ~(uint32_t)r; }

// The greatest rank of all threads, in all. Uses the first 64 bytes of shared memory.
INLINE rank group_max(rank r) {
  LDS rank *part = (LDS rank *)gr_lds;
  for (int mask = 16; mask; mask /= 2) {
    const rank other = (rank)lane_xor((uint32_t)(r >> 32), mask) << 32 | lane_xor((uint32_t)r, mask);
    r = other > r ? other : r;
  }
  barrier();
  if (lane_id() == 0) part[wave_id()] = r;
  barrier();
  for (int v = 0; v < WAVES; v++) r = part[v] > r ? part[v] : r;
  return r;
}

enum { SEARCHERS = 128 }; // workgroups of a row, as ops/sample.py says

INLINE void argmax(const gr_argmax GR_CONSTANT *a, gr_work w) {
  const uint32_t row = w.group / SEARCHERS, piece = w.group % SEARCHERS;
  if (row >= a->R) return;
  rank GLOBAL *found = (rank GLOBAL *)(w.scratch + COUNTERS) + (size_t)SEARCHERS * row;
  const float GLOBAL *x = ROW(a->x, a->x_row, row);
  rank best = 0;
  for (uint32_t i = THREADS * piece + thread_id(); i < a->V; i += THREADS * SEARCHERS) {
    const rank r = rank_of(x[i], i);
    best = r > best ? r : best;
  }
  best = group_max(best);
  if (thread_id() == 0) found[piece] = best;
  if (!last_group(w.scratch + row, SEARCHERS)) return;
  best = group_max(thread_id() < SEARCHERS ? found[thread_id()] : 0);
  if (thread_id() == 0) a->y[row] = (int32_t)index_of(best);
}

enum { CHUNK = 4096, SHARE_OF_CHUNK = CHUNK / THREADS }; // values of a workgroup, as ops/dflash.py says

// The greatest of a thread's values of a chunk that are not among those taken.
INLINE rank best_left(const float GLOBAL *x, uint32_t begin, uint32_t end, uint32_t taken) {
  rank best = 0;
  for (uint32_t j = 0; j < SHARE_OF_CHUNK; j++) {
    const uint32_t i = begin + thread_id() + THREADS * j;
    if (i >= end || taken >> j & 1) continue;
    const rank r = rank_of(x[i], i);
    best = r > best ? r : best;
  }
  return best;
}
INLINE rank best_of(const rank GLOBAL *found, uint32_t n) {
  rank best = 0;
  for (uint32_t i = thread_id(); i < n; i += THREADS) best = found[i] > best ? found[i] : best;
  return best;
}

// The k largest of each chunk; then the last workgroup takes the k largest of these.
INLINE void topk(const gr_topk GR_CONSTANT *a, gr_work w) {
  const uint32_t chunks = ceil_div(a->V, CHUNK), row = w.group / chunks, chunk = w.group % chunks, k = (uint32_t)a->k;
  if (row >= a->R) return;
  rank GLOBAL *found = (rank GLOBAL *)(w.scratch + COUNTERS) + (size_t)chunks * k * row;
  const float GLOBAL *x = ROW(a->x, a->x_row, row);
  const uint32_t begin = CHUNK * chunk, end = begin + CHUNK < a->V ? begin + CHUNK : a->V;
  uint32_t taken = 0; // bit j: value THREADS * j of this thread
  rank own = best_left(x, begin, end, 0);
  for (uint32_t n = 0; n < k; n++) {
    const rank best = group_max(own);
    if (thread_id() == 0) found[(size_t)k * chunk + n] = best;
    if (best != own || !own) continue;
    taken |= 1u << ((index_of(own) - begin) / THREADS);
    own = best_left(x, begin, end, taken);
  }
  if (!last_group(w.scratch + row, chunks)) return;
  own = best_of(found, chunks * k);
  for (uint32_t n = 0; n < k; n++) {
    const rank best = group_max(own);
    if (thread_id() == 0) {
      ROW(a->top, a->top_row, row)[n] = x[index_of(best)];
      ROW(a->ids, a->ids_row, row)[n] = (int32_t)index_of(best);
    }
    if (best != own) continue;
    for (uint32_t i = thread_id(); i < chunks * k; i += THREADS)
      if (found[i] == own) found[i] = 0;
    own = best_of(found, chunks * k);
  }
}
