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

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
enum { V = 1, W = 16 };
typedef __m512i vi;
typedef __m512 vf;
INLINE vi load_i(const void *p) { return _mm512_loadu_si512(p); }
INLINE vi all_i(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi all_q(const int8_t *p) { int32_t x; memcpy(&x, p, 4); return _mm512_set1_epi32(x); }
INLINE vi low_bits(vi x, int right, int left, uint8_t mask) { // every byte: (x >> right << left) & mask
  x = left ? _mm512_slli_epi16(x, left) : _mm512_srli_epi16(x, right);
  return _mm512_and_si512(x, _mm512_set1_epi8((char)mask));
}
INLINE vi or_i(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vf to_f(vi x) { return _mm512_cvtepi32_ps(x); }
INLINE vf load_f(const float *p) { return _mm512_loadu_ps(p); }
INLINE void store_f(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf all_f(float x) { return _mm512_set1_ps(x); }
INLINE vf fma_f(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf half_f(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf u8_f(const uint8_t *p) { return to_f(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INLINE vf s8_f(const uint8_t *p) { return to_f(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
#define DOT_ACCUMULATES 1
INLINE vi dot_add(vi sum, vi u, vi q) { return _mm512_dpbusd_epi32(sum, u, q); }
INLINE vi flip(vi x) { return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80)); }
INLINE vi add_i(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi sub_i(vi a, vi b) { return _mm512_sub_epi32(a, b); }

#elif defined(__AVX2__)
enum { V = 2, W = 8 };
typedef __m256i vi;
typedef __m256 vf;
INLINE vi load_i(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi all_i(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi all_q(const int8_t *p) { int32_t x; memcpy(&x, p, 4); return _mm256_set1_epi32(x); }
INLINE vi low_bits(vi x, int right, int left, uint8_t mask) {
  x = left ? _mm256_slli_epi16(x, left) : right ? _mm256_srli_epi16(x, right) : x;
  return _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
}
INLINE vi or_i(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vf to_f(vi x) { return _mm256_cvtepi32_ps(x); }
INLINE vf load_f(const float *p) { return _mm256_loadu_ps(p); }
INLINE void store_f(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf all_f(float x) { return _mm256_set1_ps(x); }
INLINE vf fma_f(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf half_f(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vf u8_f(const uint8_t *p) { return to_f(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
INLINE vf s8_f(const uint8_t *p) { return to_f(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
INLINE vi add_i(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi sub_i(vi a, vi b) { return _mm256_sub_epi32(a, b); }
#if defined(__AVXVNNI__)
#define DOT_ACCUMULATES 1
INLINE vi dot_add(vi sum, vi u, vi q) { return _mm256_dpbusd_avx_epi32(sum, u, q); }
INLINE vi flip(vi x) { return _mm256_xor_si256(x, _mm256_set1_epi8((char)0x80)); }
#else
INLINE vi pairs(vi u, vi q) { return _mm256_maddubs_epi16(u, q); } // 16 bits, which must not overflow
INLINE vi widen(vi x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
INLINE vi add16(vi a, vi b) { return _mm256_add_epi16(a, b); }
INLINE vi signed_pairs(vi w, vi q) { return pairs(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)); } // |sum| <= 2 * 128 * 127
#endif

#else // compilers' vectors
enum { V = 1, W = 16 };
typedef uint32_t vi __attribute__((vector_size(64), aligned(4)));
typedef int32_t vs __attribute__((vector_size(64), aligned(4)));
typedef float vf __attribute__((vector_size(64), aligned(4)));
INLINE vi load_i(const void *p) { return *(const vi *)p; }
INLINE vi all_i(int32_t x) { return (vi){0} + (uint32_t)x; }
INLINE vi all_q(const int8_t *p) { int32_t x; memcpy(&x, p, 4); return all_i(x); }
INLINE vi low_bits(vi x, int right, int left, uint8_t mask) { return ((left ? x << left : x >> right)) & (mask * 0x01010101u); }
INLINE vi or_i(vi a, vi b) { return a | b; }
INLINE vf to_f(vi x) { return __builtin_convertvector((vs)x, vf); }
INLINE vf load_f(const float *p) { return *(const vf *)p; }
INLINE void store_f(float *p, vf x) { *(vf *)p = x; }
INLINE vf all_f(float x) { vf v; for (int i = 0; i < W; i++) v[i] = x; return v; }
INLINE vf fma_f(vf a, vf b, vf c) { for (int i = 0; i < W; i++) c[i] = fmaf(a[i], b[i], c[i]); return c; }
INLINE vf half_f(const uint8_t *p) { gr_half h[W]; vf v; memcpy(h, p, 2 * W); for (int i = 0; i < W; i++) v[i] = halves_to_float(h[i]); return v; }
INLINE vf u8_f(const uint8_t *p) { vf v; for (int i = 0; i < W; i++) v[i] = p[i]; return v; }
INLINE vf s8_f(const uint8_t *p) { vf v; for (int i = 0; i < W; i++) v[i] = (int8_t)p[i]; return v; }
#define DOT_ACCUMULATES 1
INLINE vi dot_add(vi sum, vi u, vi q) {
  for (int e = 0; e < 4; e++) sum += (u >> (8 * e) & 255) * (vi)((vs)(q << (24 - 8 * e)) >> 24);
  return sum;
}
INLINE vi flip(vi x) { return x ^ 0x80808080u; }
INLINE vi add_i(vi a, vi b) { return a + b; }
INLINE vi sub_i(vi a, vi b) { return a - b; }
#endif

// Dot products of 8 vectors of weights u, four columns each, with the 32 activations of N lines, which are computed
// side by side to hide latencies. Halves: columns 0..15 and 16..31 apart.
#if defined(DOT_ACCUMULATES)
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
#else
INLINE void dot_nibbles(int N, const vi *u, const line *x, vi (*sum)[2]) { // 16 bits hold 8 pairs of 15 * 127
  for (int k = 0; k < 8; k++)
    for (int t = 0; t < N; t++) {
      vi p = pairs(u[k], all_q(x[t].q + 4 * k));
      sum[t][0] = k ? add16(sum[t][0], p) : p;
    }
  for (int t = 0; t < N; t++) sum[t][0] = widen(sum[t][0]);
}
INLINE void dot_sixes(int N, const vi *u, const line *x, vi (*sum)[2]) { // 16 bits hold 2 pairs of 63 * 127
  for (int h = 0; h < 2; h++)
    for (int k = 0; k < 4; k += 2)
      for (int t = 0; t < N; t++) {
        const vi *w = u + 4 * h + k;
        const int8_t *q = x[t].q + 16 * h + 4 * k;
        vi p = widen(add16(pairs(w[0], all_q(q)), pairs(w[1], all_q(q + 4))));
        sum[t][h] = k ? add_i(sum[t][h], p) : p;
      }
}
INLINE void dot_bytes(int N, const vi *w, const line *x, vi (*sum)[2]) {
  for (int h = 0; h < 2; h++)
    for (int k = 0; k < 4; k++)
      for (int t = 0; t < N; t++) {
        vi p = widen(signed_pairs(w[4 * h + k], all_q(x[t].q + 16 * h + 4 * k)));
        sum[t][h] = k ? add_i(sum[t][h], p) : p;
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
