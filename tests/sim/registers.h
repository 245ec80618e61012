// Registers of a wave: scalar and vector operands, EXEC, constants. Operand numbers are those of sim.h.
//
// Vector operands of an `inst` (src) are 256 + n; vector destinations (dst, second.dst) are n itself.
// w->s[255] is the literal of the instruction that runs: whoever calls run_* has stored it (begin_instruction).
#pragma once
#include "sim.h"
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { VCC = 106, NULL_REG = 124, M0 = 125, EXEC = 126, SHARED_BASE = 235, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT, SCC = 253, LITERAL = 255 };
enum { TTMP7 = 115, TTMP9 = 117, MODE_REG = 256 }; // w->s[MODE_REG]: the hardware register MODE (round, denormals)
// High halves of the addresses at which flat instructions see LDS and scratch; user space ends far below.
enum { SHARED_APERTURE = 0x01000000, PRIVATE_APERTURE = 0x02000000 };
enum { MODE_AT_LAUNCH = 0xf0 }; // round to nearest, all denormals kept

INLINE float as_float(u32 x) { float f; memcpy(&f, &x, 4); return f; }
INLINE u32 as_u32(float f) { u32 x; memcpy(&x, &f, 4); return x; }
INLINE double as_double(u64 x) { double f; memcpy(&f, &x, 8); return f; }
INLINE u64 as_u64(double f) { u64 x; memcpy(&x, &f, 8); return x; }
INLINE vec splat(u32 x) { return x - (vec){0}; }

// Half of the lanes' bits: all ones in each lane whose bit of `mask` is set, else 0; and back.
INLINE vec lanes_of(u32 mask) {
  const vec bit = {1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22,
    1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
  return (vec)((splat(mask) & bit) != 0);
}
INLINE u32 mask_of(vec lanes) { // of lanes that are all ones or 0
  u32 mask = 0;
  for (int l = 0; l < LANES; l++) mask |= (lanes[l] & 1) << l;
  return mask;
}
INLINE vec choose(vec lanes, vec a, vec b) { return (lanes & a) | (~lanes & b); } // lanes ? a : b

INLINE void set_exec(wave *w, u32 mask) {
  w->exec = w->s[EXEC] = mask;
  w->exec_lanes = lanes_of(mask);
}
INLINE void begin_instruction(wave *w, const inst *i) { w->s[LITERAL] = i->literal; }

// The value of inline constant 240..248 (0.5 -0.5 1 -1 2 -2 4 -4 1/2pi) as float, double, half, bfloat16.
INLINE u32 float_constant(u32 n) {
  static const u32 value[9] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
  return value[n - 240];
}
INLINE u64 double_constant(u32 n) { return n == 248 ? 0x3fc45f306dc9c882 : as_u64(as_float(float_constant(n))); }
INLINE u32 half_constant(u32 n) {
  static const uint16_t value[9] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
  return value[n - 240];
}
INLINE u32 bfloat_constant(u32 n) { return float_constant(n) >> 16; }
INLINE int is_float_constant(u32 n) { return n >= 240 && n <= 248; }

INLINE void init_scalars(wave *w) { // constants and MODE; SGPRs 0
  memset(w->s, 0, sizeof w->s);
  for (int n = 0; n <= 64; n++) w->s[128 + n] = (u32)n;
  for (int n = 1; n <= 16; n++) w->s[192 + n] = (u32)-n;
  for (u32 n = 240; n <= 248; n++) w->s[n] = float_constant(n);
  w->s[SHARED_BASE] = SHARED_APERTURE, w->s[SHARED_LIMIT] = SHARED_APERTURE + 1;
  w->s[PRIVATE_BASE] = PRIVATE_APERTURE, w->s[PRIVATE_LIMIT] = PRIVATE_APERTURE + 1;
  w->s[MODE_REG] = MODE_AT_LAUNCH;
}

// Scalar operands.
INLINE u32 read_scalar(const wave *w, u32 n) { return w->s[n]; }
INLINE u64 read_u64(const wave *w, u32 n) { // an SGPR pair, or a constant as a 64-bit integer or double
  if (n < 128) return n == NULL_REG ? 0 : w->s[n] | (u64)w->s[n + 1] << 32;
  if (n <= 208) return (u64)(int64_t)(int32_t)w->s[n];
  if (is_float_constant(n)) return double_constant(n);
  if (n >= SHARED_BASE && n <= PRIVATE_LIMIT) return (u64)w->s[n] << 32;
  return w->s[n]; // a literal is extended by zeros; signed and double operands: read_i64, read_f64
}
INLINE u64 read_i64(const wave *w, u32 n) { return n == LITERAL ? (u64)(int64_t)(int32_t)w->s[n] : read_u64(w, n); }
INLINE u64 read_f64(const wave *w, u32 n) { return n == LITERAL ? (u64)w->s[n] << 32 : read_u64(w, n); }
INLINE void write_scalar(wave *w, u32 n, u32 value) {
  if (n == EXEC) set_exec(w, value);
  else if (n < EXEC && n != NULL_REG) w->s[n] = value;
}
INLINE void write_u64(wave *w, u32 n, u64 value) {
  if (n == NULL_REG) return;
  write_scalar(w, n, (u32)value);
  write_scalar(w, n + 1, (u32)(value >> 32));
}
INLINE u32 get_scc(const wave *w) { return w->s[SCC]; }
INLINE void set_scc(wave *w, int value) { w->s[SCC] = value != 0; }

// Vector operands: a VGPR, or a scalar in every lane.
INLINE vec read_vec(const wave *w, u32 n) { return n >= 256 ? w->v[n - 256] : splat(w->s[n]); }
INLINE vec read_half_vec(const wave *w, u32 n) { // of a 16-bit operand: float constants are halves
  return is_float_constant(n) ? splat(half_constant(n)) : read_vec(w, n);
}
INLINE vec read_bfloat_vec(const wave *w, u32 n) { return is_float_constant(n) ? splat(bfloat_constant(n)) : read_vec(w, n); }
INLINE u64 join_u64(u32 low, u32 high) { return low | (u64)high << 32; }
INLINE u64 read_lane_u64(const wave *w, u32 n, int lane) { // lane of a VGPR pair, or a scalar
  return n >= 256 ? join_u64(w->v[n - 256][lane], w->v[n - 255][lane]) : read_u64(w, n);
}
INLINE u64 read_lane_f64(const wave *w, u32 n, int lane) { return n >= 256 ? read_lane_u64(w, n, lane) : read_f64(w, n); }

INLINE void write_vec(wave *w, u32 vgpr, vec value) { // in the lanes of EXEC
  w->v[vgpr] = choose(w->exec_lanes, value, w->v[vgpr]);
}
INLINE void write_vec_lanes(wave *w, u32 vgpr, vec value, vec lanes) { // in these of EXEC's lanes (DPP)
  w->v[vgpr] = choose(w->exec_lanes & lanes, value, w->v[vgpr]);
}
INLINE void write_lane(wave *w, u32 vgpr, int lane, u32 value) {
  if (w->exec >> lane & 1) w->v[vgpr][lane] = value;
}
INLINE void write_lane_u64(wave *w, u32 vgpr, int lane, u64 value) {
  write_lane(w, vgpr, lane, (u32)value);
  write_lane(w, vgpr + 1, lane, (u32)(value >> 32));
}
