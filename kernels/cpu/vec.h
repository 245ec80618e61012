// Eight f32 at a time, the same bits on every processor.
#pragma once
#include "worker.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float v8 __attribute__((vector_size(32), aligned(4)));
typedef int32_t i8 __attribute__((vector_size(32), aligned(4)));
typedef int8_t c8 __attribute__((vector_size(8), aligned(1)));

INLINE v8 load8(const float *p) { return *(const v8 *)p; }
INLINE void store8(float *p, v8 x) { *(v8 *)p = x; }
INLINE v8 all8(float x) { return (v8){x, x, x, x, x, x, x, x}; }
INLINE i8 all8i(int32_t x) { return (i8){x, x, x, x, x, x, x, x}; }
INLINE v8 pick8(i8 mask, v8 a, v8 b) { return (v8)((mask & (i8)a) | (~mask & (i8)b)); }

INLINE float halves_to_float(gr_half bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}
INLINE gr_half float_to_half(float x) {
  _Float16 h = (_Float16)x;
  gr_half bits;
  memcpy(&bits, &h, 2);
  return bits;
}
INLINE v8 load8_half(const gr_half *p) {
#if defined(__AVX2__)
  return (v8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(__aarch64__)
  typedef _Float16 h8 __attribute__((vector_size(16), aligned(2)));
  return __builtin_convertvector(*(const h8 *)p, v8);
#else
  v8 x;
  for (int i = 0; i < 8; i++) x[i] = halves_to_float(p[i]);
  return x;
#endif
}

// Eight values, or fewer with zeros behind them.
INLINE v8 load_part(const float *p, uint32_t n) {
  if (n >= 8) return load8(p);
  v8 x = all8(0);
  for (uint32_t i = 0; i < n; i++) x[i] = p[i];
  return x;
}
INLINE void store_part(float *p, v8 x, uint32_t n) {
  if (n >= 8) store8(p, x);
  else
    for (uint32_t i = 0; i < n; i++) p[i] = x[i];
}

// The sums of core/order.py. Eight lanes by halves: 4 apart, 2 apart, neighbours.
INLINE float sum8(v8 x) {
  float a = x[0] + x[4], b = x[1] + x[5], c = x[2] + x[6], d = x[3] + x[7];
  return (a + c) + (b + d);
}
INLINE float tree32(const v8 *x) { return sum8((x[0] + x[2]) + (x[1] + x[3])) + 0.0f; } // a wave's
// Terms x[i], or their squares, as a workgroup adds them: 256 threads, each wave's tree, waves in order.
INLINE float group_sum(const float *x, uint32_t n, int squares) {
  v8 threads[32];
  for (uint32_t i = 0; i < 32; i++) threads[i] = all8(0);
  for (uint32_t i = 0; i < n; i += 8) {
    const v8 term = load_part(x + i, n - i);
    threads[i / 8 % 32] = threads[i / 8 % 32] + (squares ? term * term : term);
  }
  float total = 0;
  for (uint32_t wave = 0; wave < 8; wave++) total += tree32(threads + 4 * wave);
  return total;
}
INLINE float max8(v8 x) {
  float m = x[0];
  for (int i = 1; i < 8; i++) m = x[i] > m ? x[i] : m;
  return m;
}

// exp8, gated8, softplus8.
#define FM_F v8
#define FM_I i8
#define FM_ALL(x) all8(x)
#define FM_ALLI(x) all8i(x)
#define FM_BITS(x) ((i8)(x))
#define FM_FLOAT(i) ((v8)(i))
#define FM_PICK(condition, a, b) pick8((i8)(condition), a, b)
#define FM_NAME(function) function##8
#define FM_INLINE INLINE
#include "../fmath.h"

// Quantise block b of a row of nb blocks: 32 nb int8, then nb f32 d, then nb sums. Not a number in, not a number out.
static inline void quantise_block(const float *x, uint8_t *row, uint32_t nb, uint32_t b) {
  const i8 magnitude = all8i(0x7fffffff);
  i8 most = all8i(0);
  for (int i = 0; i < 4; i++) { // patterns of magnitudes are ordered like the magnitudes, nan above all
    i8 bits = (i8)load8(x + 8 * i) & magnitude;
    i8 more = (i8)(bits > most);
    most = (more & bits) | (~more & most);
  }
  int32_t top = most[0];
  for (int i = 1; i < 8; i++) top = most[i] > top ? most[i] : top;
  float largest;
  memcpy(&largest, &top, 4);
  float d = largest / 127.0f;
  int8_t *q = (int8_t *)row + 32 * (size_t)b;
  int32_t total = 0;
  if (d == 0) memset(q, 0, 32);
  else {
    i8 sum = all8i(0);
    for (int i = 0; i < 4; i++) {
      v8 scaled = load8(x + 8 * i) / all8(d);
      i8 whole = __builtin_convertvector(scaled, i8);
      v8 rest = scaled - __builtin_convertvector(whole, v8);
      whole += __builtin_convertvector(rest + rest, i8);
      *(c8 *)(q + 8 * i) = __builtin_convertvector(whole, c8);
      sum += whole;
    }
    for (int i = 0; i < 8; i++) total += sum[i];
  }
  memcpy(row + 32 * (size_t)nb + 4 * b, &d, 4);
  memcpy(row + 36 * (size_t)nb + 4 * b, &total, 4);
}
