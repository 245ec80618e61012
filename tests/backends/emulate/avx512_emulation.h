// The 512-bit intrinsics that kernels use, in compilers' vectors and plain C.
#pragma once

typedef uint32_t emulated_u32 __attribute__((vector_size(64)));
typedef int32_t emulated_s32 __attribute__((vector_size(64)));
typedef uint16_t emulated_u16 __attribute__((vector_size(64)));
typedef uint8_t emulated_u8 __attribute__((vector_size(64)));

EMULATED __m512i emulated_load(const void *p) {
  __m512i x;
  memcpy(&x, p, 64);
  return x;
}
EMULATED void emulated_store(void *p, __m512i x) { memcpy(p, &x, 64); }
EMULATED __m512 emulated_load_f(const void *p) { return (__m512)emulated_load(p); }
EMULATED void emulated_store_f(void *p, __m512 x) { memcpy(p, &x, 64); }
EMULATED __m512i emulated_set_32(int x) { return (__m512i)((emulated_s32){0} + x); }
EMULATED __m512i emulated_set_8(char x) { return (__m512i)((emulated_u8){0} + (uint8_t)x); }
EMULATED __m512 emulated_set_f(float x) {
  __m512 all;
  for (int i = 0; i < 16; i++) all[i] = x;
  return all;
}
EMULATED __m512i emulated_left_16(__m512i x, unsigned bits) { return (__m512i)((emulated_u16)x << (uint16_t)bits); }
EMULATED __m512i emulated_right_16(__m512i x, unsigned bits) { return (__m512i)((emulated_u16)x >> (uint16_t)bits); }
EMULATED __m512i emulated_left_32(__m512i x, unsigned bits) { return (__m512i)((emulated_u32)x << bits); }
EMULATED __m512i emulated_right_32(__m512i x, unsigned bits) { return (__m512i)((emulated_u32)x >> bits); }
EMULATED __m512i emulated_add_32(__m512i a, __m512i b) { return (__m512i)((emulated_u32)a + (emulated_u32)b); }
EMULATED __m512i emulated_sub_32(__m512i a, __m512i b) { return (__m512i)((emulated_u32)a - (emulated_u32)b); }
EMULATED __m512i emulated_add_8(__m512i a, __m512i b) { return (__m512i)((emulated_u8)a + (emulated_u8)b); }
EMULATED __m512i emulated_sub_8(__m512i a, __m512i b) { return (__m512i)((emulated_u8)a - (emulated_u8)b); }
EMULATED __m512 emulated_to_f(__m512i x) { return __builtin_convertvector((emulated_s32)x, __m512); }
EMULATED __m512 emulated_fma(__m512 a, __m512 b, __m512 c) {
  for (int i = 0; i < 16; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
EMULATED __m512 emulated_halves(__m256i x) {
  _Float16 h[16];
  __m512 wide;
  memcpy(h, &x, 32);
  for (int i = 0; i < 16; i++) wide[i] = (float)h[i];
  return wide;
}
EMULATED __m512i emulated_widen(__m128i x, int is_signed) {
  uint8_t bytes[16];
  emulated_s32 wide;
  memcpy(bytes, &x, 16);
  for (int i = 0; i < 16; i++) wide[i] = is_signed ? (int8_t)bytes[i] : bytes[i];
  return (__m512i)wide;
}
EMULATED __m512i emulated_dpbusd_512(__m512i sum, __m512i a, __m512i b) {
  uint32_t s[16];
  uint8_t u[64];
  int8_t q[64];
  memcpy(s, &sum, 64), memcpy(u, &a, 64), memcpy(q, &b, 64);
  emulated_dot(16, s, u, q);
  memcpy(&sum, s, 64);
  return sum;
}

#define _mm512_loadu_si512 emulated_load
#define _mm512_load_si512 emulated_load
#define _mm512_storeu_si512 emulated_store
#define _mm512_store_si512 emulated_store
#define _mm512_loadu_ps emulated_load_f
#define _mm512_load_ps emulated_load_f
#define _mm512_storeu_ps emulated_store_f
#define _mm512_store_ps emulated_store_f
#define _mm512_set1_epi32 emulated_set_32
#define _mm512_set1_epi8 emulated_set_8
#define _mm512_set1_ps emulated_set_f
#define _mm512_setzero_si512() emulated_set_32(0)
#define _mm512_setzero_ps() emulated_set_f(0)
#undef _mm512_slli_epi16
#undef _mm512_srli_epi16
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#define _mm512_slli_epi16 emulated_left_16
#define _mm512_srli_epi16 emulated_right_16
#define _mm512_slli_epi32 emulated_left_32
#define _mm512_srli_epi32 emulated_right_32
#define _mm512_and_si512(a, b) ((a) & (b))
#define _mm512_or_si512(a, b) ((a) | (b))
#define _mm512_xor_si512(a, b) ((a) ^ (b))
#define _mm512_add_epi32 emulated_add_32
#define _mm512_sub_epi32 emulated_sub_32
#define _mm512_add_epi8 emulated_add_8
#define _mm512_sub_epi8 emulated_sub_8
#define _mm512_add_ps(a, b) ((a) + (b))
#define _mm512_sub_ps(a, b) ((a) - (b))
#define _mm512_mul_ps(a, b) ((a) * (b))
#define _mm512_fmadd_ps emulated_fma
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulated_halves
#define _mm512_cvtepi32_ps emulated_to_f
#define _mm512_cvtepu8_epi32(x) emulated_widen(x, 0)
#define _mm512_cvtepi8_epi32(x) emulated_widen(x, 1)
#define _mm512_dpbusd_epi32 emulated_dpbusd_512
