// Sixteen rows in a compiler's vector.
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
