/* The verified integer core in C, generated from core/ie.py: `python -m tests.prove.header`. Do not edit.
   u32 wraps; arrays are read only; a shift count is below 32 and a divisor is not 0 where the laws' premises hold.
   IE_FN may be defined before, and IE_DOT4_US(acc, a, b) and IE_DOT4_SS(acc, a, b) as the instructions of a target. */
#ifndef IE_CORE_H
#define IE_CORE_H
#include <stdbool.h>
#ifndef IE_FN
#define IE_FN static inline
#endif
typedef unsigned int u32;

/* Lanes of a wave. */
IE_FN u32 ie_wave(void) { return 32u; }

/* Rows that a workgroup of a matrix-vector product owns, one per wave. */
IE_FN u32 ie_rows_per_wg(void) { return 8u; }

/* Offsets in the arena are multiples of this plus one. */
IE_FN u32 ie_align_mask(void) { return 255u; }

/* Q4_0 sizes without address overflow: rows < 2^18, nb < 2^9. */
IE_FN bool ie_sizes_ok(u32 rows, u32 nb) { return (rows < 0x00040000u) && (nb < 512u); }

/* Q8_0 sizes without address overflow: rows < 2^18, nb < 2^11, rows*nb < 2^26. */
IE_FN bool ie_q8_sizes_ok(u32 rows, u32 nb) {
  return ((rows < 0x00040000u) && (nb < 2048u)) && ((rows * nb) < 0x04000000u);
}

/* Q4_K and Q6_K sizes: as Q8_0, and whole super-blocks of 8 blocks. */
IE_FN bool ie_q4k_sizes_ok(u32 rows, u32 nb) { return ie_q8_sizes_ok(rows, nb) && ((nb % 8u) == 0u); }

/* Byte e < 4 of a word, the lowest is 0. */
IE_FN u32 ie_byte(u32 x, u32 e) { return (x >> (8u * e)) & 255u; }

/* Four low bytes in one word, b0 lowest. */
IE_FN u32 ie_pack4(u32 b0, u32 b1, u32 b2, u32 b3) {
  return (((b0 & 255u) + ((b1 & 255u) << 8u)) + ((b2 & 255u) << 16u)) + ((b3 & 255u) << 24u);
}

/* The low byte, read as int8, in 32-bit two's complement. */
IE_FN u32 ie_sext8(u32 v) { return ((v & 255u) ^ 128u) - 128u; }

/* Sum of the four int8 of a word. */
IE_FN u32 ie_sum_s8x4(u32 a) {
  return ((ie_sext8(ie_byte(a, 0u)) + ie_sext8(ie_byte(a, 1u))) + ie_sext8(ie_byte(a, 2u))) + ie_sext8(ie_byte(a,
      3u));
}

/* acc + sum of uint8 a_e times int8 b_e: the model of the mixed dot instruction. */
IE_FN u32 ie_dot4_us(u32 acc, u32 a, u32 b) {
#ifdef IE_DOT4_US
  return IE_DOT4_US(acc, a, b);
#else
  return (((acc + (ie_byte(a, 0u) * ie_sext8(ie_byte(b, 0u)))) + (ie_byte(a, 1u) * ie_sext8(ie_byte(b, 1u)))) +
      (ie_byte(a, 2u) * ie_sext8(ie_byte(b, 2u)))) + (ie_byte(a, 3u) * ie_sext8(ie_byte(b, 3u)));
#endif
}

/* acc + sum of int8 a_e times int8 b_e: the model of the signed dot instruction. */
IE_FN u32 ie_dot4_ss(u32 acc, u32 a, u32 b) {
#ifdef IE_DOT4_SS
  return IE_DOT4_SS(acc, a, b);
#else
  return (((acc + (ie_sext8(ie_byte(a, 0u)) * ie_sext8(ie_byte(b, 0u)))) + (ie_sext8(ie_byte(a, 1u)) *
      ie_sext8(ie_byte(b, 1u)))) + (ie_sext8(ie_byte(a, 2u)) * ie_sext8(ie_byte(b, 2u)))) + (ie_sext8(ie_byte(a, 3u))
      * ie_sext8(ie_byte(b, 3u)));
#endif
}

/* Byte offset of a Q4_0 block; its f16 scale is in bytes 0 and 1. */
IE_FN u32 ie_q4_src_blk(u32 r, u32 b, u32 nb) { return ((r * nb) + b) * 18u; }

/* Byte offset of the nibble byte k < 16. */
IE_FN u32 ie_q4_src_qbyte(u32 r, u32 b, u32 k, u32 nb) { return ((((r * nb) + b) * 18u) + 2u) + k; }

/* Index of the nibble word w < 4 of a block. */
IE_FN u32 ie_q4_dst_word(u32 r, u32 b, u32 w, u32 nb) { return (((r * nb) + b) * 4u) + w; }

/* Index of a block's f16 scale. */
IE_FN u32 ie_q4_dst_scale(u32 r, u32 b, u32 nb) { return (r * nb) + b; }

/* Row of the nibble word i. */
IE_FN u32 ie_q4_word_row(u32 i, u32 nb) { return (i / 4u) / nb; }

/* Block, within its row, of the nibble word i. */
IE_FN u32 ie_q4_word_blk(u32 i, u32 nb) { return (i / 4u) % nb; }

/* Which of its block's four words the nibble word i is. */
IE_FN u32 ie_q4_word_w(u32 i) { return i % 4u; }

/* Which of the four words holds weight j. */
IE_FN u32 ie_q4_word_of(u32 j) { return (j & 15u) >> 2u; }

/* The 4 bits of weight j in its word: byte j mod 4, the high nibble for j >= 16. */
IE_FN u32 ie_q4_nib(u32 word, u32 j) { return (word >> ((8u * (j & 3u)) + (4u * ((j >> 4u) & 1u)))) & 15u; }

/* The 4 bits of weight j in the file's byte j mod 16. */
IE_FN u32 ie_q4_spec_nib(u32 qbyte, u32 j) { return (j < 16u) ? (qbyte & 15u) : ((qbyte & 255u) >> 4u); }

/* acc + eight nibbles 0..15 times int8: the low nibbles with alo, the high ones with ahi. */
IE_FN u32 ie_q4q8_word(u32 acc, u32 wq, u32 alo, u32 ahi) {
  return ie_dot4_us(ie_dot4_us(acc, wq & 0x0F0F0F0Fu, alo), (wq >> 4u) & 0x0F0F0F0Fu, ahi);
}

/* Sum over e < 4 of (q_e - 8)*lo_e + (q_{16+e} - 8)*hi_e. */
IE_FN u32 ie_q4q8_word_spec(u32 wq, u32 alo, u32 ahi) {
  return ((((((((ie_q4_nib(wq, 0u) - 8u) * ie_sext8(ie_byte(alo, 0u))) + ((ie_q4_nib(wq, 16u) - 8u) *
      ie_sext8(ie_byte(ahi, 0u)))) + ((ie_q4_nib(wq, 1u) - 8u) * ie_sext8(ie_byte(alo, 1u)))) + ((ie_q4_nib(wq, 17u) -
      8u) * ie_sext8(ie_byte(ahi, 1u)))) + ((ie_q4_nib(wq, 2u) - 8u) * ie_sext8(ie_byte(alo, 2u)))) + ((ie_q4_nib(wq,
      18u) - 8u) * ie_sext8(ie_byte(ahi, 2u)))) + ((ie_q4_nib(wq, 3u) - 8u) * ie_sext8(ie_byte(alo, 3u)))) +
      ((ie_q4_nib(wq, 19u) - 8u) * ie_sext8(ie_byte(ahi, 3u)));
}

/* Sum of the 32 int8 of the eight words from aw[ab]. */
IE_FN u32 ie_q8_sum(const u32 *aw, u32 ab) {
  return ((((((ie_sum_s8x4(aw[ab]) + ie_sum_s8x4(aw[ab + 1u])) + ie_sum_s8x4(aw[ab + 2u])) + ie_sum_s8x4(aw[ab + 3u]))
      + ie_sum_s8x4(aw[ab + 4u])) + ie_sum_s8x4(aw[ab + 5u])) + ie_sum_s8x4(aw[ab + 6u])) + ie_sum_s8x4(aw[ab + 7u]);
}

/* Dot product of 32 weights q - 8 with 32 int8 whose sum is asum. */
IE_FN u32 ie_q4q8_block(const u32 *qw, u32 qb, const u32 *aw, u32 ab, u32 asum) {
  return ie_q4q8_word(ie_q4q8_word(ie_q4q8_word(ie_q4q8_word(0u, qw[qb], aw[ab], aw[ab + 4u]), qw[qb + 1u], aw[ab +
      1u], aw[ab + 5u]), qw[qb + 2u], aw[ab + 2u], aw[ab + 6u]), qw[qb + 3u], aw[ab + 3u], aw[ab + 7u]) - (8u * asum);
}

/* (q_j - 8) * a_j. */
IE_FN u32 ie_q4q8_term(const u32 *qw, u32 qb, const u32 *aw, u32 ab, u32 j) {
  return (ie_q4_nib(qw[qb + ie_q4_word_of(j)], j) - 8u) * ie_sext8(ie_byte(aw[ab + (j >> 2u)], j & 3u));
}

/* Byte offset of a Q8_0 block; its f16 scale is in bytes 0 and 1. */
IE_FN u32 ie_q8_src_blk(u32 r, u32 b, u32 nb) { return ((r * nb) + b) * 34u; }

/* Byte offset of weight k < 32. */
IE_FN u32 ie_q8_src_qbyte(u32 r, u32 b, u32 k, u32 nb) { return ((((r * nb) + b) * 34u) + 2u) + k; }

/* Index of the word w < 8 of a block. */
IE_FN u32 ie_q8_dst_word(u32 r, u32 b, u32 w, u32 nb) { return (((r * nb) + b) * 8u) + w; }

/* Index of a block's f16 scale. */
IE_FN u32 ie_q8_dst_scale(u32 r, u32 b, u32 nb) { return (r * nb) + b; }

/* Row of the word i. */
IE_FN u32 ie_q8_word_row(u32 i, u32 nb) { return (i / 8u) / nb; }

/* Block, within its row, of the word i. */
IE_FN u32 ie_q8_word_blk(u32 i, u32 nb) { return (i / 8u) % nb; }

/* Which of its block's eight words the word i is. */
IE_FN u32 ie_q8_word_w(u32 i) { return i % 8u; }

/* Dot product of 32 int8 weights with 32 int8 activations. */
IE_FN u32 ie_q8q8_block(const u32 *qw, u32 qb, const u32 *aw, u32 ab) {
  return ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(0u, qw[qb], aw[ab]),
      qw[qb + 1u], aw[ab + 1u]), qw[qb + 2u], aw[ab + 2u]), qw[qb + 3u], aw[ab + 3u]), qw[qb + 4u], aw[ab + 4u]),
      qw[qb + 5u], aw[ab + 5u]), qw[qb + 6u], aw[ab + 6u]), qw[qb + 7u], aw[ab + 7u]);
}

/* q_j * a_j. */
IE_FN u32 ie_q8q8_term(const u32 *qw, u32 qb, const u32 *aw, u32 ab, u32 j) {
  const u32 t0 = j >> 2u;
  const u32 t1 = j & 3u;
  return ie_sext8(ie_byte(qw[qb + t0], t1)) * ie_sext8(ie_byte(aw[ab + t0], t1));
}

/* 16-bit index of a block's scale, with its minimum in the high byte. */
IE_FN u32 ie_q4k_sm(u32 r, u32 b, u32 nb) { return (r * nb) + b; }

/* 16-bit index of the super-block's f16 d; dmin follows it. */
IE_FN u32 ie_q4k_dd(u32 rows, u32 r, u32 b, u32 nb) { return (rows * nb) + (((r * (nb / 8u)) + (b / 8u)) * 2u); }

/* Length of the table in 16-bit entries. */
IE_FN u32 ie_q4k_qs_n(u32 rows, u32 nb) { return (rows * nb) + ((rows * (nb / 8u)) * 2u); }

/* Byte offset of the super-block that holds block b. */
IE_FN u32 ie_q4k_src_blk(u32 r, u32 b, u32 nb) { return ((r * nb) + (8u * (b / 8u))) * 18u; }

/* Byte offset of the nibble of weight j; an even block and the odd one after it share bytes. */
IE_FN u32 ie_q4k_src_qbyte(u32 r, u32 b, u32 j, u32 nb) {
  return ((ie_q4k_src_blk(r, b, nb) + 16u) + (32u * ((b % 8u) / 2u))) + j;
}

/* Block b's half of the file's byte: even blocks are low. */
IE_FN u32 ie_q4k_src_nib(u32 qbyte, u32 b) { return ((b % 2u) == 1u) ? ((qbyte & 255u) >> 4u) : (qbyte & 15u); }

/* The kernel's byte j < 16 from the file's bytes j and j + 16. */
IE_FN u32 ie_q4k_pack(u32 lo, u32 hi, u32 b) { return ie_q4k_src_nib(lo, b) | (ie_q4k_src_nib(hi, b) << 4u); }

/* The four low nibbles of a word, one per byte. */
IE_FN u32 ie_q4k_lo(u32 wq) { return wq & 0x0F0F0F0Fu; }

/* The four high nibbles of a word, one per byte. */
IE_FN u32 ie_q4k_hi(u32 wq) { return (wq >> 4u) & 0x0F0F0F0Fu; }

/* Dot product of 32 weights 0..15 with 32 int8. */
IE_FN u32 ie_q4k_dot(const u32 *qw, u32 qb, const u32 *aw, u32 ab) {
  return ie_q4q8_word(ie_q4q8_word(ie_q4q8_word(ie_q4q8_word(0u, qw[qb], aw[ab], aw[ab + 4u]), qw[qb + 1u], aw[ab +
      1u], aw[ab + 5u]), qw[qb + 2u], aw[ab + 2u], aw[ab + 6u]), qw[qb + 3u], aw[ab + 3u], aw[ab + 7u]);
}

/* The same from words split before: u[2k] and u[2k+1] are the low and high nibbles of word k. */
IE_FN u32 ie_q4k_dot_u(const u32 *u, u32 ub, const u32 *aw, u32 ab) {
  return ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(0u, u[ub], aw[ab]),
      u[ub + 1u], aw[ab + 4u]), u[ub + 2u], aw[ab + 1u]), u[ub + 3u], aw[ab + 5u]), u[ub + 4u], aw[ab + 2u]), u[ub +
      5u], aw[ab + 6u]), u[ub + 6u], aw[ab + 3u]), u[ub + 7u], aw[ab + 7u]);
}

/* q_j * a_j. */
IE_FN u32 ie_q4k_term(const u32 *qw, u32 qb, const u32 *aw, u32 ab, u32 j) {
  return ie_q4_nib(qw[qb + ie_q4_word_of(j)], j) * ie_sext8(ie_byte(aw[ab + (j >> 2u)], j & 3u));
}

/* Index of the high-bit word of half h of a block, behind all nibble words. */
IE_FN u32 ie_q6k_hw(u32 rows, u32 r, u32 b, u32 h, u32 nb) {
  return (((rows * nb) * 4u) + (((r * nb) + b) * 2u)) + h;
}

/* Number of nibble and high-bit words. */
IE_FN u32 ie_q6k_qw_n(u32 rows, u32 nb) { return (rows * nb) * 6u; }

/* 16-bit index of a block's two int8 scales, half 0 in the low byte. */
IE_FN u32 ie_q6k_sc(u32 r, u32 b, u32 nb) { return (r * nb) + b; }

/* 16-bit index of the super-block's f16 d. */
IE_FN u32 ie_q6k_d(u32 rows, u32 r, u32 b, u32 nb) { return ((rows * nb) + (r * (nb / 8u))) + (b / 8u); }

/* Length of the table in 16-bit entries. */
IE_FN u32 ie_q6k_qs_n(u32 rows, u32 nb) { return (rows * nb) + (rows * (nb / 8u)); }

/* Byte offset of the super-block that holds block b. */
IE_FN u32 ie_q6k_src_blk(u32 r, u32 b, u32 nb) { return ((r * (nb / 8u)) + (b / 8u)) * 210u; }

/* Byte offset of the low nibble of weight j. */
IE_FN u32 ie_q6k_src_ql(u32 r, u32 b, u32 j, u32 nb) {
  const u32 t0 = b % 8u;
  return ((ie_q6k_src_blk(r, b, nb) + (64u * (t0 / 4u))) + (32u * (t0 % 2u))) + j;
}

/* Byte offset of the high bits of weight j. */
IE_FN u32 ie_q6k_src_qh(u32 r, u32 b, u32 j, u32 nb) {
  return ((ie_q6k_src_blk(r, b, nb) + 128u) + (32u * ((b % 8u) / 4u))) + j;
}

/* Byte offset of the int8 scale of half h. */
IE_FN u32 ie_q6k_src_sc(u32 r, u32 b, u32 h, u32 nb) {
  return ((ie_q6k_src_blk(r, b, nb) + 192u) + (2u * (b % 8u))) + h;
}

/* Byte offset of the super-block's f16 d. */
IE_FN u32 ie_q6k_src_d(u32 r, u32 b, u32 nb) { return ie_q6k_src_blk(r, b, nb) + 208u; }

/* The 6 bits of a weight of block b from the file's two bytes. */
IE_FN u32 ie_q6k_src_q(u32 ql, u32 qh, u32 b) {
  return ((((b % 8u) % 4u) < 2u) ? (ql & 15u) : ((ql & 255u) >> 4u)) | ((((qh & 255u) >> (2u * ((b % 8u) % 4u))) & 3u)
      << 4u);
}

/* The high two bits of weight e < 16 of a half, at their place in the half's word. */
IE_FN u32 ie_q6k_h2(u32 q, u32 e) { return ((q >> 4u) & 3u) << ((8u * (e % 4u)) + (2u * (e / 4u))); }

/* The high-bit word of a half from its 16 weights. */
IE_FN u32 ie_q6k_hpack(u32 q0, u32 q1, u32 q2, u32 q3, u32 q4, u32 q5, u32 q6, u32 q7, u32 q8, u32 q9, u32 q10, u32
      q11, u32 q12, u32 q13, u32 q14, u32 q15) {
  return ((((((((((((((ie_q6k_h2(q0, 0u) | ie_q6k_h2(q1, 1u)) | ie_q6k_h2(q2, 2u)) | ie_q6k_h2(q3, 3u)) |
      ie_q6k_h2(q4, 4u)) | ie_q6k_h2(q5, 5u)) | ie_q6k_h2(q6, 6u)) | ie_q6k_h2(q7, 7u)) | ie_q6k_h2(q8, 8u)) |
      ie_q6k_h2(q9, 9u)) | ie_q6k_h2(q10, 10u)) | ie_q6k_h2(q11, 11u)) | ie_q6k_h2(q12, 12u)) | ie_q6k_h2(q13, 13u)) |
      ie_q6k_h2(q14, 14u)) | ie_q6k_h2(q15, 15u);
}

/* The 6 bits of weight j from its nibble word and its half's high-bit word. */
IE_FN u32 ie_q6k_q(u32 nibword, u32 hword, u32 j) {
  return ie_q4_nib(nibword, j) | (((hword >> ((8u * (j % 4u)) + (2u * ((j % 16u) / 4u)))) & 3u) << 4u);
}

/* The four weights 16h+4k .. 16h+4k+3 in 0..63, one per byte. */
IE_FN u32 ie_q6k_vw(u32 nibword, u32 hword, u32 h, u32 k) {
  return ((h == 0u) ? ie_q4k_lo(nibword) : ie_q4k_hi(nibword)) | (((hword >> (2u * k)) & 0x03030303u) << 4u);
}

/* Sum of the 16 int8 of half h. */
IE_FN u32 ie_q8_hsum(const u32 *aw, u32 ab, u32 h) {
  const u32 t0 = ab + (4u * h);
  return ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(0u, aw[t0], 0x01010101u), aw[t0 + 1u], 0x01010101u), aw[t0 + 2u],
      0x01010101u), aw[t0 + 3u], 0x01010101u);
}

/* Dot product of half h, weights q - 32, with 16 int8 whose sum is hs; hw[hb] is this half's word. */
IE_FN u32 ie_q6k_dot(const u32 *qw, u32 qb, const u32 *hw, u32 hb, const u32 *aw, u32 ab, u32 h, u32 hs) {
  const u32 t0 = hw[hb];
  const u32 t1 = ab + (4u * h);
  return ie_dot4_us(ie_dot4_us(ie_dot4_us(ie_dot4_us(0u, ie_q6k_vw(qw[qb], t0, h, 0u), aw[t1]), ie_q6k_vw(qw[qb + 1u],
      t0, h, 1u), aw[t1 + 1u]), ie_q6k_vw(qw[qb + 2u], t0, h, 2u), aw[t1 + 2u]), ie_q6k_vw(qw[qb + 3u], t0, h, 3u),
      aw[t1 + 3u]) - (32u * hs);
}

/* The same four weights as q - 32, one int8 per byte; no borrow leaves a byte. */
IE_FN u32 ie_q6k_sw(u32 nibword, u32 hword, u32 h, u32 k) {
  return ((ie_q6k_vw(nibword, hword, h, k) | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

/* Dot product of half h by signed words; hw[hb] is this half's word. */
IE_FN u32 ie_q6k_dots(const u32 *qw, u32 qb, const u32 *hw, u32 hb, const u32 *aw, u32 ab, u32 h) {
  const u32 t0 = hw[hb];
  const u32 t1 = ab + (4u * h);
  return ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(0u, ie_q6k_sw(qw[qb], t0, h, 0u), aw[t1]), ie_q6k_sw(qw[qb + 1u],
      t0, h, 1u), aw[t1 + 1u]), ie_q6k_sw(qw[qb + 2u], t0, h, 2u), aw[t1 + 2u]), ie_q6k_sw(qw[qb + 3u], t0, h, 3u),
      aw[t1 + 3u]);
}

/* The same from signed words made before. */
IE_FN u32 ie_q6k_dots_s(const u32 *sw, u32 sb, const u32 *aw, u32 ab, u32 h) {
  const u32 t0 = ab + (4u * h);
  return ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(ie_dot4_ss(0u, sw[sb], aw[t0]), sw[sb + 1u], aw[t0 + 1u]), sw[sb + 2u],
      aw[t0 + 2u]), sw[sb + 3u], aw[t0 + 3u]);
}

/* (q_j - 32) * a_j; hw[hb] is the word of weight j's half. */
IE_FN u32 ie_q6k_term(const u32 *qw, u32 qb, const u32 *hw, u32 hb, const u32 *aw, u32 ab, u32 j) {
  return (ie_q6k_q(qw[qb + ie_q4_word_of(j)], hw[hb], j) - 32u) * ie_sext8(ie_byte(aw[ab + (j >> 2u)], j & 3u));
}

/* Workgroups of a matrix-vector product, 8 rows each. */
IE_FN u32 ie_gemv_ngroups(u32 rows) { return (rows + 7u) >> 3u; }

/* Row of wave v < 8 in workgroup g. */
IE_FN u32 ie_gemv_row(u32 g, u32 v) { return (8u * g) + v; }

/* Block that lane l < 32 takes in step t. */
IE_FN u32 ie_lane_blk(u32 l, u32 t) { return l + (32u * t); }

/* Lane that takes block b. */
IE_FN u32 ie_blk_lane(u32 b) { return b & 31u; }

/* Step in which block b is taken. */
IE_FN u32 ie_blk_step(u32 b) { return b >> 5u; }

/* Sum over the 32 lanes of a wave, in lane 0, pairwise with offsets 16, 8, 4, 2, 1. */
IE_FN u32 ie_wave_sum(const u32 *x) {
  return ((((x[0u] + x[16u]) + (x[8u] + x[24u])) + ((x[4u] + x[20u]) + (x[12u] + x[28u]))) + (((x[2u] + x[18u]) +
      (x[10u] + x[26u])) + ((x[6u] + x[22u]) + (x[14u] + x[30u])))) + ((((x[1u] + x[17u]) + (x[9u] + x[25u])) +
      ((x[5u] + x[21u]) + (x[13u] + x[29u]))) + (((x[3u] + x[19u]) + (x[11u] + x[27u])) + ((x[7u] + x[23u]) + (x[15u]
      + x[31u]))));
}

#endif
