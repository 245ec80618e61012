// Vectors of rows: 8-bit integer dot products and f32 arithmetic, for each instruction set. V vectors make a panel.
#pragma once
#include "panel.h"
#include "vec.h"

// 32 activations of one token and what kernels derive from them: one cache line.
typedef struct {
  int8_t q[32];
  float d, dsum;      // scale; d * (float)sum
  int32_t sum, sum8;  // of q; 8 times that
  int32_t h32[2];     // 32 times the sum of each half
  float h[2];         // the sum of each half
} line;

INLINE int in_halves(uint32_t layout) { return layout == GR_Q6_K || layout == GR_I8_A; }
INLINE int in_bytes(uint32_t layout) { return layout == GR_Q8_0 || layout == GR_I8_A; }

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "isa_avx512.h"
#elif defined(__AVX2__)
#include "isa_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "isa_neon.h"
#else
#include "isa_generic.h"
#endif

// Columns 4 k .. 4 k + 3 of vector v of a block's rows: unsigned but for q8_0 and i8_a.
INLINE vi columns(uint32_t layout, const uint8_t *w, int v, int k) {
  w += 4 * W * v;
  if (in_bytes(layout)) return load_i(w + 64 * k);
  const vi x = load_i(w + 64 * (k % 4)), low = k < 4 ? low_bits(x, 0, 0, 15) : low_bits(x, 4, 0, 15);
  if (layout != GR_Q6_K) return low;
  const vi high = load_i(w + 256 + 64 * (k / 4));
  switch (k % 4) {
  case 0: return or_i(low, low_bits(high, 0, 4, 0x30));
  case 1: return or_i(low, low_bits(high, 0, 2, 0x30));
  case 2: return or_i(low, low_bits(high, 0, 0, 0x30));
  default: return or_i(low, low_bits(high, 2, 0, 0x30));
  }
}
INLINE void unpack(uint32_t layout, const uint8_t *w, int v, vi *u) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) u[k] = columns(layout, w, v, k);
}

enum { MOST_TOKENS = 4 }; // computed together

#if defined(PAIRS_IN_16_BITS)
#include "pairs.h"
#else
enum { WIDE = 0 }; // see pairs.h
// Dot products of 8 vectors of weights u, four columns each, with the 32 activations of N lines, which are computed
// side by side to hide latencies. Halves: columns 0..15 and 16..31 apart.
#if !defined(OWN_DOTS) // else in the file of the instruction set
INLINE void dot_halves(int N, const vi *u, const line *x, vi (*sum)[2]) {
  for (int k = 0; k < 4; k++)
    for (int t = 0; t < N; t++) {
      sum[t][0] = dot_add(sum[t][0], u[k], all_q(x[t].q + 4 * k));
      sum[t][1] = dot_add(sum[t][1], u[4 + k], all_q(x[t].q + 16 + 4 * k));
    }
}
INLINE void dot_nibbles(int N, const vi *u, const line *x, vi (*sum)[2]) {
  for (int t = 0; t < N; t++) sum[t][0] = sum[t][1] = all_i(0);
  dot_halves(N, u, x, sum);
  for (int t = 0; t < N; t++) sum[t][0] = add_i(sum[t][0], sum[t][1]);
}
INLINE void dot_sixes(int N, const vi *u, const line *x, vi (*sum)[2]) {
  for (int t = 0; t < N; t++) sum[t][0] = sum[t][1] = all_i(0);
  dot_halves(N, u, x, sum);
}
INLINE void dot_bytes(int N, const vi *w, const line *x, vi (*sum)[2]) { // weights + 128 are unsigned
  vi u[8];
  for (int k = 0; k < 8; k++) u[k] = flip(w[k]);
  for (int t = 0; t < N; t++)
    for (int h = 0; h < 2; h++) sum[t][h] = all_i(-4 * x[t].h32[h]);
  dot_halves(N, u, x, sum);
}
#endif
// All V vectors of a block. A whole dot is left in half 0.
INLINE void dot_block(uint32_t layout, int N, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
  for (int v = 0; v < V; v++) {
    vi u[8], some[MOST_TOKENS][2];
    unpack(layout, w, v, u);
    if (layout == GR_Q6_K) dot_sixes(N, u, x, some);
    else if (in_bytes(layout)) dot_bytes(N, u, x, some);
    else dot_nibbles(N, u, x, some);
    for (int t = 0; t < N; t++) {
      dot[t][v][0] = layout == GR_Q8_0 ? add_i(some[t][0], some[t][1]) : some[t][0];
      dot[t][v][1] = some[t][1];
    }
  }
}
#endif

// Where the rows of a product go: with a bias, and added to another operand.
typedef struct {
  const float *bias, *add_in;
  float *y, *add_out;
  uint32_t rows, y_row, add_in_row, add_out_row;
} output;
#define OUTPUT(a) ((output){(a)->b, (a)->add_in, (a)->y, (a)->add_out, (a)->w->rows, (a)->y_row, (a)->add_in_row, (a)->add_out_row})

// Panel p of token t: bias first, then the absorbed sum.
INLINE void finish(const output *o, uint32_t p, uint32_t t, const vf *sums) {
  const uint32_t row = PANEL * p;
  float part[PANEL], *y = o->y ? gr_row(o->y, o->y_row, t) + row : part;
  if (row + PANEL <= o->rows) {
    for (int v = 0; v < V; v++) {
      vf sum = sums[v] + all_f(0); // a sum starts at +0 and is never -0
      if (o->bias) sum = sum + load_f(o->bias + row + W * v);
      store_f(y + W * v, sum);
      if (o->add_out) store_f(gr_row(o->add_out, o->add_out_row, t) + row + W * v, load_f(gr_row((float *)o->add_in, o->add_in_row, t) + row + W * v) + sum);
    }
    return;
  }
  for (int v = 0; v < V; v++) store_f(part + W * v, sums[v] + all_f(0));
  for (uint32_t i = 0; i < o->rows - row; i++) {
    const float sum = o->bias ? part[i] + o->bias[row + i] : part[i];
    y[i] = sum;
    if (o->add_out) gr_row(o->add_out, o->add_out_row, t)[row + i] = gr_row((float *)o->add_in, o->add_in_row, t)[row + i] + sum;
  }
}
