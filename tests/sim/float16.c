// 16-bit floats and integers: computed by the 32-bit instruction of the same meaning, then rounded or cut once.
#include "lanes.h"

typedef struct { uint16_t op; uint8_t kind; } twin;
#define FLOATS(name) \
  case OP_v_##name##_f16: return (twin){OP_v_##name##_f32, HALF_FLOAT};
#define PACKED_FLOATS(name) \
  FLOATS(name) case OP_v_pk_##name##_f16: return (twin){OP_v_##name##_f32, HALF_FLOAT};
#define ALIKE(name, other, half) case OP_v_##name: return (twin){OP_v_##other, half};
#define MINMAX(name) ALIKE(name##_i16, name##_i32, HALF_SIGNED) ALIKE(name##_u16, name##_u32, HALF_UNSIGNED)
static twin twin_of(u32 op) {
  switch (op) {
    PACKED_FLOATS(add) PACKED_FLOATS(mul) PACKED_FLOATS(fma) PACKED_FLOATS(max_num) PACKED_FLOATS(min_num)
    PACKED_FLOATS(maximum) PACKED_FLOATS(minimum)
    FLOATS(sub) FLOATS(subrev) FLOATS(max3_num) FLOATS(min3_num) FLOATS(med3_num) FLOATS(maxmin_num)
    FLOATS(minmax_num) FLOATS(maximum3) FLOATS(minimum3) FLOATS(maximumminimum) FLOATS(minimummaximum)
    FLOATS(trunc) FLOATS(ceil) FLOATS(floor) FLOATS(rndne) FLOATS(fract)
    ALIKE(fmac_f16, fma_f32, HALF_FLOAT) ALIKE(fmaak_f16, fma_f32, HALF_FLOAT) ALIKE(fmamk_f16, fma_f32, HALF_FLOAT)
    MINMAX(min) MINMAX(max) MINMAX(min3) MINMAX(max3) MINMAX(med3) 
    ALIKE(pk_min_i16, min_i32, HALF_SIGNED) ALIKE(pk_min_u16, min_u32, HALF_UNSIGNED)
    ALIKE(pk_max_i16, max_i32, HALF_SIGNED) ALIKE(pk_max_u16, max_u32, HALF_UNSIGNED)
    ALIKE(add_nc_u16, add_nc_u32, HALF_UNSIGNED) ALIKE(add_nc_i16, add_nc_i32, HALF_SIGNED)
    ALIKE(sub_nc_u16, sub_nc_u32, HALF_UNSIGNED) ALIKE(sub_nc_i16, sub_nc_i32, HALF_SIGNED)
    ALIKE(mul_lo_u16, mul_lo_u32, HALF_UNSIGNED) ALIKE(mad_u16, mad_u32_u24, HALF_UNSIGNED) ALIKE(mad_i16, mad_i32_i24, HALF_SIGNED)
    ALIKE(lshlrev_b16, lshlrev_b32, HALF_UNSIGNED) ALIKE(lshrrev_b16, lshrrev_b32, HALF_UNSIGNED)
    ALIKE(ashrrev_i16, ashrrev_i32, HALF_SIGNED) ALIKE(mov_b16, mov_b32, HALF_UNSIGNED) ALIKE(not_b16, not_b32, HALF_UNSIGNED)
    ALIKE(and_b16, and_b32, HALF_UNSIGNED) ALIKE(or_b16, or_b32, HALF_UNSIGNED) ALIKE(xor_b16, xor_b32, HALF_UNSIGNED)
    ALIKE(pk_add_u16, add_nc_u32, HALF_UNSIGNED) ALIKE(pk_add_i16, add_nc_i32, HALF_SIGNED)
    ALIKE(pk_sub_u16, sub_nc_u32, HALF_UNSIGNED) ALIKE(pk_sub_i16, sub_nc_i32, HALF_SIGNED)
    ALIKE(pk_mul_lo_u16, mul_lo_u32, HALF_UNSIGNED) ALIKE(pk_mad_u16, mad_u32_u24, HALF_UNSIGNED)
    ALIKE(pk_mad_i16, mad_i32_i24, HALF_SIGNED)
    ALIKE(pk_lshlrev_b16, lshlrev_b32, HALF_UNSIGNED) ALIKE(pk_lshrrev_b16, lshrrev_b32, HALF_UNSIGNED)
    ALIKE(pk_ashrrev_i16, ashrrev_i32, HALF_SIGNED)
  default: return (twin){0, 0};
  }
}
int half_kind(u32 op) { return twin_of(op).kind; }

static vec half_floats(u32 op, const vec source[3]) {
  lanes x[3], r;
  for (int k = 0; k < 3; k++) x[k].f = floats_of_halves(source[k]);
  if (op == OP_v_fma_f32) { // a double holds the sum exactly where it matters; the result is rounded once
    EACH_LANE r.x[l] = float_to_odd((double)x[0].x[l] * x[1].x[l] + x[2].x[l]);
    return halves_of_floats(r.f);
  }
  float_result(op, &x[0].v, &x[1].v, &x[2].v, &r.v);
  r.v = halves_of_floats(r.f);
  if (op == OP_v_fract_f32) r.v -= (vec)(r.v == 0x3c00) & 1; // stays below 1
  return r.v;
}
static vec half_integers(u32 op, int kind, int clamp, const vec source[3]) {
  const int shift = op == OP_v_lshlrev_b32 || op == OP_v_lshrrev_b32 || op == OP_v_ashrrev_i32;
  vec x[3], r;
  for (int k = 0; k < 3; k++) x[k] = kind == HALF_SIGNED ? (vec)((ivec)(source[k] << 16) >> 16) : source[k];
  if (shift) x[0] &= 15;
  integer_result(op, &x[0], &x[1], &x[2], &r);
  if (clamp && kind == HALF_SIGNED) {
    r = choose((vec)((ivec)r > 32767), splat(32767), r);
    r = choose((vec)((ivec)r < -32768), splat(0x8000), r);
  } else if (clamp) {
    const int below = op == OP_v_sub_nc_u32;
    r = choose((vec)(r > 65535), splat(below ? 0 : 65535), r);
  }
  return r & 0xffff;
}
vec half_result(u32 op, int clamp, const vec source[3]) {
  const twin t = twin_of(op);
  return t.kind == HALF_FLOAT ? half_floats(t.op, source) : half_integers(t.op, t.kind, clamp, source);
}

void write_half(wave *w, const inst *i, vec value) {
  const vec old = w->v[i->dst];
  const vec r = i->opsel & 8 ? (old & 0xffff) | value << 16 : (old & splat(0xffff0000)) | (value & 0xffff);
  write_result(w, i->dst, &r);
}

static vec modified_half(const inst *i, int k, vec x) {
  if (i->abs >> k & 1) x &= 0x7fff;
  if (i->neg >> k & 1) x ^= 0x8000;
  return x;
}
static vec finished_half(const inst *i, vec x) {
  if (!i->omod && !i->clamp) return x;
  lanes r = {x};
  EACH_LANE r.u[l] = float_to_half(finished_scalar(i, half_to_float(r.u[l])));
  return r.v;
}

static vec scaled_halves(vec a, vec exponent) {
  lanes x = {a}, e = {exponent}, r;
  EACH_LANE r.u[l] = double_to_half(ldexp(half_to_float(x.u[l]), (int16_t)e.u[l]));
  return r.v;
}
static int half_parts(const inst *i, vec a, vec *out) { // mantissa, exponent
  lanes x = {a}, r;
  if (i->op != OP_v_frexp_mant_f16 && i->op != OP_v_frexp_exp_i16_f16) return 0;
  EACH_LANE {
    const float f = half_to_float(x.u[l]);
    int exponent = 0;
    const float mantissa = isfinite(f) ? frexpf(f, &exponent) : f;
    r.u[l] = i->op == OP_v_frexp_mant_f16 ? float_to_half(mantissa) : (u32)exponent & 0xffff;
  }
  *out = r.v;
  return 1;
}

// Sources of which some are halves and the result has 32 bits.
static int run_mixed(wave *w, const inst *i, const vec *const s[3]) {
  vec r;
  if (i->op == OP_v_pack_b32_f16) {
    r = modified_half(i, 0, half_source(w, i, 0, s[0])) | modified_half(i, 1, half_source(w, i, 1, s[0])) << 16;
  } else if (i->op == OP_v_mad_u32_u16 || i->op == OP_v_mad_i32_i16) {
    vec x = half_source(w, i, 0, s[0]), y = half_source(w, i, 1, s[0]);
    const int is_signed = i->op == OP_v_mad_i32_i16;
    const u32 twin = is_signed ? OP_v_mad_i32_i24 : OP_v_mad_u32_u24;
    if (is_signed) x = (vec)((ivec)(x << 16) >> 16), y = (vec)((ivec)(y << 16) >> 16);
    if (i->clamp) saturated_result(twin, &x, &y, s[2], &r);
    else integer_result(twin, &x, &y, s[2], &r);
  } else {
    return 0;
  }
  write_result(w, i->dst, &r);
  return 1;
}

int run_half(wave *w, const inst *i, const vec *const s[3]) {
  const int kind = half_kind(i->op);
  vec x[3], r;
  for (int k = 0; k < 3; k++) x[k] = half_source(w, i, k, s[0]);
  if (i->op == OP_v_fmac_f16) x[2] = i->opsel & 8 ? w->v[i->dst] >> 16 : w->v[i->dst] & 0xffff;
  if (i->op == OP_v_fmaak_f16) x[2] = splat(i->literal & 0xffff);
  if (i->op == OP_v_fmamk_f16) x[2] = x[1], x[1] = splat(i->literal & 0xffff);
  if (kind == HALF_SIGNED || kind == HALF_UNSIGNED) {
    write_half(w, i, half_result(i->op, i->clamp, x));
    return 1;
  }
  const int scale = i->op == OP_v_ldexp_f16;
  for (int k = 0; k < 3; k++) if (k == 0 || !scale) x[k] = modified_half(i, k, x[k]);
  if (kind) r = half_result(i->op, 0, x);
  else if (scale) r = scaled_halves(x[0], x[1]);
  else if (i->op == OP_v_cndmask_b16) r = choose(lanes_of(w->s[i->src[2]]), x[1], x[0]);
  else if (!half_parts(i, x[0], &r)) return run_mixed(w, i, s);
  write_half(w, i, i->op == OP_v_cndmask_b16 || i->op == OP_v_frexp_exp_i16_f16 ? r : finished_half(i, r));
  return 1;
}
