// Products of one token in the resident kernel: waves have rows, and each block keeps the activations in shared memory.
//
// Every block makes the activations for itself where that is little work, so that the norm or gate before a product
// needs no barrier of its own.
#pragma once
#include "gemv.c"

// Activations in shared memory: 16 nb bytes of first halves of blocks, 16 nb of second halves, then {d, sum} of each.
INLINE line line_in_lds(const LDS uint8_t *x, uint32_t nb, uint32_t b) {
  const LDS u32x4 *q = (const LDS u32x4 *)x;
  const u32x2 scale = ((const LDS u32x2 *)(x + 32 * nb))[b];
  return (line){{q[b], q[nb + b]}, float_of(scale[0]), (int32_t)scale[1]};
}

// What a block does once for a product is long code, and instructions come from far: functions that are called, and
// loops that are not unrolled.
// Channels 4 i .. 4 i + 3, eight lanes a block; the formula of quantise_block.
APART void put_quantised(LDS uint8_t *x, uint32_t nb, uint32_t i, f32x4 v) {
  uint32_t top = 0, word = 0;
  for (int j = 0; j < 4; j++) {
    const uint32_t magnitude = bits_of(v[j]) & 0x7fffffff;
    top = magnitude > top ? magnitude : top;
  }
  for (int mask = 4; mask; mask /= 2) {
    const uint32_t other = lane_xor(top, mask);
    top = other > top ? other : top;
  }
  const float d = float_of(top) / 127.0f;
  int32_t sum = 0;
  for (int j = 0; j < 4; j++) {
    int32_t q = 0;
    if (d != 0) {
      const float scaled = v[j] / d;
      q = (int32_t)scaled;
      const float rest = scaled - (float)q;
      q += (int32_t)(rest + rest);
    }
    sum += q;
    word |= (uint32_t)(uint8_t)q << (8 * j);
  }
  for (int mask = 4; mask; mask /= 2) sum += (int32_t)lane_xor((uint32_t)sum, mask);
  const uint32_t b = i / 8, part = i % 8;
  if (b >= nb) return;
  ((LDS uint32_t *)x)[(part / 4 * nb + b) * 4 + part % 4] = word;
  if (part == 0) ((LDS u32x2 *)(x + 32 * nb))[b] = (u32x2){bits_of(d), (uint32_t)sum};
}

INLINE f32x4 four(const float GLOBAL *p, uint32_t i, uint32_t n) {
  return i < n ? ((const f32x4 GLOBAL *)p)[i] : (f32x4){0, 0, 0, 0};
}
// Whole waves take part, so that lanes of the last block see each other.
#define FOR_FOURS(i, nb) for (uint32_t i = block_thread(); i - lane_id() < 8 * (nb); i += BLOCK)

INLINE void copy_line(LDS uint8_t *x, const uint8_t GLOBAL *from, uint32_t nb) {
  FOR_FOURS(i, nb) {
    const uint32_t b = i / 8, part = i % 8;
    if (b >= nb) continue;
    ((LDS uint32_t *)x)[(part / 4 * nb + b) * 4 + part % 4] = load4(from + 4 * i);
    if (part == 0) ((LDS u32x2 *)(x + 32 * nb))[b] = (u32x2){load4(from + 32 * nb + 4 * b), load4(from + 36 * nb + 4 * b)};
  }
}
INLINE void norm_line(LDS uint8_t *x, const gr_rms_norm GR_CONSTANT *a, uint32_t nb) {
  const float GLOBAL *from = a->x;
  const uint32_t fours = 8 * nb;
  f32x4 v = four(from, block_thread(), fours), w = four(a->w, block_thread(), fours);
  float sum = 0;
#pragma unroll 4
  for (uint32_t j = thread_id(); j < a->N; j += THREADS) sum = sum + from[j] * from[j];
  const float scale = 1.0f / __builtin_sqrtf(group_sum(sum) / (float)a->N + (float)a->eps);
#pragma nounroll
  FOR_FOURS(i, nb) {
    const f32x4 y = v * scale * w;
    v = four(from, i + BLOCK, fours);
    w = four(a->w, i + BLOCK, fours);
    put_quantised(x, nb, i, y);
  }
}
APART f32x4 gated_four(f32x4 value, f32x4 gate) {
  f32x4 y;
  for (int j = 0; j < 4; j++) y[j] = gated_f(value[j], gate[j]);
  return y;
}
INLINE void gated_line(LDS uint8_t *x, const gr_swiglu GR_CONSTANT *a, uint32_t nb) {
  const uint32_t fours = 8 * nb;
  f32x4 gate = four(a->gate, block_thread(), fours), up = four(a->up, block_thread(), fours);
#pragma nounroll
  FOR_FOURS(i, nb) {
    const f32x4 now = gate, times = up;
    gate = four(a->gate, i + BLOCK, fours);
    up = four(a->up, i + BLOCK, fours);
    put_quantised(x, nb, i, gated_four(now, now) * times);
  }
}
INLINE void sigmoid_line(LDS uint8_t *x, const gr_sigmoid_gate GR_CONSTANT *a, uint32_t nb) {
#pragma nounroll
  FOR_FOURS(i, nb) put_quantised(x, nb, i, gated_four(four(a->x, i, 8 * nb), four(a->gate, i, 8 * nb)));
}
INLINE void rounded_line(LDS uint8_t *x, const gr_quantize GR_CONSTANT *a, uint32_t nb) {
#pragma nounroll
  FOR_FOURS(i, nb) put_quantised(x, nb, i, four(a->x, i, 8 * nb));
}

// R rows of one wave: lanes 0, 32 / R, ... end with the sum of one row each, added in the order of wave_sum.
INLINE float sum_of_rows(int R, const float *sum) {
  const uint32_t high = lane_id() & 16, low = lane_id() & 8;
  if (R == 1) return wave_sum(sum[0]);
  float x;
#define HALVES(a, b, side, mask) ((side ? b : a) + float_of(lane_xor(bits_of(side ? a : b), mask)))
  if (R == 2) {
    x = HALVES(sum[0], sum[1], high, 16);
    x = x + float_of(lane_xor(bits_of(x), 8));
  } else {
    const float p = HALVES(sum[0], sum[2], high, 16), q = HALVES(sum[1], sum[3], high, 16);
    x = HALVES(p, q, low, 8);
  }
  for (int mask = 4; mask; mask /= 2) x = x + float_of(lane_xor(bits_of(x), mask));
  return x + 0.0f;
}
INLINE uint32_t row_of_lane(int R) { return R == 4 ? lane_id() / 16 * 2 + lane_id() / 8 % 2 : R == 2 ? lane_id() / 16 : 0; }

// What is added to a row's sum: loaded when its first blocks are, stored with it.
typedef struct {
  float bias, residual;
} addends;
INLINE addends load_addends(const gr_gemv GR_CONSTANT *a, uint32_t row, uint32_t rows) {
  addends x = {0, 0};
  if (row >= rows) return x;
  if (a->b) x.bias = a->b[row];
  if (a->add_out) x.residual = a->add_in[row];
  return x;
}
INLINE void store_row(const gr_gemv GR_CONSTANT *a, uint32_t row, float sum, addends x) {
  if (a->b) sum = sum + x.bias;
  if (a->y) a->y[row] = sum;
  if (a->add_out) a->add_out[row] = x.residual + sum;
}

// Where a wave is in its work: R rows, 32 blocks at a time, then the rows `step` further on.
typedef struct {
  uint32_t row, from, step;
} walk;
INLINE void advance(walk *w, uint32_t nb) {
  w->from += LANES;
  if (w->from < nb) return;
  w->from = 0;
  w->row += w->step;
}
// The blocks that a lane adds in one step; lanes past the end have none.
INLINE int has_block(const weights *m, walk w) { return w.row < m->rows && w.from + lane_id() < m->nb; }
INLINE uint32_t row_at(const weights *m, walk w, int i) { return w.row + (uint32_t)i < m->rows ? w.row + (uint32_t)i : m->rows - 1; }
// Lanes past the end load the last block, so that there is no branch between loads and what is done meanwhile.
INLINE void load_step(uint32_t layout, int R, block *k, const weights *m, walk w) {
  const uint32_t b = w.from + lane_id();
  for (int i = 0; i < R; i++) k[i] = load_block(layout, m, row_at(m, w, i), b < m->nb ? b : m->nb - 1);
}
INLINE void fetch_step(uint32_t layout, int R, const weights *m, walk w) {
  if (!has_block(m, w)) return;
  for (int i = 0; i < R; i++) {
    const size_t at = (size_t)row_at(m, w, i) * m->nb + w.from + lane_id();
    fetch_ahead(m->words + block_bytes(layout) * at);
    if (layout == GR_I8_A) fetch_ahead(m->scales + 16 * at);
    else if (lane_id() % 16 == 0) fetch_ahead(m->scales + 2 * at);
  }
}
// Of the first step, before anything that it waits for: the blocks are on their way to the second cache meanwhile.
INLINE walk fetch_first(uint32_t layout, int R, const weights *m, walk w) {
  fetch_step(layout, R, m, w);
  advance(&w, m->nb);
  advance(&w, m->nb);
  return w;
}
INLINE void add_step(uint32_t layout, int R, const block *k, const weights *m, const LDS uint8_t *x, walk w, float *sum) {
  if (!has_block(m, w)) return;
  const line l = line_in_lds(x, m->nb, w.from + lane_id());
  for (int i = 0; i < R; i++) sum[i] = add_loaded(layout, &k[i], &l, sum[i]);
}
INLINE void store_rows(int R, const gr_gemv GR_CONSTANT *a, const weights *m, walk w, float *sum, addends extra) {
  const float total = sum_of_rows(R, sum);
  const uint32_t mine = w.row + row_of_lane(R);
  if (lane_id() % (LANES / (uint32_t)R) == 0 && mine < m->rows) store_row(a, mine, total, extra);
  for (int i = 0; i < R; i++) sum[i] = 0;
}
// `far` is the walk as far as blocks were fetched ahead. The last step loads nothing.
INLINE void multiply_rows(uint32_t layout, int R, const gr_gemv GR_CONSTANT *a, const weights *m, const LDS uint8_t *x, walk w, walk far) {
  const uint32_t nb = m->nb;
  float sum[4] = {0, 0, 0, 0};
  block now[4], next[4];
  if (w.row >= m->rows) return;
  addends extra = load_addends(a, w.row + row_of_lane(R), m->rows);
  load_step(layout, R, now, m, w);
  for (;;) {
    walk after = w;
    advance(&after, nb);
    if (after.row >= m->rows) break;
    load_step(layout, R, next, m, after);
    fetch_step(layout, R, m, far);
    advance(&far, nb);
    add_step(layout, R, now, m, x, w, sum);
    if (after.row != w.row) {
      store_rows(R, a, m, w, sum, extra);
      extra = load_addends(a, after.row + row_of_lane(R), m->rows);
    }
    for (int i = 0; i < R; i++) now[i] = next[i];
    w = after;
  }
  add_step(layout, R, now, m, x, w, sum);
  store_rows(R, a, m, w, sum, extra);
}
