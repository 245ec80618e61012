// Sixteen rows in a 512-bit vector, dot products by VNNI.
enum { V = 1, W = 16 };
#define MOST_TOKENS 8
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
