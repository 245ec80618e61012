// 32-bit integer and bit arithmetic by lane.
#include "lanes.h"

typedef u64 wide_vec __attribute__((vector_size(256)));
typedef int64_t wide_ivec __attribute__((vector_size(256)));

INLINE vec pick(ivec condition, vec a, vec b) { return choose((vec)condition, a, b); }
INLINE vec max_i(vec a, vec b) { return pick((ivec)a > (ivec)b, a, b); }
INLINE vec min_i(vec a, vec b) { return pick((ivec)a < (ivec)b, a, b); }
INLINE vec max_u(vec a, vec b) { return pick(a > b, a, b); }
INLINE vec min_u(vec a, vec b) { return pick(a < b, a, b); }
INLINE ivec signed24(vec a) { return (ivec)(a << 8) >> 8; }
INLINE vec unsigned24(vec a) { return a & splat(0xffffff); }
INLINE vec high_u(vec a, vec b) {
  return __builtin_convertvector(__builtin_convertvector(a, wide_vec) * __builtin_convertvector(b, wide_vec) >> 32, vec);
}
INLINE vec high_i(vec a, vec b) {
  const wide_ivec x = __builtin_convertvector((ivec)a, wide_ivec), y = __builtin_convertvector((ivec)b, wide_ivec);
  return __builtin_convertvector((wide_vec)(x * y) >> 32, vec);
}
INLINE vec shifted_pair(vec high, vec low, vec bits) { // low dword of high:low >> bits, bits < 32
  return pick(bits == 0, low, low >> bits | high << (32 - bits & 31));
}
INLINE vec field_u(vec a, vec at, vec width) { return a >> (at & 31) & ((splat(1) << (width & 31)) - 1); }
INLINE vec field_i(vec a, vec at, vec width) {
  const vec n = width & 31, up = 32 - n & 31;
  return (vec)((ivec)(((vec)((ivec)a >> (ivec)(at & 31))) << up) >> (ivec)up) & (vec)(n != 0);
}
INLINE vec distance(vec a, vec b) { return max_u(a, b) - min_u(a, b); }
static vec byte_distances(vec a, vec b, int skip_zeros) {
  vec sum = {0};
  for (int k = 0; k < 32; k += 8) {
    const vec x = a >> k & 255, y = b >> k & 255;
    sum += distance(x, y) & (skip_zeros ? (vec)(y != 0) : splat(~0u));
  }
  return sum;
}
static vec byte_averages(vec a, vec b, vec round) {
  vec r = {0};
  for (int k = 0; k < 32; k += 8) r |= ((a >> k & 255) + (b >> k & 255) + (round >> k & 1)) >> 1 << k;
  return r;
}
static u32 selected_byte(u64 data, u32 selector) {
  if (selector >= 13) return 255;
  if (selector == 12) return 0;
  if (selector >= 8) return data >> (16 * (selector - 8) + 15) & 1 ? 255 : 0;
  return data >> 8 * selector & 255;
}
static vec byte_permute(vec a, vec b, vec selectors) {
  lanes x = {a}, y = {b}, s = {selectors}, r;
  EACH_LANE {
    const u64 data = join_u64(y.u[l], x.u[l]);
    u32 out = 0;
    for (int k = 0; k < 32; k += 8) out |= selected_byte(data, s.u[l] >> k & 255) << k;
    r.u[l] = out;
  }
  return r.v;
}
static vec bits_below(vec a, vec b) { // b + how many bits below the lane's own are set in a
  lanes x = {a}, y = {b}, r;
  EACH_LANE r.u[l] = (u32)__builtin_popcount(x.u[l] & ((1u << l) - 1)) + y.u[l];
  return r.v;
}
static vec leading(vec a) {
  lanes x = {a}, r;
  EACH_LANE r.u[l] = x.u[l] ? (u32)__builtin_clz(x.u[l]) : ~0u;
  return r.v;
}
static vec trailing(vec a) {
  lanes x = {a}, r;
  EACH_LANE r.u[l] = x.u[l] ? (u32)__builtin_ctz(x.u[l]) : ~0u;
  return r.v;
}
static vec median_i(vec a, vec b, vec c) { return max_i(min_i(a, b), min_i(max_i(a, b), c)); }
static vec median_u(vec a, vec b, vec c) { return max_u(min_u(a, b), min_u(max_u(a, b), c)); }

#define A (*a)
#define B (*b)
#define C (*c)
#define CASE(name, value) case OP_v_##name: *r = (vec)(value); return 1;
static int rare_integer_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r) {
  switch (op) {
    CASE(not_b32, ~A)
    CASE(bfrev_b32, __builtin_elementwise_bitreverse(A))
    CASE(clz_i32_u32, leading(A))
    CASE(ctz_i32_b32, trailing(A))
    CASE(cls_i32, leading(A ^ (vec)((ivec)A >> 31)))
    CASE(mul_hi_u32, high_u(A, B))
    CASE(mul_hi_i32, high_i(A, B))
    CASE(mul_hi_u32_u24, high_u(unsigned24(A), unsigned24(B)))
    CASE(mul_hi_i32_i24, high_i((vec)signed24(A), (vec)signed24(B)))
    CASE(mbcnt_lo_u32_b32, bits_below(A, B))
    CASE(mbcnt_hi_u32_b32, B) // lanes 32.. do not exist
    CASE(bcnt_u32_b32, __builtin_elementwise_popcount(A) + B)
    CASE(bfm_b32, ((splat(1) << (A & 31)) - 1) << (B & 31))
    CASE(alignbit_b32, shifted_pair(A, B, C & 31))
    CASE(alignbyte_b32, shifted_pair(A, B, (C & 3) * 8))
    CASE(perm_b32, byte_permute(A, B, C))
    CASE(sad_u8, byte_distances(A, B, 0) + C)
    CASE(msad_u8, byte_distances(A, B, 1) + C)
    CASE(sad_hi_u8, (byte_distances(A, B, 0) << 16) + C)
    CASE(sad_u16, distance(A & 0xffff, B & 0xffff) + distance(A >> 16, B >> 16) + C)
    CASE(sad_u32, distance(A, B) + C)
    CASE(lerp_u8, byte_averages(A, B, C))
    CASE(max3_i32, max_i(max_i(A, B), C))
    CASE(min3_i32, min_i(min_i(A, B), C))
    CASE(med3_i32, median_i(A, B, C))
    CASE(max3_u32, max_u(max_u(A, B), C))
    CASE(min3_u32, min_u(min_u(A, B), C))
    CASE(med3_u32, median_u(A, B, C))
    CASE(maxmin_i32, min_i(max_i(A, B), C))
    CASE(minmax_i32, max_i(min_i(A, B), C))
    CASE(maxmin_u32, min_u(max_u(A, B), C))
    CASE(minmax_u32, max_u(min_u(A, B), C))
  default: return 0;
  }
}

int integer_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r) {
  switch (op) {
    CASE(mov_b32, A)
    case OP_v_add_nc_i32:
    CASE(add_nc_u32, A + B)
    case OP_v_sub_nc_i32:
    CASE(sub_nc_u32, A - B)
    CASE(subrev_nc_u32, B - A)
    CASE(lshlrev_b32, B << (A & 31))
    CASE(lshrrev_b32, B >> (A & 31))
    CASE(ashrrev_i32, (ivec)B >> (ivec)(A & 31))
    CASE(and_b32, A & B)
    CASE(or_b32, A | B)
    CASE(xor_b32, A ^ B)
    CASE(xnor_b32, ~(A ^ B))
    CASE(max_i32, max_i(A, B))
    CASE(min_i32, min_i(A, B))
    CASE(max_u32, max_u(A, B))
    CASE(min_u32, min_u(A, B))
    CASE(mul_lo_u32, A * B)
    CASE(mul_i32_i24, signed24(A) * signed24(B))
    CASE(mul_u32_u24, unsigned24(A) * unsigned24(B))
    CASE(mad_i32_i24, signed24(A) * signed24(B) + (ivec)C)
    CASE(mad_u32_u24, unsigned24(A) * unsigned24(B) + C)
    CASE(add3_u32, A + B + C)
    CASE(lshl_add_u32, (A << (B & 31)) + C)
    CASE(add_lshl_u32, (A + B) << (C & 31))
    CASE(lshl_or_b32, A << (B & 31) | C)
    CASE(and_or_b32, (A & B) | C)
    CASE(or3_b32, A | B | C)
    CASE(xor3_b32, A ^ B ^ C)
    CASE(xad_u32, (A ^ B) + C)
    CASE(bfe_u32, field_u(A, B, C))
    CASE(bfe_i32, field_i(A, B, C))
    CASE(bfi_b32, (A & B) | (~A & C))
  default: return rare_integer_result(op, a, b, c, r);
  }
}

static int64_t exact_result(u32 op, int64_t a, int64_t b, int64_t c) { // of operands extended by their signedness
  switch (op) {
  case OP_v_add_nc_u32: case OP_v_add_nc_i32: return a + b;
  case OP_v_sub_nc_u32: case OP_v_sub_nc_i32: return a - b;
  case OP_v_subrev_nc_u32: return b - a;
  case OP_v_mad_u32_u24: return (a & 0xffffff) * (b & 0xffffff) + c;
  default: return ((int64_t)((u64)a << 40) >> 40) * ((int64_t)((u64)b << 40) >> 40) + c; // v_mad_i32_i24
  }
}
int saturated_result(u32 op, const vec *a, const vec *b, const vec *c, vec *r) {
  int is_signed = op == OP_v_add_nc_i32 || op == OP_v_sub_nc_i32 || op == OP_v_mad_i32_i24;
  if (!is_signed && op != OP_v_add_nc_u32 && op != OP_v_sub_nc_u32 && op != OP_v_subrev_nc_u32 && op != OP_v_mad_u32_u24) return 0;
  lanes x = {*a}, y = {*b}, z = {*c}, out;
  EACH_LANE {
    if (is_signed) {
      out.n[l] = clamp_i32(exact_result(op, x.n[l], y.n[l], z.n[l]), INT32_MIN, INT32_MAX);
    } else {
      const int64_t t = exact_result(op, x.u[l], y.u[l], z.u[l]);
      out.u[l] = t < 0 ? 0 : t > UINT32_MAX ? UINT32_MAX : (u32)t;
    }
  }
  *r = out.v;
  return 1;
}

// x +- y +- carry; the mask of carries goes to an SGPR (VCC in VOP2), with zeros for lanes outside EXEC.
int run_carry(wave *w, const inst *i, const vec *const s[3]) {
  int subtract = 0, reverse = 0, with_carry = 0;
  switch (i->op) {
  case OP_v_add_co_u32: break;
  case OP_v_sub_co_u32: subtract = 1; break;
  case OP_v_subrev_co_u32: subtract = reverse = 1; break;
  case OP_v_add_co_ci_u32: with_carry = 1; break;
  case OP_v_sub_co_ci_u32: subtract = with_carry = 1; break;
  case OP_v_subrev_co_ci_u32: subtract = reverse = with_carry = 1; break;
  default: return 0;
  }
  const vec x = *s[reverse], y = *s[!reverse];
  const vec carry = with_carry ? lanes_of(w->s[i->src[2]]) & 1 : splat(0);
  const vec first = subtract ? x - y : x + y, result = subtract ? first - carry : first + carry;
  const vec out = subtract ? (vec)(x < y) | (vec)(first < carry) : (vec)(first < x) | (vec)(result < first);
  const u32 mask = lane_mask(out) & w->exec;
  if (i->clamp) { // no wrap-around
    const vec limited = choose(out, splat(subtract ? 0 : ~0u), result);
    write_result(w, i->dst, &limited);
  } else {
    write_result(w, i->dst, &result);
  }
  write_scalar(w, i->sdst, mask);
  return 1;
}
