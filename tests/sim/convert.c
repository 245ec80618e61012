// Conversions between number formats.
#include "lanes.h"

static u32 normalised(float f, float least, float most) { // -1..1 or 0..1 as a 16-bit fraction
  if (f != f) return 0;
  f = f < least ? least : f > 1 ? 1 : f;
  return (u32)(int32_t)rintf(f * most) & 0xffff;
}
static u32 float_to_i16(float f) { return (u32)clamp_i32(float_to_i32(f), -32768, 32767) & 0xffff; }
static u32 float_to_u16(float f) { return float_to_u32(f) > 65535 ? 65535 : float_to_u32(f); }
static u32 half_towards_zero(float f) { // the neighbour of smaller size; 65504 beyond the range
  if (f != f || isinf(f)) return float_to_half(f);
  u32 h = float_to_half(f);
  return fabsf(half_to_float(h)) > fabsf(f) ? h - 1 : h;
}
static float fraction_of_16(u32 x) { return (float)((int32_t)(x << 28) >> 28) / 16; }
static float nearest_integer(float f) { // floor(f + 0.5) without the rounding of the sum
  const float low = floorf(f);
  return f - low >= 0.5f ? low + 1 : low;
}

#define LOOP(name, value) case OP_v_##name: EACH_LANE r->u[l] = (u32)(value); return 1;
static int from_float(const inst *i, const lanes *a, lanes *r) {
  switch (i->op) {
    LOOP(cvt_i32_f32, float_to_i32(a->x[l]))
    LOOP(cvt_u32_f32, float_to_u32(a->x[l]))
    LOOP(cvt_nearest_i32_f32, float_to_i32(nearest_integer(a->x[l])))
    LOOP(cvt_floor_i32_f32, float_to_i32(floorf(a->x[l])))
    LOOP(frexp_exp_i32_f32, !isfinite(a->x[l]) || a->x[l] == 0 ? 0 : ilogbf(a->x[l]) + 1)
  case OP_v_frexp_mant_f32:
    EACH_LANE {
      int exponent;
      r->x[l] = isfinite(a->x[l]) ? frexpf(a->x[l], &exponent) : a->x[l];
    }
    r->v = finished_float(i, r->v);
    return 1;
  default: return 0;
  }
}
static int to_float(const inst *i, const lanes *a, lanes *r) {
  switch (i->op) {
  case OP_v_cvt_f32_i32: r->f = __builtin_convertvector(a->i, fvec); break;
  case OP_v_cvt_f32_u32: EACH_LANE r->x[l] = (float)a->u[l]; break;
  case OP_v_cvt_f32_ubyte0: r->f = __builtin_convertvector((ivec)(a->v & 255), fvec); break;
  case OP_v_cvt_f32_ubyte1: r->f = __builtin_convertvector((ivec)(a->v >> 8 & 255), fvec); break;
  case OP_v_cvt_f32_ubyte2: r->f = __builtin_convertvector((ivec)(a->v >> 16 & 255), fvec); break;
  case OP_v_cvt_f32_ubyte3: r->f = __builtin_convertvector((ivec)(a->v >> 24), fvec); break;
  case OP_v_cvt_off_f32_i4: EACH_LANE r->x[l] = fraction_of_16(a->u[l]); break;
  default: return 0;
  }
  r->v = finished_float(i, r->v);
  return 1;
}

static int packed_pair(const inst *i, const lanes *a, const lanes *b, lanes *r) { // of two f32 sources, or two integers
  const lanes x = {modified_float(i, 0, a->v)}, y = {modified_float(i, 1, b->v)};
  switch (i->op) {
    LOOP(cvt_pk_rtz_f16_f32, half_towards_zero(x.x[l]) | half_towards_zero(y.x[l]) << 16)
    LOOP(cvt_pk_i16_f32, float_to_i16(x.x[l]) | float_to_i16(y.x[l]) << 16)
    LOOP(cvt_pk_u16_f32, float_to_u16(x.x[l]) | float_to_u16(y.x[l]) << 16)
    LOOP(cvt_pk_norm_i16_f32, normalised(x.x[l], -1, 32767) | normalised(y.x[l], -1, 32767) << 16)
    LOOP(cvt_pk_norm_u16_f32, normalised(x.x[l], 0, 65535) | normalised(y.x[l], 0, 65535) << 16)
    LOOP(cvt_pk_i16_i32, ((u32)clamp_i32(a->n[l], -32768, 32767) & 0xffff) | (u32)clamp_i32(b->n[l], -32768, 32767) << 16)
    LOOP(cvt_pk_u16_u32, (a->u[l] > 65535 ? 65535 : a->u[l]) | (b->u[l] > 65535 ? 65535 : b->u[l]) << 16)
  default: return 0;
  }
}

static void byte_insert(wave *w, const inst *i, const vec *const s[3]) { // v_cvt_pk_u8_f32
  const lanes x = {modified_float(i, 0, *s[0])}, at = {*s[1]}, old = {*s[2]};
  lanes r;
  EACH_LANE {
    const u32 up = 8 * (at.u[l] & 3), byte = (u32)clamp_i32(float_to_i32(x.x[l]), 0, 255);
    r.u[l] = (old.u[l] & ~(255u << up)) | byte << up;
  }
  write_result(w, i->dst, &r.v);
}

static int half_conversion(wave *w, const inst *i, const vec *const s[3]) {
  lanes h = {half_source(w, i, 0, s[0])}, r;
  if (i->abs & 1) h.v &= 0x7fff;
  if (i->neg & 1) h.v ^= 0x8000;
  switch (i->op) {
  case OP_v_cvt_f32_f16:
    r.f = floats_of_halves(h.v);
    r.v = finished_float(i, r.v);
    write_result(w, i->dst, &r.v);
    return 1;
  case OP_v_cvt_i16_f16: EACH_LANE r.u[l] = float_to_i16(half_to_float(h.u[l])); break;
  case OP_v_cvt_u16_f16: EACH_LANE r.u[l] = float_to_u16(half_to_float(h.u[l])); break;
  case OP_v_cvt_norm_i16_f16: EACH_LANE r.u[l] = normalised(half_to_float(h.u[l]), -1, 32767); break;
  case OP_v_cvt_norm_u16_f16: EACH_LANE r.u[l] = normalised(half_to_float(h.u[l]), 0, 65535); break;
  case OP_v_cvt_f16_i16: EACH_LANE r.u[l] = float_to_half(finished_scalar(i, (float)(int16_t)h.u[l])); break;
  case OP_v_cvt_f16_u16: EACH_LANE r.u[l] = float_to_half(finished_scalar(i, (float)h.u[l])); break;
  case OP_v_cvt_f16_f32: r.v = halves_of_floats((fvec)finished_float(i, modified_float(i, 0, *s[0]))); break;
  case OP_v_cvt_i32_i16: r.v = (vec)((ivec)(h.v << 16) >> 16); write_result(w, i->dst, &r.v); return 1;
  case OP_v_cvt_u32_u16: write_result(w, i->dst, &h.v); return 1;
  default: return 0;
  }
  write_half(w, i, r.v);
  return 1;
}

int run_conversion(wave *w, const inst *i, const vec *const s[3]) {
  const lanes a = {modified_float(i, 0, *s[0])};
  lanes r;
  if (i->op == OP_v_cvt_pk_u8_f32) {
    byte_insert(w, i, s);
    return 1;
  }
  if (i->op == OP_v_sat_pk_u8_i16) {
    const lanes x = {*s[0]};
    EACH_LANE r.u[l] = (u32)clamp_i32((int16_t)x.u[l], 0, 255) | (u32)clamp_i32((int16_t)(x.u[l] >> 16), 0, 255) << 8;
    write_half(w, i, r.v);
    return 1;
  }
  if (!from_float(i, &a, &r) && !to_float(i, (const lanes *)s[0], &r) && !packed_pair(i, (const lanes *)s[0], (const lanes *)s[1], &r))
    return half_conversion(w, i, s);
  write_result(w, i->dst, &r.v);
  return 1;
}
