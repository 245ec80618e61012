// Keys and values of a split as f32, wherever they are kept.
#pragma once
#include "vec.h"

enum { SPLIT = 32 }; // keys that share a maximum

// Keys and values of one head: a cache, or a ring of positions before the step and the step's own rows.
typedef struct {
  const void *kc, *vc;
  const float *k, *v; // null: a cache
  uint32_t half, G, D, g, S, from, context, k_row, k_col, v_row, v_col;
} source;

// Where a key's or value's row is, of number i: in the ring or cache, or of the step itself.
typedef struct {
  const void *at;
  int half;
} place;
INLINE place row_of(const source *s, uint32_t i, int value) {
  if (s->k && i >= s->context) {
    const uint32_t row = value ? s->v_row : s->k_row, col = value ? s->v_col : s->k_col;
    return (place){AT(const float, value ? s->v : s->k, (size_t)row * (i - s->context) + (size_t)col * s->g), 0};
  }
  const size_t at = ((size_t)(s->k ? (s->from + i) % s->S : i) * s->G + s->g) * s->D;
  const char *base = value ? s->vc : s->kc;
  return (place){base + (s->half ? 2 : 4) * at, s->half};
}
INLINE float element(place p, uint32_t d) { return p.half ? halves_to_float(((const gr_half *)p.at)[d]) : ((const float *)p.at)[d]; }

INLINE void copy_rows(int half, const void *from, size_t at, size_t step, uint32_t rows, uint32_t n, float *to, size_t to_step) {
  for (uint32_t r = 0; r < rows; r++, at += step, to += to_step)
    for (uint32_t i = 0; i < n; i += 8) store8(to + i, half ? load8_half((const gr_half *)from + at + i) : load8((const float *)from + at + i));
}

// The keys of a split as [channels of whole waves][32], absent ones 0.
static void load_keys(const source *s, uint32_t first, uint32_t n, float *keys) {
  const uint32_t D = s->D, wide = (D + 31) / 32 * 32;
  if (n < SPLIT || wide > D) memset(keys, 0, sizeof(float) * SPLIT * wide);
  for (uint32_t p = 0; p < n; p += 16) {
    const size_t at = ((size_t)((first + p) / 16) * s->G + s->g) * D * 16;
    if (!s->k && s->half) copy_rows(1, s->kc, at, 16, D, 16, keys + p, SPLIT);
    else if (!s->k) copy_rows(0, s->kc, at, 16, D, 16, keys + p, SPLIT);
    for (uint32_t i = p; s->k && i < gr_min(n, p + 16); i++) {
      const place row = row_of(s, first + i, 0);
      for (uint32_t d = 0; d < D; d++) keys[SPLIT * d + i] = element(row, d);
    }
  }
}

// The values of a split as [32][D], absent ones 0.
static void load_values(const source *s, uint32_t first, uint32_t n, float *values) {
  const uint32_t D = s->D;
  if (n < SPLIT) memset(values, 0, sizeof(float) * SPLIT * D);
  if (!s->k && D % 8 == 0) {
    const size_t at = ((size_t)first * s->G + s->g) * D, step = (size_t)s->G * D;
    if (s->half) copy_rows(1, s->vc, at, step, n, D, values, D);
    else copy_rows(0, s->vc, at, step, n, D, values, D);
    return;
  }
  for (uint32_t p = 0; p < n; p++) {
    const place row = row_of(s, first + p, 1);
    for (uint32_t d = 0; d < D; d++) values[D * p + d] = element(row, d);
  }
}
