// Weights as they lie in memory (core/layouts.py), what they stand for, and the sums of their products.
#pragma once
#include "gr.h"

INLINE int in_halves(uint32_t layout) { return layout == GR_Q6_K || layout == GR_I8_A; } // scales for 16 columns
INLINE int in_bytes(uint32_t layout) { return layout == GR_Q8_0 || layout == GR_I8_A; }  // else unsigned, in nibbles
INLINE uint32_t block_bytes(uint32_t layout) { return in_bytes(layout) ? 32 : 16; }      // without q6_k's high bits

// A matrix of quantised weights.
typedef struct {
  const uint8_t GLOBAL *words, *scales;
  size_t blocks; // of all rows
  uint32_t rows, nb;
} weights;

INLINE weights weights_of(const gr_matrix GR_MATRIX *m) {
  const uint32_t nb = m->cols / 32;
  return (weights){m->data, m->scales, (size_t)m->rows * nb, m->rows, nb};
}
// The words with the high bits of block `at`'s halves (q6_k).
INLINE const uint8_t GLOBAL *high_bits(const weights *m, size_t at) { return m->words + 16 * m->blocks + 8 * at; }

INLINE int32_t signed_byte(uint32_t x, uint32_t i) { return (int32_t)(x << (24 - 8 * i)) >> 24; } // byte i of x

// Scales s and minima m of the halves of a block: a weight is s * q + m.
typedef struct {
  float s0, s1, m0, m1;
} factors;

// Bits of the scales of block b of a row, which is block `at` of the matrix.
INLINE u32x4 load_scales(uint32_t layout, const weights *m, size_t at, uint32_t row, uint32_t b) {
  const size_t super = (size_t)row * (m->nb / 8) + b / 8;
  const uint8_t GLOBAL *above = m->scales + 2 * m->blocks;
  u32x4 s = {0, 0, 0, 0};
  if (layout == GR_I8_A) return load16(m->scales + 16 * at);
  s[0] = layout == GR_Q4_1 ? load4(m->scales + 4 * at) : load2(m->scales + 2 * at);
  if (layout == GR_Q4_K) s[1] = load4(above + 4 * super);
  if (layout == GR_Q6_K) s[1] = load2(above + 2 * super);
  return s;
}
INLINE factors factors_of(uint32_t layout, u32x4 s) {
  factors f = {0, 0, 0, 0};
  if (layout == GR_Q4_0 || layout == GR_Q8_0 || layout == GR_Q4_1) f.s0 = half_of(s[0]);
  if (layout == GR_Q4_1) f.m0 = half_of(s[0] >> 16);
  if (layout == GR_Q4_K) {
    f.s0 = half_of(s[1]) * (float)(s[0] & 255);
    f.m0 = -(half_of(s[1] >> 16) * (float)(s[0] >> 8));
  }
  if (layout == GR_Q6_K) {
    f.s0 = half_of(s[1]) * (float)signed_byte(s[0], 0);
    f.s1 = half_of(s[1]) * (float)signed_byte(s[0], 1);
  }
  if (layout == GR_I8_A) f = (factors){float_of(s[0]), float_of(s[1]), -float_of(s[2]), -float_of(s[3])};
  return f;
}

// Four weights of half h from its word k of nibbles and its high bits.
INLINE uint32_t unpacked(uint32_t layout, uint32_t nibbles, uint32_t high, uint32_t h, uint32_t k) {
  const uint32_t low = (h ? nibbles >> 4 : nibbles) & 0x0f0f0f0f;
  return layout == GR_Q6_K ? low | (high >> (2 * k) & 0x03030303) << 4 : low;
}

// A lane's sum with the product of a block: of its halves' integer dots, the activations' scale, their sum and that of
// their first half. Weights in nibbles are unsigned, so what is taken from each is taken from the dots here.
INLINE float add_block(uint32_t layout, factors f, int32_t dot0, int32_t dot1, float d, int32_t total, int32_t half, float sum) {
  if (layout == GR_Q4_0) return sum + f.s0 * d * (float)(dot0 + dot1 - 8 * total);
  if (layout == GR_Q8_0) return sum + f.s0 * d * (float)(dot0 + dot1);
  if (layout == GR_Q4_1 || layout == GR_Q4_K)
    return __builtin_fmaf(f.m0, d * (float)total, __builtin_fmaf(f.s0 * (float)(dot0 + dot1), d, sum));
  if (layout == GR_Q6_K) {
    dot0 -= 32 * half;
    dot1 -= 32 * (total - half);
  }
  sum = __builtin_fmaf(__builtin_fmaf(f.s1, (float)dot1, f.s0 * (float)dot0), d, sum);
  if (layout == GR_I8_A) sum = __builtin_fmaf(__builtin_fmaf((float)(total - half), f.m1, (float)half * f.m0), d, sum);
  return sum;
}

// Sums of waves 0 .. 7, `step` floats apart, added by halves.
INLINE float waves_sum(const LDS float *part, uint32_t step) {
  float x[WAVES];
  for (uint32_t v = 0; v < WAVES; v++) x[v] = part[step * v];
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

// Where the sum of a row and a token goes: bias first, then the absorbed sum.
INLINE void finish(const gr_gemv GR_CONSTANT *a, uint32_t row, uint32_t t, float sum) {
  if (a->b) sum = sum + a->b[row];
  if (a->y) ROW(a->y, a->y_row, t)[row] = sum;
  if (a->add_out) ROW(a->add_out, a->add_out_row, t)[row] = ROW(a->add_in, a->add_in_row, t)[row] + sum;
}

// The value of one weight, its product and sum rounded apart.
INLINE float weight_value(uint32_t layout, const weights *m, uint32_t row, uint32_t c) {
  const uint32_t b = c / 32, j = c % 32, h = j / 16;
  const size_t at = (size_t)row * m->nb + b;
  const factors f = factors_of(layout, load_scales(layout, m, at, row, b));
  const float s = h && in_halves(layout) ? f.s1 : f.s0, low = h && layout == GR_I8_A ? f.m1 : f.m0;
  int32_t q;
  if (in_bytes(layout)) q = (int8_t)m->words[32 * at + j];
  else {
    const uint32_t high = layout == GR_Q6_K ? load4(high_bits(m, at) + 4 * h) : 0;
    q = (int32_t)(unpacked(layout, load4(m->words + 16 * at + 4 * (j % 16 / 4)), high, h, j % 16 / 4) >> (8 * (j % 4)) & 255);
    q -= layout == GR_Q4_0 ? 8 : layout == GR_Q6_K ? 32 : 0;
  }
  const float product = (float)q * s;
  return layout == GR_Q4_1 || layout == GR_Q4_K || layout == GR_I8_A ? product + low : product;
}
// The same for a matrix of any layout.
INLINE float matrix_value(const gr_matrix GR_MATRIX *matrix, uint32_t row, uint32_t c) {
  const weights m = weights_of(matrix);
  switch (matrix->layout) {
  case GR_Q4_0: return weight_value(GR_Q4_0, &m, row, c);
  case GR_Q4_1: return weight_value(GR_Q4_1, &m, row, c);
  case GR_Q8_0: return weight_value(GR_Q8_0, &m, row, c);
  case GR_Q4_K: return weight_value(GR_Q4_K, &m, row, c);
  case GR_Q6_K: return weight_value(GR_Q6_K, &m, row, c);
  case GR_I8_A: return weight_value(GR_I8_A, &m, row, c);
  default: return ((const float GLOBAL *)matrix->data)[(size_t)row * matrix->cols + c];
  }
}
