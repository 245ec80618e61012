// VOP3P: two 16-bit operations in a lane, mixed-precision fma, dot products. WMMA is in matrix.c.
#include "lanes.h"
#include "matrix.h"

// Half k of source n: op_sel names the source's half for the low result, op_sel_hi for the high one; neg, neg_hi likewise.
static vec packed_source(const wave *w, const inst *i, int n, int high, int is_float) {
  const vec x = is_float ? read_half_vec(w, i->src[n]) : read_vec(w, i->src[n]);
  const vec h = ((high ? i->opsel_hi : i->opsel) >> n & 1 ? x >> 16 : x) & splat(0xffff);
  return is_float && (high ? i->neg_hi : i->neg) >> n & 1 ? h ^ 0x8000 : h;
}
static vec clamped_half(vec x) {
  lanes r = {x};
  EACH_LANE {
    const float f = half_to_float(r.u[l]);
    r.u[l] = f > 1 ? 0x3c00 : f > 0 ? r.u[l] : 0;
  }
  return r.v;
}
static int run_packed(wave *w, const inst *i) {
  const int kind = half_kind(i->op), is_float = kind == HALF_FLOAT;
  if (!kind) return 0;
  vec half[2];
  for (int high = 0; high < 2; high++) {
    vec x[3];
    for (int n = 0; n < 3; n++) x[n] = packed_source(w, i, n, high, is_float);
    half[high] = half_result(i->op, i->clamp, x);
    if (is_float && i->clamp) half[high] = clamped_half(half[high]);
  }
  const vec r = half[0] | half[1] << 16;
  write_result(w, i->dst, &r);
  return 1;
}

// v_fma_mix: op_sel_hi says that a source is a half, op_sel which one; neg_hi is |x| here.
static vec mixed_source(const wave *w, const inst *i, int n) {
  lanes x;
  if (i->opsel_hi >> n & 1) {
    const vec h = read_half_vec(w, i->src[n]);
    x.f = floats_of_halves(i->opsel >> n & 1 ? h >> 16 : h);
  } else {
    x.v = read_vec(w, i->src[n]);
  }
  if (i->neg_hi >> n & 1) x.v &= splat(0x7fffffff);
  if (i->neg >> n & 1) x.v ^= splat(0x80000000);
  return x.v;
}
static int run_mix(wave *w, const inst *i) {
  if (i->op != OP_v_fma_mix_f32 && i->op != OP_v_fma_mixlo_f16 && i->op != OP_v_fma_mixhi_f16) return 0;
  const vec a = mixed_source(w, i, 0), b = mixed_source(w, i, 1), c = mixed_source(w, i, 2);
  lanes r;
  float_result(OP_v_fma_f32, &a, &b, &c, &r.v);
  if (i->clamp) EACH_LANE r.x[l] = r.x[l] > 1 ? 1 : r.x[l] > 0 ? r.x[l] : 0;
  if (i->op != OP_v_fma_mix_f32) {
    const vec old = w->v[i->dst];
    const int high = i->op == OP_v_fma_mixhi_f16;
    const vec h = halves_of_floats(r.f);
    r.v = high ? (old & 0xffff) | h << 16 : (old & splat(0xffff0000)) | h;
  }
  write_result(w, i->dst, &r.v);
  return 1;
}

// Element k of lanes of packed integers.
INLINE vec element(vec x, int k, int bits, int is_signed) {
  const vec at_top = x << (32 - bits - bits * k);
  return is_signed ? (vec)((ivec)at_top >> (32 - bits)) : at_top >> (32 - bits);
}
static vec integer_dot(vec a, vec b, vec c, int bits, int signed_a, int signed_b) {
  for (int k = 0; k < 32 / bits; k++) c += element(a, k, bits, signed_a) * element(b, k, bits, signed_b);
  return c;
}
static vec clamped_dot(vec a, vec b, vec c, int bits, int signed_a, int signed_b, int is_signed) {
  lanes dot = {integer_dot(a, b, splat(0), bits, signed_a, signed_b)}, sum = {c};
  EACH_LANE {
    if (is_signed) sum.n[l] = clamp_i32((int64_t)dot.n[l] + sum.n[l], INT32_MIN, INT32_MAX);
    else sum.u[l] = (u64)dot.u[l] + sum.u[l] > UINT32_MAX ? UINT32_MAX : dot.u[l] + sum.u[l];
  }
  return sum.v;
}
static int run_integer_dot(wave *w, const inst *i) {
  int bits, is_signed;
  switch (i->op) {
  case OP_v_dot4_i32_iu8: bits = 8, is_signed = 1; break;
  case OP_v_dot4_u32_u8: bits = 8, is_signed = 0; break;
  case OP_v_dot8_i32_iu4: bits = 4, is_signed = 1; break;
  case OP_v_dot8_u32_u4: bits = 4, is_signed = 0; break;
  default: return 0;
  }
  const vec a = read_vec(w, i->src[0]), b = read_vec(w, i->src[1]), c = read_vec(w, i->src[2]);
  const int signed_a = is_signed && i->neg & 1, signed_b = is_signed && i->neg >> 1 & 1; // neg_lo: this source is signed
  vec r;
  if (i->clamp) r = clamped_dot(a, b, c, bits, signed_a, signed_b, is_signed);
  else if (bits == 8 && signed_a && signed_b) r = integer_dot(a, b, c, 8, 1, 1);
  else if (bits == 8 && signed_b) r = integer_dot(a, b, c, 8, 0, 1);
  else r = integer_dot(a, b, c, bits, signed_a, signed_b);
  write_result(w, i->dst, &r);
  sim.count.dot4++;
  return 1;
}

// sum + a0 b0 + a1 b1 in f32, one rounding an addition; products of 16-bit floats are exact for halves.
static vec dot2(int bfloat, const vec a[2], const vec b[2], vec sum) {
  lanes r = {sum};
  for (int k = 0; k < 2; k++) {
    const lanes x = {a[k]}, y = {b[k]};
    EACH_LANE {
      if (bfloat) r.x[l] = r.x[l] + bfloat_to_float(x.u[l]) * bfloat_to_float(y.u[l]);
      else r.x[l] = r.x[l] + half_to_float(x.u[l]) * half_to_float(y.u[l]);
    }
  }
  return r.v;
}
vec dot2_lanes(int bfloat, vec a, vec b, vec sum) {
  const vec x[2] = {a & 0xffff, a >> 16}, y[2] = {b & 0xffff, b >> 16};
  return dot2(bfloat, x, y, sum);
}
static vec dot2_source(const wave *w, const inst *i, int n, int high, int bfloat) {
  if (!bfloat) return packed_source(w, i, n, high, 1);
  const vec x = read_bfloat_vec(w, i->src[n]);
  const vec h = ((high ? i->opsel_hi : i->opsel) >> n & 1 ? x >> 16 : x) & splat(0xffff);
  return (high ? i->neg_hi : i->neg) >> n & 1 ? h ^ 0x8000 : h;
}
static int run_float_dot(wave *w, const inst *i) {
  if (i->op != OP_v_dot2_f32_f16 && i->op != OP_v_dot2_f32_bf16) return 0;
  const int bfloat = i->op == OP_v_dot2_f32_bf16;
  vec a[2], b[2], c = read_vec(w, i->src[2]);
  for (int k = 0; k < 2; k++) a[k] = dot2_source(w, i, 0, k, bfloat), b[k] = dot2_source(w, i, 1, k, bfloat);
  if (i->neg_hi & 4) c &= splat(0x7fffffff);
  if (i->neg & 4) c ^= splat(0x80000000);
  lanes r = {dot2(bfloat, a, b, c)};
  if (i->clamp) EACH_LANE r.x[l] = r.x[l] > 1 ? 1 : r.x[l] > 0 ? r.x[l] : 0;
  write_result(w, i->dst, &r.v);
  return 1;
}

void run_matrix(wave *w, const inst *i) {
  if (i->dpp) {
    fail(w, i, "the simulator does not know packed instructions with DPP");
    return;
  }
  if (run_integer_dot(w, i) || run_wmma(w, i) || run_mix(w, i) || run_packed(w, i) || run_float_dot(w, i)) return;
  fail(w, i, "the simulator does not know this packed instruction");
}
