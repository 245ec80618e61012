// Instructions that the processor at hand may lack, in C: tests put this folder before the compiler's own headers and
// define the macros of the wanted features. What kernels compute is then what their source says; how the real
// instructions behave is taken from their documentation.
#pragma once
#include <stdint.h>
#include <string.h>

#pragma push_macro("__AVX512F__")
#pragma push_macro("__AVX512BW__")
#pragma push_macro("__AVX512DQ__")
#pragma push_macro("__AVX512VL__")
#pragma push_macro("__AVX512VNNI__")
#pragma push_macro("__AVXVNNI__")
#pragma push_macro("__AMX_TILE__")
#pragma push_macro("__AMX_INT8__")
#undef __AVX512F__
#undef __AVX512BW__
#undef __AVX512DQ__
#undef __AVX512VL__
#undef __AVX512VNNI__
#undef __AVXVNNI__
#undef __AMX_TILE__
#undef __AMX_INT8__
#include_next <immintrin.h>
#pragma pop_macro("__AVX512F__")
#pragma pop_macro("__AVX512BW__")
#pragma pop_macro("__AVX512DQ__")
#pragma pop_macro("__AVX512VL__")
#pragma pop_macro("__AVX512VNNI__")
#pragma pop_macro("__AVXVNNI__")
#pragma pop_macro("__AMX_TILE__")
#pragma pop_macro("__AMX_INT8__")

#define EMULATED static inline __attribute__((always_inline))

// sum[i] += the dot of four unsigned bytes a with four signed bytes b, modulo 2^32, for n dwords.
EMULATED void emulated_dot(int n, uint32_t *sum, const uint8_t *a, const int8_t *b) {
  for (int i = 0; i < 4 * n; i++) sum[i / 4] += (uint32_t)(a[i] * b[i]);
}

#if defined(__AVXVNNI__)
EMULATED __m256i emulated_dpbusd_256(__m256i sum, __m256i a, __m256i b) {
  uint32_t s[8];
  uint8_t u[32];
  int8_t q[32];
  memcpy(s, &sum, 32), memcpy(u, &a, 32), memcpy(q, &b, 32);
  emulated_dot(8, s, u, q);
  memcpy(&sum, s, 32);
  return sum;
}
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd_256
#endif

#if defined(__AVX512VNNI__)
#include "avx512_emulation.h"
#endif
#if defined(__AMX_INT8__)
#include "amx_emulation.h"
#endif
