// Eight rows in a 256-bit vector, dot products by pairs in 16 bits, or by VNNI.
enum { V = 2, W = 8 };
typedef __m256i vi;
typedef __m256 vf;
// A sum that is made here and stays in a register: else compilers compute token after token, and spill the weights.
#define PIN(x) __asm__ volatile("" : "+x"(x))
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
#define PAIRS_IN_16_BITS 1
INLINE vi pairs(vi u, vi q) { return _mm256_maddubs_epi16(u, q); } // 16 bits, which must not overflow
INLINE vi widen(vi x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
INLINE vi add16(vi a, vi b) { return _mm256_add_epi16(a, b); }
INLINE vi absolute(vi x) { return _mm256_abs_epi8(x); }
INLINE vi with_sign(vi x, vi of) { return _mm256_sign_epi8(x, of); }
INLINE vi even16(vi x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
INLINE vi odd16(vi x) { return _mm256_srai_epi16(x, 8); }
INLINE vi products(vi a, vi b) { return _mm256_madd_epi16(a, b); }
#endif
