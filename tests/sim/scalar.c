// SOP1, SOP2, SOPC, SOPK, SOPP on integers, masks and the program counter; floats are scalar_float.c's.
#include "registers.h"
#include "scalar.h"
#include "tables.h"

INLINE int32_t signed32(u32 x) { return (int32_t)x; }

// Writes a result that SCC says to be nonzero.
INLINE int put_test(wave *w, u32 n, u32 value) {
  write_scalar(w, n, value);
  set_scc(w, value != 0);
  return 1;
}
INLINE int put_test64(wave *w, u32 n, u64 value) {
  write_u64(w, n, value);
  set_scc(w, value != 0);
  return 1;
}
INLINE int put(wave *w, u32 n, u32 value) { return write_scalar(w, n, value), 1; }
INLINE int put64(wave *w, u32 n, u64 value) { return write_u64(w, n, value), 1; }
INLINE int put_scc(wave *w, u32 n, u64 value, int scc) { // a sum, and carry or overflow
  write_scalar(w, n, (u32)value);
  set_scc(w, scc);
  return 1;
}

static int add(wave *w, const inst *i, u32 a, u32 b) {
  const u32 scc = get_scc(w);
  const int64_t plus = (int64_t)signed32(a) + signed32(b), minus = (int64_t)signed32(a) - signed32(b);
  switch (i->op) {
  case OP_s_add_co_u32: return put_scc(w, i->dst, a + b, a + b < a);
  case OP_s_sub_co_u32: return put_scc(w, i->dst, a - b, b > a);
  case OP_s_add_co_i32: return put_scc(w, i->dst, (u64)plus, plus != (int32_t)plus);
  case OP_s_sub_co_i32: return put_scc(w, i->dst, (u64)minus, minus != (int32_t)minus);
  case OP_s_add_co_ci_u32: return put_scc(w, i->dst, a + b + scc, ((u64)a + b + scc) >> 32 != 0);
  case OP_s_sub_co_ci_u32: return put_scc(w, i->dst, a - b - scc, (u64)b + scc > a);
  case OP_s_lshl1_add_u32: case OP_s_lshl2_add_u32: case OP_s_lshl3_add_u32: case OP_s_lshl4_add_u32: {
    const u64 sum = ((u64)a << (1 + i->op - OP_s_lshl1_add_u32)) + b;
    return put_scc(w, i->dst, sum, sum >> 32 != 0);
  }
  case OP_s_absdiff_i32: return put_test(w, i->dst, signed32(a - b) < 0 ? b - a : a - b);
  case OP_s_mul_i32: return put(w, i->dst, a * b);
  case OP_s_mul_hi_u32: return put(w, i->dst, (u32)((u64)a * b >> 32));
  case OP_s_mul_hi_i32: return put(w, i->dst, (u32)((int64_t)signed32(a) * signed32(b) >> 32));
  case OP_s_add_nc_u64: return put64(w, i->dst, read_u64(w, i->src[0]) + read_u64(w, i->src[1]));
  case OP_s_sub_nc_u64: return put64(w, i->dst, read_u64(w, i->src[0]) - read_u64(w, i->src[1]));
  case OP_s_mul_u64: return put64(w, i->dst, read_u64(w, i->src[0]) * read_u64(w, i->src[1]));
  case OP_s_min_i32: return put_scc(w, i->dst, signed32(a) < signed32(b) ? a : b, signed32(a) < signed32(b));
  case OP_s_max_i32: return put_scc(w, i->dst, signed32(a) >= signed32(b) ? a : b, signed32(a) >= signed32(b));
  case OP_s_min_u32: return put_scc(w, i->dst, a < b ? a : b, a < b);
  case OP_s_max_u32: return put_scc(w, i->dst, a >= b ? a : b, a >= b);
  default: return 0;
  }
}

static int logic(wave *w, const inst *i, u32 a, u32 b) {
  switch (i->op) {
  case OP_s_and_b32: return put_test(w, i->dst, a & b);
  case OP_s_or_b32: return put_test(w, i->dst, a | b);
  case OP_s_xor_b32: return put_test(w, i->dst, a ^ b);
  case OP_s_nand_b32: return put_test(w, i->dst, ~(a & b));
  case OP_s_nor_b32: return put_test(w, i->dst, ~(a | b));
  case OP_s_xnor_b32: return put_test(w, i->dst, ~(a ^ b));
  case OP_s_and_not1_b32: return put_test(w, i->dst, a & ~b);
  case OP_s_or_not1_b32: return put_test(w, i->dst, a | ~b);
  case OP_s_lshl_b32: return put_test(w, i->dst, a << (b & 31));
  case OP_s_lshr_b32: return put_test(w, i->dst, a >> (b & 31));
  case OP_s_ashr_i32: return put_test(w, i->dst, (u32)(signed32(a) >> (b & 31)));
  case OP_s_bfm_b32: return put(w, i->dst, ((1u << (a & 31)) - 1) << (b & 31));
  case OP_s_cselect_b32: return put(w, i->dst, get_scc(w) ? a : b);
  case OP_s_pack_ll_b32_b16: return put(w, i->dst, (a & 0xffff) | b << 16);
  case OP_s_pack_lh_b32_b16: return put(w, i->dst, (a & 0xffff) | (b & 0xffff0000));
  case OP_s_pack_hh_b32_b16: return put(w, i->dst, a >> 16 | (b & 0xffff0000));
  case OP_s_pack_hl_b32_b16: return put(w, i->dst, a >> 16 | b << 16);
  default: return 0;
  }
}

// The lowest `width` bits of x, extended by the highest of them or by zeros.
INLINE u64 field(u64 x, u32 width, int is_signed) {
  if (width == 0) return 0;
  if (width >= 64) return x;
  return is_signed ? (u64)((int64_t)(x << (64 - width)) >> (64 - width)) : x & ((1ull << width) - 1);
}

static int logic64(wave *w, const inst *i, u32 b) {
  const u64 x = read_u64(w, i->src[0]), y = read_u64(w, i->src[1]), z = read_i64(w, i->src[0]);
  const u32 width = b >> 16 & 127;
  switch (i->op) {
  case OP_s_and_b64: return put_test64(w, i->dst, x & y);
  case OP_s_or_b64: return put_test64(w, i->dst, x | y);
  case OP_s_xor_b64: return put_test64(w, i->dst, x ^ y);
  case OP_s_nand_b64: return put_test64(w, i->dst, ~(x & y));
  case OP_s_nor_b64: return put_test64(w, i->dst, ~(x | y));
  case OP_s_xnor_b64: return put_test64(w, i->dst, ~(x ^ y));
  case OP_s_and_not1_b64: return put_test64(w, i->dst, x & ~y);
  case OP_s_or_not1_b64: return put_test64(w, i->dst, x | ~y);
  case OP_s_lshl_b64: return put_test64(w, i->dst, x << (b & 63));
  case OP_s_lshr_b64: return put_test64(w, i->dst, x >> (b & 63));
  case OP_s_ashr_i64: return put_test64(w, i->dst, (u64)((int64_t)z >> (b & 63)));
  case OP_s_bfe_u32: return put_test(w, i->dst, (u32)field(w->s[i->src[0]] >> (b & 31), width, 0));
  case OP_s_bfe_i32: return put_test(w, i->dst, (u32)field((u64)(signed32(w->s[i->src[0]]) >> (b & 31)), width, 1));
  case OP_s_bfe_u64: return put_test64(w, i->dst, field(x >> (b & 63), width, 0));
  case OP_s_bfe_i64: return put_test64(w, i->dst, field((u64)((int64_t)z >> (b & 63)), width, 1));
  case OP_s_bfm_b64: return put64(w, i->dst, ((1ull << (w->s[i->src[0]] & 63)) - 1) << (b & 63));
  case OP_s_cselect_b64: return put64(w, i->dst, get_scc(w) ? x : y);
  default: return 0;
  }
}

// Bits that follow the sign bit and equal it, with the sign bit; all bits: -1.
static u32 sign_bits(u64 x, int width) {
  for (int k = 1; k < width; k++)
    if ((x >> (width - 1 - k) & 1) != (x >> (width - 1) & 1)) return (u32)k;
  return ~0u;
}

static u64 quads(u64 x, int width, int whole) { // a bit, or four equal ones, for each four bits that are not all 0
  u64 result = 0;
  for (int k = 0; k < width; k += 4)
    if (x >> k & 15) result |= whole ? 15ull << k : 1ull << (k / 4);
  return result;
}

static u64 twice_each_bit(u32 x) {
  u64 result = 0;
  for (int k = 0; k < 32; k++) result |= (u64)(x >> k & 1) * 3 << 2 * k;
  return result;
}

static int count(wave *w, const inst *i, u32 a) {
  const u64 x = read_u64(w, i->src[0]);
  switch (i->op) {
  case OP_s_bcnt0_i32_b32: return put_test(w, i->dst, 32 - (u32)__builtin_popcount(a));
  case OP_s_bcnt1_i32_b32: return put_test(w, i->dst, (u32)__builtin_popcount(a));
  case OP_s_bcnt0_i32_b64: return put_test(w, i->dst, 64 - (u32)__builtin_popcountll(x));
  case OP_s_bcnt1_i32_b64: return put_test(w, i->dst, (u32)__builtin_popcountll(x));
  case OP_s_ctz_i32_b32: return put(w, i->dst, a ? (u32)__builtin_ctz(a) : ~0u);
  case OP_s_ctz_i32_b64: return put(w, i->dst, x ? (u32)__builtin_ctzll(x) : ~0u);
  case OP_s_clz_i32_u32: return put(w, i->dst, a ? (u32)__builtin_clz(a) : ~0u);
  case OP_s_clz_i32_u64: return put(w, i->dst, x ? (u32)__builtin_clzll(x) : ~0u);
  case OP_s_cls_i32: return put(w, i->dst, sign_bits(a, 32));
  case OP_s_cls_i32_i64: return put(w, i->dst, sign_bits(read_i64(w, i->src[0]), 64));
  case OP_s_brev_b32: return put(w, i->dst, __builtin_bitreverse32(a));
  case OP_s_brev_b64: return put64(w, i->dst, __builtin_bitreverse64(x));
  case OP_s_quadmask_b32: return put_test(w, i->dst, (u32)quads(a, 32, 0));
  case OP_s_quadmask_b64: return put_test64(w, i->dst, quads(x, 64, 0));
  case OP_s_wqm_b32: return put_test(w, i->dst, (u32)quads(a, 32, 1));
  case OP_s_wqm_b64: return put_test64(w, i->dst, quads(x, 64, 1));
  case OP_s_bitreplicate_b64_b32: return put64(w, i->dst, twice_each_bit(a));
  default: return 0;
  }
}

static int move(wave *w, const inst *i, u32 a) {
  const u64 x = read_u64(w, i->src[0]);
  switch (i->op) {
  case OP_s_mov_b32: return put(w, i->dst, a);
  case OP_s_mov_b64: return put64(w, i->dst, x);
  case OP_s_cmov_b32: return get_scc(w) ? put(w, i->dst, a) : 1;
  case OP_s_cmov_b64: return get_scc(w) ? put64(w, i->dst, x) : 1;
  case OP_s_not_b32: return put_test(w, i->dst, ~a);
  case OP_s_not_b64: return put_test64(w, i->dst, ~x);
  case OP_s_abs_i32: return put_test(w, i->dst, signed32(a) < 0 ? -a : a);
  case OP_s_sext_i32_i8: return put(w, i->dst, (u32)(int32_t)(int8_t)a);
  case OP_s_sext_i32_i16: return put(w, i->dst, (u32)(int32_t)(int16_t)a);
  case OP_s_bitset0_b32: return put(w, i->dst, w->s[i->dst] & ~(1u << (a & 31)));
  case OP_s_bitset1_b32: return put(w, i->dst, w->s[i->dst] | 1u << (a & 31));
  case OP_s_bitset0_b64: return put64(w, i->dst, read_u64(w, i->dst) & ~(1ull << (a & 63)));
  case OP_s_bitset1_b64: return put64(w, i->dst, read_u64(w, i->dst) | 1ull << (a & 63));
  default: return 0;
  }
}

static int move_relative(wave *w, const inst *i) { // s_movrel*: SGPR numbers plus M0
  const int two = i->op == OP_s_movrelsd_2_b32, wide = i->op == OP_s_movrels_b64 || i->op == OP_s_movreld_b64;
  const int from = two || i->op == OP_s_movrels_b32 || i->op == OP_s_movrels_b64, to = two || !from;
  const u32 m0 = w->s[M0];
  const u32 src = i->src[0] + (from ? two ? m0 & 1023 : m0 : 0), dst = i->dst + (to ? two ? m0 >> 16 & 1023 : m0 : 0);
  if (!from && !two && i->op != OP_s_movreld_b32 && i->op != OP_s_movreld_b64) return 0;
  if ((from && src >= VCC) || dst >= VCC) fail(w, i, "M0 = 0x%x leads outside of the SGPRs", m0);
  else if (wide) write_u64(w, dst, read_u64(w, src));
  else write_scalar(w, dst, w->s[src]);
  return 1;
}

static int mask_exec(wave *w, const inst *i, u32 a) { // s_*_saveexec, s_*_wrexec
  const u32 old = w->exec;
  u32 mask;
  switch (i->op) {
  case OP_s_and_saveexec_b32: mask = a & old; break;
  case OP_s_or_saveexec_b32: mask = a | old; break;
  case OP_s_xor_saveexec_b32: mask = a ^ old; break;
  case OP_s_nand_saveexec_b32: mask = ~(a & old); break;
  case OP_s_nor_saveexec_b32: mask = ~(a | old); break;
  case OP_s_xnor_saveexec_b32: mask = ~(a ^ old); break;
  case OP_s_and_not0_saveexec_b32: case OP_s_and_not0_wrexec_b32: mask = ~a & old; break;
  case OP_s_or_not0_saveexec_b32: mask = ~a | old; break;
  case OP_s_and_not1_saveexec_b32: case OP_s_and_not1_wrexec_b32: mask = a & ~old; break;
  case OP_s_or_not1_saveexec_b32: mask = a | ~old; break;
  default: return 0;
  }
  const int writes_mask = i->op == OP_s_and_not0_wrexec_b32 || i->op == OP_s_and_not1_wrexec_b32;
  write_scalar(w, i->dst, writes_mask ? mask : old);
  set_exec(w, mask);
  set_scc(w, mask != 0);
  return 1;
}

static int compare(wave *w, const inst *i, u32 a, u32 b) {
  switch (i->op) {
  case OP_s_cmp_eq_i32: case OP_s_cmp_eq_u32: return set_scc(w, a == b), 1;
  case OP_s_cmp_lg_i32: case OP_s_cmp_lg_u32: return set_scc(w, a != b), 1;
  case OP_s_cmp_gt_i32: return set_scc(w, signed32(a) > signed32(b)), 1;
  case OP_s_cmp_ge_i32: return set_scc(w, signed32(a) >= signed32(b)), 1;
  case OP_s_cmp_lt_i32: return set_scc(w, signed32(a) < signed32(b)), 1;
  case OP_s_cmp_le_i32: return set_scc(w, signed32(a) <= signed32(b)), 1;
  case OP_s_cmp_gt_u32: return set_scc(w, a > b), 1;
  case OP_s_cmp_ge_u32: return set_scc(w, a >= b), 1;
  case OP_s_cmp_lt_u32: return set_scc(w, a < b), 1;
  case OP_s_cmp_le_u32: return set_scc(w, a <= b), 1;
  case OP_s_cmp_eq_u64: return set_scc(w, read_u64(w, i->src[0]) == read_u64(w, i->src[1])), 1;
  case OP_s_cmp_lg_u64: return set_scc(w, read_u64(w, i->src[0]) != read_u64(w, i->src[1])), 1;
  case OP_s_bitcmp0_b32: return set_scc(w, !(a >> (b & 31) & 1)), 1;
  case OP_s_bitcmp1_b32: return set_scc(w, a >> (b & 31) & 1), 1;
  case OP_s_bitcmp0_b64: return set_scc(w, !(read_u64(w, i->src[0]) >> (b & 63) & 1)), 1;
  case OP_s_bitcmp1_b64: return set_scc(w, read_u64(w, i->src[0]) >> (b & 63) & 1), 1;
  default: return 0;
  }
}

void run_scalar(wave *w, const inst *i) {
  const u32 a = w->s[i->src[0]], b = w->s[i->src[1]];
  int done;
  switch (i->format) {
  case SOP1: done = move(w, i, a) || mask_exec(w, i, a) || count(w, i, a) || run_scalar_float(w, i, a, b) || run_program(w, i) || move_relative(w, i); break;
  case SOP2: done = add(w, i, a, b) || logic(w, i, a, b) || logic64(w, i, b) || run_scalar_float(w, i, a, b); break;
  case SOPC: done = compare(w, i, a, b) || run_scalar_compare(w, i, a, b); break;
  default: done = run_program(w, i);
  }
  if (!done) fail(w, i, "not modelled");
}
