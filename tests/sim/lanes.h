// Values of 32 lanes under their views, and what the files of vector instructions share.
#pragma once
#include "floats.h"
#include "registers.h"
#include "tables.h"
#include <immintrin.h>

typedef union {
  vec v;
  fvec f;
  ivec i;
  u32 u[LANES];
  float x[LANES];
  int32_t n[LANES];
} lanes;

#define EACH_LANE for (int l = 0; l < LANES; l++)
#define EACH_ACTIVE_LANE(exec) \
  for (u32 left = (exec), l = left ? (u32)__builtin_ctz(left) : 0; left; left &= left - 1, l = left ? (u32)__builtin_ctz(left) : 0)

static const vec LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

INLINE fvec floats_of_halves(vec h) { // of the low 16 bits
  lanes x = {h}, r;
  for (int k = 0; k < LANES; k += 8) {
    const __m256i part = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)&x.u[k]), _mm256_set1_epi32(0xffff));
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(part), _mm256_extracti128_si256(part, 1));
    _mm256_storeu_ps(&r.x[k], _mm256_cvtph_ps(packed));
  }
  return r.f;
}
INLINE vec halves_of_floats(fvec f) {
  lanes r;
  for (int k = 0; k < LANES; k += 8) {
    const __m128i packed = _mm256_cvtps_ph(((const __m256 *)&f)[k / 8], _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)&r.u[k], _mm256_cvtepu16_epi32(packed));
  }
  return r.v;
}

INLINE u32 lane_mask(vec all_or_nothing) { // one bit of each lane's sign
  const __m256 *part = (const __m256 *)&all_or_nothing;
  u32 mask = 0;
  for (int k = 0; k < 4; k++) mask |= (u32)_mm256_movemask_ps(part[k]) << 8 * k;
  return mask;
}

INLINE void write_result(wave *w, u32 vgpr, const vec *value) {
  w->v[vgpr] = w->exec == ~0u ? *value : choose(w->exec_lanes, *value, w->v[vgpr]);
}

// Float modifiers of source k: |x|, then -x; of the result: a factor, then the range 0..1 (NaN gives 0).
INLINE vec modified_float(const inst *i, int k, vec x) {
  if (i->abs >> k & 1) x &= splat(0x7fffffff);
  if (i->neg >> k & 1) x ^= splat(0x80000000);
  return x;
}
INLINE vec finished_float(const inst *i, vec x) {
  static const float factor[4] = {1, 2, 4, 0.5f};
  if (i->omod) x = (vec)((fvec)x * factor[i->omod & 3]);
  if (i->clamp) {
    const vec above = (vec)((fvec)x > 1.0f), positive = (vec)((fvec)x > 0.0f);
    x = choose(above, splat(0x3f800000), x & positive);
  }
  return x;
}
INLINE float finished_scalar(const inst *i, float x) {
  static const float factor[4] = {1, 2, 4, 0.5f};
  if (i->omod) x *= factor[i->omod & 3];
  if (i->clamp) x = x > 1 ? 1 : x > 0 ? x : 0;
  return x;
}

INLINE double finished_double(const inst *i, double x) {
  static const double factor[4] = {1, 2, 4, 0.5};
  if (i->omod) x *= factor[i->omod & 3];
  if (i->clamp) x = x > 1 ? 1 : x > 0 ? x : 0;
  return x;
}

INLINE vec half_source(const wave *w, const inst *i, int k, const vec *first) { // the half that op_sel names, zero-extended
  const vec x = k == 0 && i->dpp ? *first : read_half_vec(w, i->src[k]);
  return (i->opsel >> k & 1 ? x >> 16 : x) & splat(0xffff);
}
void write_half(wave *w, const inst *i, vec value); // low 16 bits, to the half that the instruction names

// Families of instructions: s[k] are the 32-bit sources, after DPP. They return 0 if the opcode is none of theirs.
int float_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r);    // float32.c: f32 by lane, no modifiers
int integer_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r);  // integer.c: 32-bit integers by lane
int saturated_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r); // integer.c: with clamp
int run_carry(wave *w, const inst *i, const vec *const s[3]);                   // integer.c: additions with carry masks
int run_compare(wave *w, const inst *i, const vec *const s[3]);                 // compare.c
int run_conversion(wave *w, const inst *i, const vec *const s[3]);              // convert.c
int run_half(wave *w, const inst *i, const vec *const s[3]);                    // float16.c: f16, i16, u16, b16
int run_wide(wave *w, const inst *i, const vec *const s[3]);                    // float64.c: f64 and 64-bit integers
int run_transcendental(wave *w, const inst *i, const vec *const s[3]);          // transcendental.c
int run_division(wave *w, const inst *i, const vec *const s[3]);                // divide.c
vec dot2_lanes(int bfloat, vec a, vec b, vec sum);                              // packed.c
int run_cross_lane(wave *w, const inst *i, const vec *const s[3]);              // cross.c
int half_kind(u32 op);                                                          // float16.c: of a 16-bit operation by lane, 0 if none
vec half_result(u32 op, int clamp, const vec source[3]);                        // float16.c: zero-extended 16-bit sources
vec dpp_source(const wave *w, const inst *i, u32 *written);                     // dpp.c: source 0, and the lanes to write
enum { HALF_FLOAT = 1, HALF_SIGNED, HALF_UNSIGNED };                            // kinds
