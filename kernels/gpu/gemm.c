// Products of quantised weights and many quantised tokens, with the bits of gemv.c: 32 rows x 32 tokens a workgroup.
//
// Matrix instructions give the exact dots of a block for 16 rows and 16 tokens. Wave v adds the blocks of lanes v,
// v + 16, v + 8 and v + 24, and adds these by halves; then the waves are added by halves. So the eight waves read
// neighbouring blocks at about the same time.
#include "weights.h"

enum { TILE = 16, SIDE = 2, EDGE = TILE * SIDE }; // a workgroup has SIDE x SIDE tiles

// Sums of a wave's tiles.
typedef struct {
  float of[SIDE][SIDE][8];
} tiles;

// A lane's part of 16 rows of a block.
typedef struct {
  u32x2 q[2]; // of each half
  float s0[ROW_SCALES], s1[ROW_SCALES], m0[ROW_SCALES], m1[ROW_SCALES];
} rows_part;

INLINE rows_part load_rows(uint32_t layout, const weights *m, uint32_t row0, uint32_t b) {
  rows_part p;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const uint32_t row = row0 + tile_line(j), k = tile_word(j);
    const size_t at = (size_t)(row < m->rows ? row : m->rows - 1) * m->nb + b;
    const uint8_t GLOBAL *words = m->words + block_bytes(layout) * at + 4 * k;
    const uint32_t first = load4(words);
    u32x2 high = {0, 0};
    if (layout == GR_Q6_K) high = load8(high_bits(m, at));
    p.q[0][j] = in_bytes(layout) ? first : unpacked(layout, first, high[0], 0, k);
    p.q[1][j] = in_bytes(layout) ? load4(words + 16) : unpacked(layout, first, high[1], 1, k);
  }
#pragma unroll
  for (int i = 0; i < ROW_SCALES; i++) {
    const uint32_t below = row0 + scale_row(i), row = below < m->rows ? below : m->rows - 1;
    const factors f = factors_of(layout, load_scales(layout, m, (size_t)row * m->nb + b, row, b));
    p.s0[i] = f.s0, p.s1[i] = f.s1, p.m0[i] = f.m0, p.m1[i] = f.m1;
  }
  return p;
}

// A lane's part of a block of 16 tokens, and of their sums.
typedef struct {
  u32x2 q[2];
  float d[TOKEN_SCALES];
  int32_t sum[TOKEN_SCALES], half[TOKEN_SCALES]; // of the first half
} tokens_part;

INLINE tokens_part load_tokens(uint32_t layout, const gr_gemv GR_CONSTANT *a, uint32_t t0, uint32_t nb, uint32_t b) {
  const uint32_t last = a->T - 1;
  tokens_part p;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const uint32_t t = t0 + tile_line(j);
    const uint8_t GLOBAL *x = ROW(a->x, a->x_row, t < last ? t : last) + 32 * (size_t)b + 4 * tile_word(j);
    p.q[0][j] = load4(x);
    p.q[1][j] = load4(x + 16);
  }
#pragma unroll
  for (int i = 0; i < TOKEN_SCALES; i++) {
    const uint32_t t = t0 + scale_token(i);
    const uint8_t GLOBAL *d = ROW(a->x, a->x_row, t < last ? t : last) + 32 * (size_t)nb + 4 * (size_t)b;
    p.d[i] = float_of(load4(d));
    p.sum[i] = (int32_t)load4(d + 4 * (size_t)nb);
  }
  const i32x8 zero = {0}, halves = in_halves(layout) ? wmma_iu8(zero, 1, (u32x2){0x01010101, 0x01010101}, p.q[0]) : zero;
#pragma unroll
  for (int i = 0; i < TOKEN_SCALES; i++) p.half[i] = halves[element_of(i)];
  return p;
}

INLINE void add_tile(uint32_t layout, const rows_part *r, const tokens_part *c, float *sum) {
  const i32x8 zero = {0};
  const i32x8 first = wmma_iu8(zero, in_bytes(layout), r->q[0], c->q[0]);
  const i32x8 second = wmma_iu8(in_halves(layout) ? zero : first, in_bytes(layout), r->q[1], c->q[1]);
#pragma unroll
  for (int e = 0; e < 8; e++) {
    const int t = of_token(e);
    factors f = {of_row(r->s0, e), 0, 0, 0};
    if (in_halves(layout)) f.s1 = of_row(r->s1, e);
    if (layout == GR_Q4_1 || layout == GR_Q4_K || layout == GR_I8_A) f.m0 = of_row(r->m0, e);
    if (layout == GR_I8_A) f.m1 = of_row(r->m1, e);
    sum[e] = add_block(layout, f, in_halves(layout) ? first[e] : 0, second[e], c->d[t], c->sum[t], c->half[t], sum[e]);
  }
}

// Blocks `lane`, lane + 32, ...
INLINE tiles lane_sums(uint32_t layout, const gr_gemv GR_CONSTANT *a, const weights *m, uint32_t row0, uint32_t t0, uint32_t lane) {
  tiles sum = {0};
  for (uint32_t b = lane; b < m->nb; b += LANES) {
    rows_part r[SIDE];
    tokens_part c[SIDE];
#pragma unroll
    for (uint32_t i = 0; i < SIDE; i++) {
      r[i] = load_rows(layout, m, row0 + TILE * i, b);
      c[i] = load_tokens(layout, a, t0 + TILE * i, m->nb, b);
    }
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
      for (int j = 0; j < SIDE; j++) add_tile(layout, &r[i], &c[j], sum.of[i][j]);
  }
  return sum;
}
// The sum of two lanes' tiles, or what it adds to the first two lanes' sum, into the wave's part of shared memory.
INLINE void add_part(LDS float *part, const tiles *x, const tiles *y, int first) {
#pragma unroll
  for (int i = 0; i < SIDE; i++)
#pragma unroll
    for (int j = 0; j < SIDE; j++)
#pragma unroll
      for (int e = 0; e < 8; e++) {
        LDS float *to = part + (EDGE * wave_id() + TILE * (uint32_t)j + tile_token(e)) * EDGE + TILE * (uint32_t)i + tile_row(e);
        const float sum = x->of[i][j][e] + y->of[i][j][e];
        *to = first ? sum : *to + sum;
      }
}

INLINE void many_tokens(uint32_t layout, const gr_gemv GR_CONSTANT *a, gr_work w) {
  const weights m = weights_of(a->w);
  const uint32_t across = ceil_div(m.rows, EDGE), row0 = w.group % across * EDGE, t0 = w.group / across * EDGE;
  if (t0 >= a->T) return;
  LDS float *part = (LDS float *)gr_lds; // [wave][token][row]
  tiles pair = {0};
  barrier();
#pragma unroll 1
  for (uint32_t i = 0; i < 4; i++) { // lanes v and v + 16, then v + 8 and v + 24
    const tiles sum = lane_sums(layout, a, &m, row0, t0, wave_id() + 8 * (i % 2 * 2 + i / 2));
    if (i % 2 == 0) pair = sum;
    else add_part(part, &pair, &sum, i == 1);
  }
  barrier();
  for (uint32_t i = thread_id(); i < EDGE * EDGE; i += THREADS) {
    const float sum = waves_sum(part + i, EDGE * EDGE);
    const uint32_t row = row0 + i % EDGE, t = t0 + i / EDGE;
    if (row < m.rows && t < a->T) finish(a, row, t, sum + 0.0f);
  }
}

#define PRODUCT(name, layout) \
  INLINE void gemm_##name(const gr_gemv GR_CONSTANT *a, gr_work w) { many_tokens(layout, a, w); }
PRODUCT(q4_0, GR_Q4_0)
PRODUCT(q4_1, GR_Q4_1)
PRODUCT(q8_0, GR_Q8_0)
PRODUCT(q4_k, GR_Q4_K)
PRODUCT(q6_k, GR_Q6_K)
PRODUCT(i8_a, GR_I8_A)
