// SOP1, SOP2 and SOPC on floats.
#include "floats.h"
#include "scalar.h"
#include "tables.h"

// An invalid operation on numbers gives the positive quiet NaN, as the manual says; processors differ in its sign.
INLINE u32 result32(float x, float a, float b, float c) { return x != x && a == a && b == b && c == c ? 0x7fc00000 : as_u32(x); }
INLINE u32 result16(float x, float a, float b, float c) { // of an operation on halves in float: one more rounding does no harm
  return x != x && a == a && b == b && c == c ? 0x7e00 : float_to_half(x);
}
INLINE int put(wave *w, u32 n, u32 value) { return write_scalar(w, n, value), 1; }
INLINE u32 quiet(u32 x) { return (x & 0x7fffffff) > 0x7f800000 ? x | 0x400000 : x; }
INLINE u32 half_operand(const wave *w, u32 n) { return (is_float_constant(n) ? half_constant(n) : w->s[n]) & 0xffff; }

static u32 float_to_half_down(float f) { // towards zero
  const u32 h = float_to_half(f);
  const float back = half_to_float(h);
  return fabsf(back) > fabsf(f) ? h - 1 : h;
}

static int arithmetic(wave *w, const inst *i, u32 x, u32 y) {
  const float a = as_float(x), b = as_float(y), k = as_float(i->literal), d = as_float(w->s[i->dst]);
  const float other = i->op == OP_s_fmac_f32 ? d : k;
  switch (i->op) {
  case OP_s_add_f32: return put(w, i->dst, result32(a + b, a, b, 0));
  case OP_s_sub_f32: return put(w, i->dst, result32(a - b, a, b, 0));
  case OP_s_mul_f32: return put(w, i->dst, result32(a * b, a, b, 0));
  case OP_s_fmac_f32: case OP_s_fmaak_f32: return put(w, i->dst, result32(fmaf(a, b, other), a, b, other));
  case OP_s_fmamk_f32: return put(w, i->dst, result32(fmaf(a, k, b), a, k, b));
  case OP_s_min_num_f32: return put(w, i->dst, quiet(as_u32((float)num_min(a, b))));
  case OP_s_max_num_f32: return put(w, i->dst, quiet(as_u32((float)num_max(a, b))));
  case OP_s_minimum_f32: return put(w, i->dst, quiet(as_u32((float)nan_min(a, b))));
  case OP_s_maximum_f32: return put(w, i->dst, quiet(as_u32((float)nan_max(a, b))));
  case OP_s_cvt_pk_rtz_f16_f32: return put(w, i->dst, float_to_half_down(a) | float_to_half_down(b) << 16);
  default: return 0;
  }
}

static int half_arithmetic(wave *w, const inst *i) {
  const float a = half_to_float(half_operand(w, i->src[0])), b = half_to_float(half_operand(w, i->src[1]));
  const float d = half_to_float(w->s[i->dst] & 0xffff);
  const double fused = (double)a * b + d;
  switch (i->op) {
  case OP_s_add_f16: return put(w, i->dst, result16(a + b, a, b, 0));
  case OP_s_sub_f16: return put(w, i->dst, result16(a - b, a, b, 0));
  case OP_s_mul_f16: return put(w, i->dst, result16(a * b, a, b, 0));
  // Exact in double, or so far from the middle of two halves that the first rounding does not matter.
  case OP_s_fmac_f16: return put(w, i->dst, fused == fused ? double_to_half(fused) : result16((float)fused, a, b, d));
  case OP_s_min_num_f16: return put(w, i->dst, float_to_half((float)num_min(a, b)));
  case OP_s_max_num_f16: return put(w, i->dst, float_to_half((float)num_max(a, b)));
  case OP_s_minimum_f16: return put(w, i->dst, float_to_half((float)nan_min(a, b)));
  case OP_s_maximum_f16: return put(w, i->dst, float_to_half((float)nan_max(a, b)));
  default: return 0;
  }
}

static int convert(wave *w, const inst *i, u32 x) {
  const float a = as_float(x);
  switch (i->op) {
  case OP_s_cvt_f32_i32: return put(w, i->dst, as_u32((float)(int32_t)x));
  case OP_s_cvt_f32_u32: return put(w, i->dst, as_u32((float)x));
  case OP_s_cvt_i32_f32: return put(w, i->dst, (u32)float_to_i32(a));
  case OP_s_cvt_u32_f32: return put(w, i->dst, float_to_u32(a));
  case OP_s_cvt_f16_f32: return put(w, i->dst, float_to_half(a));
  case OP_s_cvt_f32_f16: return put(w, i->dst, as_u32(half_to_float(half_operand(w, i->src[0]))));
  case OP_s_cvt_hi_f32_f16: return put(w, i->dst, as_u32(half_to_float(x >> 16)));
  case OP_s_ceil_f32: return put(w, i->dst, quiet(as_u32(ceilf(a))));
  case OP_s_floor_f32: return put(w, i->dst, quiet(as_u32(floorf(a))));
  case OP_s_trunc_f32: return put(w, i->dst, quiet(as_u32(truncf(a))));
  case OP_s_rndne_f32: return put(w, i->dst, quiet(as_u32(rintf(a))));
  default: return 0;
  }
}

static int round_half(wave *w, const inst *i) {
  const float a = half_to_float(half_operand(w, i->src[0]));
  switch (i->op) {
  case OP_s_ceil_f16: return put(w, i->dst, float_to_half(ceilf(a)));
  case OP_s_floor_f16: return put(w, i->dst, float_to_half(floorf(a)));
  case OP_s_trunc_f16: return put(w, i->dst, float_to_half(truncf(a)));
  case OP_s_rndne_f16: return put(w, i->dst, float_to_half(rintf(a)));
  default: return 0;
  }
}

int run_scalar_float(wave *w, const inst *i, u32 a, u32 b) {
  return i->format == SOP1 ? convert(w, i, a) || round_half(w, i) : arithmetic(w, i, a, b) || half_arithmetic(w, i);
}

static int holds(float a, float b, u32 n) { // the n-th of lt eq le gt lg ge o u nge nlg ngt nle neq nlt
  const int less = a < b, equal = a == b, more = a > b, ordered = a == a && b == b;
  const int first[8] = {less, equal, less | equal, more, less | more, more | equal, ordered, !ordered};
  static const int opposite[6] = {5, 4, 3, 2, 1, 0};
  return n < 8 ? first[n] : !first[opposite[n - 8]];
}

int run_scalar_compare(wave *w, const inst *i, u32 a, u32 b) {
  static const uint16_t f32[14] = {OP_s_cmp_lt_f32, OP_s_cmp_eq_f32, OP_s_cmp_le_f32, OP_s_cmp_gt_f32, OP_s_cmp_lg_f32, OP_s_cmp_ge_f32,
    OP_s_cmp_o_f32, OP_s_cmp_u_f32, OP_s_cmp_nge_f32, OP_s_cmp_nlg_f32, OP_s_cmp_ngt_f32, OP_s_cmp_nle_f32, OP_s_cmp_neq_f32, OP_s_cmp_nlt_f32};
  static const uint16_t f16[14] = {OP_s_cmp_lt_f16, OP_s_cmp_eq_f16, OP_s_cmp_le_f16, OP_s_cmp_gt_f16, OP_s_cmp_lg_f16, OP_s_cmp_ge_f16,
    OP_s_cmp_o_f16, OP_s_cmp_u_f16, OP_s_cmp_nge_f16, OP_s_cmp_nlg_f16, OP_s_cmp_ngt_f16, OP_s_cmp_nle_f16, OP_s_cmp_neq_f16, OP_s_cmp_nlt_f16};
  for (u32 n = 0; n < 14; n++) {
    if (i->op == f32[n]) return set_scc(w, holds(as_float(a), as_float(b), n)), 1;
    if (i->op != f16[n]) continue;
    set_scc(w, holds(half_to_float(half_operand(w, i->src[0])), half_to_float(half_operand(w, i->src[1])), n));
    return 1;
  }
  return 0;
}
