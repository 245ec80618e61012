// 32-bit float arithmetic by lane.
#include "lanes.h"

INLINE vec num_max_lanes(vec a, vec b) {
  const fvec x = (fvec)a, y = (fvec)b;
  vec r = choose((vec)(x > y), a, b);
  r = choose((vec)(x == y), a & b, r); // differs in the sign of 0 only
  r = choose((vec)(x != x), b, r);
  return choose((vec)(y != y), a, r);
}
INLINE vec num_min_lanes(vec a, vec b) {
  const fvec x = (fvec)a, y = (fvec)b;
  vec r = choose((vec)(x < y), a, b);
  r = choose((vec)(x == y), a | b, r);
  r = choose((vec)(x != x), b, r);
  return choose((vec)(y != y), a, r);
}
INLINE vec nan_first(vec a, vec b, vec r) { // NaN of a, else of b, else r
  r = choose((vec)((fvec)b != (fvec)b), b | splat(0x400000), r);
  return choose((vec)((fvec)a != (fvec)a), a | splat(0x400000), r);
}
INLINE vec nan_max_lanes(vec a, vec b) { return nan_first(a, b, num_max_lanes(a, b)); }
INLINE vec nan_min_lanes(vec a, vec b) { return nan_first(a, b, num_min_lanes(a, b)); }
INLINE vec median(vec a, vec b, vec c) {
  const fvec x = (fvec)a, y = (fvec)b, z = (fvec)c;
  const vec unordered = (vec)(x != x) | (vec)(y != y) | (vec)(z != z);
  const vec middle = num_max_lanes(num_min_lanes(a, b), num_min_lanes(num_max_lanes(a, b), c));
  return choose(unordered, num_min_lanes(num_min_lanes(a, b), c), middle);
}
INLINE vec dx9_zeros(vec a, vec b) { return (vec)((a << 1) == 0) | (vec)((b << 1) == 0); } // 0 * x is 0, even for inf and NaN
INLINE vec fused(vec a, vec b, vec c) { return (vec)__builtin_elementwise_fma((fvec)a, (fvec)b, (fvec)c); }
INLINE vec fraction(vec a) { // below 1 even where x - floor(x) rounds to 1
  const fvec x = (fvec)a, r = x - __builtin_elementwise_floor(x);
  return choose((vec)(r >= 1.0f), splat(0x3f7fffff), (vec)r);
}
static vec scaled_lanes(vec a, vec exponent) {
  lanes x = {a}, e = {exponent}, r;
  EACH_LANE r.x[l] = ldexpf(x.x[l], e.n[l]);
  return r.v;
}

#define A (*a)
#define B (*b)
#define C (*c)
#define CASE(name, value) case OP_v_##name: *r = (vec)(value); return 1;
int float_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r) {
  switch (op) {
    CASE(add_f32, (fvec)A + (fvec)B)
    CASE(sub_f32, (fvec)A - (fvec)B)
    CASE(subrev_f32, (fvec)B - (fvec)A)
    CASE(mul_f32, (fvec)A * (fvec)B)
    CASE(mul_dx9_zero_f32, (vec)((fvec)A * (fvec)B) & ~dx9_zeros(A, B))
    case OP_v_fmac_f32:
    case OP_v_fmaak_f32:
    case OP_v_fmamk_f32:
    CASE(fma_f32, fused(A, B, C))
    CASE(fma_dx9_zero_f32, choose(dx9_zeros(A, B), C, fused(A, B, C)))
    CASE(max_num_f32, num_max_lanes(A, B))
    CASE(min_num_f32, num_min_lanes(A, B))
    CASE(max3_num_f32, num_max_lanes(num_max_lanes(A, B), C))
    CASE(min3_num_f32, num_min_lanes(num_min_lanes(A, B), C))
    CASE(med3_num_f32, median(A, B, C))
    CASE(maxmin_num_f32, num_min_lanes(num_max_lanes(A, B), C))
    CASE(minmax_num_f32, num_max_lanes(num_min_lanes(A, B), C))
    CASE(maximum_f32, nan_max_lanes(A, B))
    CASE(minimum_f32, nan_min_lanes(A, B))
    CASE(maximum3_f32, nan_max_lanes(nan_max_lanes(A, B), C))
    CASE(minimum3_f32, nan_min_lanes(nan_min_lanes(A, B), C))
    CASE(maximumminimum_f32, nan_min_lanes(nan_max_lanes(A, B), C))
    CASE(minimummaximum_f32, nan_max_lanes(nan_min_lanes(A, B), C))
    CASE(cndmask_b32, choose(C, B, A)) // c: the mask as lanes
    CASE(trunc_f32, __builtin_elementwise_trunc((fvec)A))
    CASE(ceil_f32, __builtin_elementwise_ceil((fvec)A))
    CASE(floor_f32, __builtin_elementwise_floor((fvec)A))
    CASE(rndne_f32, __builtin_elementwise_roundeven((fvec)A))
    CASE(fract_f32, fraction(A))
    CASE(ldexp_f32, scaled_lanes(A, B))
  default: return 0;
  }
}
