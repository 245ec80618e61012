// Scalar float arithmetic that C does not have: halves, bfloats, saturating conversions, minimum and maximum of the ISA.
#pragma once
#include "registers.h"
#include <math.h>

INLINE float half_to_float(u32 h) {
  uint16_t bits = (uint16_t)h;
  _Float16 x;
  memcpy(&x, &bits, 2);
  return (float)x;
}
INLINE u32 half_bits(_Float16 x) {
  uint16_t bits;
  memcpy(&bits, &x, 2);
  return bits;
}
INLINE u32 float_to_half(float f) { return half_bits((_Float16)f); }
INLINE float float_to_odd(double d) { // with an odd last bit unless exact: a shorter format then rounds correctly
  const float near = (float)d;
  const u32 bits = as_u32(near), inexact = (double)near != d && !(bits & 1) && fabsf(near) < INFINITY;
  return as_float(bits + (inexact ? (fabs(d) > fabs((double)near) ? 1 : -1u) : 0));
}
INLINE u32 double_to_half(double d) { return float_to_half(float_to_odd(d)); } // one rounding
INLINE float bfloat_to_float(u32 b) { return as_float(b << 16); }
INLINE u32 float_to_bfloat(float f) { // to nearest, ties to even
  u32 x = as_u32(f);
  if (f != f) return x >> 16 | 0x40;
  return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

INLINE int32_t float_to_i32(float f) { // towards zero, saturating, NaN gives 0
  if (f != f) return 0;
  return f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int32_t)f;
}
INLINE u32 float_to_u32(float f) {
  if (!(f > 0)) return 0;
  return f >= 0x1p32f ? UINT32_MAX : (u32)f;
}
INLINE int32_t double_to_i32(double f) {
  if (f != f) return 0;
  return f >= 0x1p31 ? INT32_MAX : f <= -0x1p31 ? INT32_MIN : (int32_t)f;
}
INLINE u32 double_to_u32(double f) {
  if (!(f > 0)) return 0;
  return f >= 0x1p32 ? UINT32_MAX : (u32)f;
}
INLINE int32_t clamp_i32(int64_t x, int32_t least, int32_t most) { return x < least ? least : x > most ? most : (int32_t)x; }

// ..._num: a number wins over NaN; minimum, maximum: NaN wins. -0 is below +0.
INLINE double num_max(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return signbit(a) ? b : a;
  return a > b ? a : b;
}
INLINE double num_min(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return signbit(a) ? a : b;
  return a < b ? a : b;
}
INLINE double nan_max(double a, double b) { return a != a ? a : b != b ? b : num_max(a, b); }
INLINE double nan_min(double a, double b) { return a != a ? a : b != b ? b : num_min(a, b); }

INLINE int float_class(u32 sign, u32 all_ones, u32 exponent, u64 mantissa, u32 quiet) { // number of the bit of v_cmp_class
  if (all_ones) return mantissa ? (quiet ? 1 : 0) : sign ? 2 : 9;
  if (exponent) return sign ? 3 : 8;
  if (mantissa) return sign ? 4 : 7;
  return sign ? 5 : 6;
}
INLINE int class_f32(u32 x) { return float_class(x >> 31, (x >> 23 & 255) == 255, x >> 23 & 255, x & 0x7fffff, x >> 22 & 1); }
INLINE int class_f16(u32 x) { return float_class(x >> 15 & 1, (x >> 10 & 31) == 31, x >> 10 & 31, x & 0x3ff, x >> 9 & 1); }
INLINE int class_f64(u64 x) {
  const u32 exponent = x >> 52 & 2047;
  return float_class(x >> 63, exponent == 2047, exponent, x & 0xfffffffffffff, x >> 51 & 1);
}
