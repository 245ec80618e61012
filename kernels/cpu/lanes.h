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

#if !defined(MOST_TOKENS)
#define MOST_TOKENS 4 // computed together: 1 to 4, or so many
#endif
#if !defined(PIN)
#define PIN(x) // see isa_avx2.h
#endif

// Vectors first .. first + n - 1 of a panel.
typedef struct {
  int first, n;
} vectors;

// dot_block: the exact dots of a block of weights and N lines, of some vectors side by side. A whole dot is left in
// half 0; halves are columns 0..15 and 16..31. `from` is the layout of w, or q8_0 where that was unpacked before.
#if defined(PAIRS_IN_16_BITS)
#include "pairs.h"
#elif defined(OWN_DOTS)
enum { WIDE = 0 }; // see pairs.h
INLINE void dot_block(uint32_t layout, uint32_t from, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
  for (int v = 0; v < some.n; v++) {
    vi u[8], halves[MOST_TOKENS][2];
    unpack(from, w, some.first + v, u);
    if (layout == GR_Q6_K) dot_sixes(N, u, x, halves);
    else if (in_bytes(layout)) dot_bytes(N, u, x, halves);
    else dot_nibbles(N, u, x, halves);
    for (int t = 0; t < N; t++) {
      dot[t][v][0] = layout == GR_Q8_0 ? add_i(halves[t][0], halves[t][1]) : halves[t][0];
      dot[t][v][1] = halves[t][1];
    }
  }
}
#else
enum { WIDE = 0 };
INLINE void dot_block(uint32_t layout, uint32_t from, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
  const int halves = in_halves(layout), apart = halves || N == 1, chain = apart ? 4 : 8; // two chains where tokens are few
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    vi u[V];
    for (int v = 0; v < some.n; v++) u[v] = in_bytes(layout) ? flip(columns(from, w, some.first + v, k)) : columns(from, w, some.first + v, k);
    for (int t = 0; t < N; t++) {
      const vi q = all_q(x[t].q + 4 * k);
      for (int v = 0; v < some.n; v++) {
        vi *sum = &dot[t][v][k / chain];
        if (k % chain == 0) *sum = all_i(!in_bytes(layout) ? 0 : apart ? -4 * x[t].h32[k / 4] : -128 * x[t].sum); // bytes + 128 are unsigned
        *sum = dot_add(*sum, u[v], q);
        PIN(*sum);
      }
    }
  }
  for (int t = 0; apart && !halves && t < N; t++)
    for (int v = 0; v < some.n; v++) dot[t][v][0] = add_i(dot[t][v][0], dot[t][v][1]);
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
