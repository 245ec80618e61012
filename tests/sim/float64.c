// Doubles and 64-bit integers by lane, and conversions from and to doubles.
#include "lanes.h"

static double source(const wave *w, const inst *i, int k, int l) {
  u64 x = read_lane_f64(w, i->src[k], l);
  if (i->abs >> k & 1) x &= ~0ull >> 1;
  if (i->neg >> k & 1) x ^= 1ull << 63;
  return as_double(x);
}
static double fraction(double x) {
  const double r = x - floor(x);
  return r >= 1 ? 0x1.fffffffffffffp-1 : r;
}
static double mantissa(double x) {
  int exponent;
  return isfinite(x) ? frexp(x, &exponent) : x;
}

#define CASE(name, value) case OP_v_##name##_f64: *r = (value); return 1;
static int double_result(const wave *w, const inst *i, int l, double *r) {
#define A source(w, i, 0, l)
#define B source(w, i, 1, l)
#define C source(w, i, 2, l)
  switch (i->op) {
    CASE(add, A + B)
    CASE(mul, A * B)
    CASE(fma, fma(A, B, C))
    CASE(max_num, num_max(A, B))
    CASE(min_num, num_min(A, B))
    CASE(maximum, nan_max(A, B))
    CASE(minimum, nan_min(A, B))
    CASE(trunc, trunc(A))
    CASE(ceil, ceil(A))
    CASE(floor, floor(A))
    CASE(rndne, rint(A))
    CASE(fract, fraction(A))
    CASE(frexp_mant, mantissa(A))
  default: return 0;
  }
}
static int from_32_bits(const inst *i, u32 x, u32 y, const wave *w, int l, double *r) { // x: source 0, y: source 1
  switch (i->op) {
  case OP_v_cvt_f64_f32: *r = as_float(modified_float(i, 0, splat(x))[0]); return 1;
  case OP_v_cvt_f64_i32: *r = (int32_t)x; return 1;
  case OP_v_cvt_f64_u32: *r = x; return 1;
  case OP_v_ldexp_f64: *r = ldexp(A, (int32_t)y); return 1;
  default: return 0;
  }
}
static int to_32_bits(const wave *w, const inst *i, int l, u32 *r) {
  switch (i->op) {
  case OP_v_cvt_f32_f64: *r = as_u32(finished_scalar(i, (float)A)); return 1;
  case OP_v_cvt_i32_f64: *r = (u32)double_to_i32(A); return 1;
  case OP_v_cvt_u32_f64: *r = double_to_u32(A); return 1;
  case OP_v_frexp_exp_i32_f64: *r = !isfinite(A) || A == 0 ? 0 : (u32)(ilogb(A) + 1); return 1;
  default: return 0;
  }
}

// Both dwords of a 64-bit source in every lane.
static void wide_source(const wave *w, u32 n, int is_signed, lanes *low, lanes *high) {
  const u64 scalar = n >= 256 ? 0 : is_signed ? read_i64(w, n) : read_u64(w, n);
  low->v = n >= 256 ? w->v[n - 256] : splat((u32)scalar);
  high->v = n >= 256 ? w->v[n - 255] : splat((u32)(scalar >> 32));
}
#define SHIFT(value) \
  EACH_LANE { \
    const u64 x = join_u64(low.u[l], high.u[l]), r = (u64)(value); \
    low.u[l] = (u32)r, high.u[l] = (u32)(r >> 32); \
  } \
  break;
static int run_shift(wave *w, const inst *i, const lanes *bits) {
  if (i->op != OP_v_lshlrev_b64 && i->op != OP_v_lshrrev_b64 && i->op != OP_v_ashrrev_i64) return 0;
  lanes low, high;
  wide_source(w, i->src[1], i->op == OP_v_ashrrev_i64, &low, &high);
  switch (i->op) {
  case OP_v_lshlrev_b64: SHIFT(x << (bits->u[l] & 63))
  case OP_v_lshrrev_b64: SHIFT(x >> (bits->u[l] & 63))
  default: SHIFT((int64_t)x >> (bits->u[l] & 63))
  }
  write_result(w, i->dst, &low.v);
  write_result(w, i->dst + 1, &high.v);
  return 1;
}
static void multiply_add(wave *w, const inst *i, const vec *const s[3]) { // 32 x 32 + 64 bits, and the carry
  const int is_signed = i->op == OP_v_mad_co_i64_i32;
  const lanes x = {*s[0]}, y = {*s[1]};
  lanes low, high, carry;
  wide_source(w, i->src[2], is_signed, &low, &high);
  if (is_signed) {
    EACH_LANE {
      const __int128 sum = (__int128)((int64_t)x.n[l] * y.n[l]) + (int64_t)join_u64(low.u[l], high.u[l]);
      low.u[l] = (u32)sum, high.u[l] = (u32)(sum >> 32), carry.u[l] = -(u32)(sum >> 64 & 1);
    }
  } else {
    EACH_LANE {
      const u64 product = (u64)x.u[l] * y.u[l], sum = product + join_u64(low.u[l], high.u[l]);
      low.u[l] = (u32)sum, high.u[l] = (u32)(sum >> 32), carry.u[l] = sum < product ? ~0u : 0;
    }
  }
  write_result(w, i->dst, &low.v);
  write_result(w, i->dst + 1, &high.v);
  write_scalar(w, i->sdst, lane_mask(carry.v) & w->exec);
}

int run_wide(wave *w, const inst *i, const vec *const s[3]) {
  if (i->op == OP_v_mad_co_u64_u32 || i->op == OP_v_mad_co_i64_i32) {
    multiply_add(w, i, s);
    return 1;
  }
  const lanes x = {*s[0]}, y = {*s[1]};
  if (run_shift(w, i, &x)) return 1;
  for (int l = 0; l < LANES; l++) {
    double d;
    u32 r;
    if (double_result(w, i, l, &d) || from_32_bits(i, x.u[l], y.u[l], w, l, &d))
      write_lane_u64(w, i->dst, l, as_u64(finished_double(i, d)));
    else if (to_32_bits(w, i, l, &r)) write_lane(w, i->dst, l, r);
    else return 0;
  }
  return 1;
}
