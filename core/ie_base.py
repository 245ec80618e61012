"""The integer core: sizes, bytes and bits, and the two 32-weight block formats Q4_0 and Q8_0.

Rows r of a matrix have nb blocks of 32 weights, so cols = 32*nb. Weight j of a block is j < 32, byte e of a word e < 4.
The sizes that `ie_*_sizes_ok` accepts keep every byte address of a matrix below 2^32.
"""

from __future__ import annotations

from graphrun.core.u32 import Fuel, Mem, sel, sum_while, word


@word
def ie_wave() -> int:
    """Lanes of a wave."""
    return 32


@word
def ie_rows_per_wg() -> int:
    """Rows that a workgroup of a matrix-vector product owns, one per wave."""
    return 8


@word
def ie_align_mask() -> int:
    """Offsets in the arena are multiples of this plus one."""
    return 255


@word
def ie_sizes_ok(rows: int, nb: int) -> bool:
    """Q4_0 sizes without address overflow: rows < 2^18, nb < 2^9."""
    return (rows < 1 << 18) & (nb < 1 << 9)


@word
def ie_q8_sizes_ok(rows: int, nb: int) -> bool:
    """Q8_0 sizes without address overflow: rows < 2^18, nb < 2^11, rows*nb < 2^26."""
    return (rows < 1 << 18) & (nb < 1 << 11) & (rows * nb < 1 << 26)


@word
def ie_q4k_sizes_ok(rows: int, nb: int) -> bool:
    """Q4_K and Q6_K sizes: as Q8_0, and whole super-blocks of 8 blocks."""
    return ie_q8_sizes_ok(rows, nb) & (nb % 8 == 0)


@word
def ie_byte(x: int, e: int) -> int:
    """Byte e < 4 of a word, the lowest is 0."""
    return (x >> 8 * e) & 255


@word
def ie_pack4(b0: int, b1: int, b2: int, b3: int) -> int:
    """Four low bytes in one word, b0 lowest."""
    return (b0 & 255) + ((b1 & 255) << 8) + ((b2 & 255) << 16) + ((b3 & 255) << 24)


@word
def ie_sext8(v: int) -> int:
    """The low byte, read as int8, in 32-bit two's complement."""
    return ((v & 255) ^ 128) - 128


@word
def ie_sum_s8x4(a: int) -> int:
    """Sum of the four int8 of a word."""
    total = 0
    for e in range(4):
        total = total + ie_sext8(ie_byte(a, e))
    return total


@word
def ie_dot4_us(acc: int, a: int, b: int) -> int:
    """acc + sum of uint8 a_e times int8 b_e: the model of the mixed dot instruction."""
    for e in range(4):
        acc = acc + ie_byte(a, e) * ie_sext8(ie_byte(b, e))
    return acc


@word
def ie_dot4_ss(acc: int, a: int, b: int) -> int:
    """acc + sum of int8 a_e times int8 b_e: the model of the signed dot instruction."""
    for e in range(4):
        acc = acc + ie_sext8(ie_byte(a, e)) * ie_sext8(ie_byte(b, e))
    return acc


# Q4_0: 18 bytes in a file (f16 scale, then 16 bytes; byte k holds weights k and k+16); 4 words of nibbles in a kernel.


@word
def ie_q4_src_blk(r: int, b: int, nb: int) -> int:
    """Byte offset of a Q4_0 block; its f16 scale is in bytes 0 and 1."""
    return (r * nb + b) * 18


@word
def ie_q4_src_qbyte(r: int, b: int, k: int, nb: int) -> int:
    """Byte offset of the nibble byte k < 16."""
    return (r * nb + b) * 18 + 2 + k


@word
def ie_q4_dst_word(r: int, b: int, w: int, nb: int) -> int:
    """Index of the nibble word w < 4 of a block."""
    return (r * nb + b) * 4 + w


@word
def ie_q4_dst_scale(r: int, b: int, nb: int) -> int:
    """Index of a block's f16 scale."""
    return r * nb + b


@word
def ie_q4_word_row(i: int, nb: int) -> int:
    """Row of the nibble word i."""
    return i // 4 // nb


@word
def ie_q4_word_blk(i: int, nb: int) -> int:
    """Block, within its row, of the nibble word i."""
    return i // 4 % nb


@word
def ie_q4_word_w(i: int) -> int:
    """Which of its block's four words the nibble word i is."""
    return i % 4


@word
def ie_q4_word_of(j: int) -> int:
    """Which of the four words holds weight j."""
    return (j & 15) >> 2


@word
def ie_q4_nib(word: int, j: int) -> int:
    """The 4 bits of weight j in its word: byte j mod 4, the high nibble for j >= 16."""
    return (word >> (8 * (j & 3) + 4 * ((j >> 4) & 1))) & 15


@word
def ie_q4_spec_nib(qbyte: int, j: int) -> int:
    """The 4 bits of weight j in the file's byte j mod 16."""
    return sel(j < 16, qbyte & 15, (qbyte & 255) >> 4)


@word
def ie_q4q8_word(acc: int, wq: int, alo: int, ahi: int) -> int:
    """acc + eight nibbles 0..15 times int8: the low nibbles with alo, the high ones with ahi."""
    return ie_dot4_us(ie_dot4_us(acc, wq & 0x0F0F0F0F, alo), (wq >> 4) & 0x0F0F0F0F, ahi)


@word
def ie_q4q8_word_spec(wq: int, alo: int, ahi: int) -> int:
    """Sum over e < 4 of (q_e - 8)*lo_e + (q_{16+e} - 8)*hi_e."""
    total = 0
    for e in range(4):
        total = total + (ie_q4_nib(wq, e) - 8) * ie_sext8(ie_byte(alo, e))
        total = total + (ie_q4_nib(wq, 16 + e) - 8) * ie_sext8(ie_byte(ahi, e))
    return total


@word
def ie_q8_sum(aw: Mem, ab: int) -> int:
    """Sum of the 32 int8 of the eight words from aw[ab]."""
    total = 0
    for w in range(8):
        total = total + ie_sum_s8x4(aw[ab + w])
    return total


@word
def ie_q4q8_block(qw: Mem, qb: int, aw: Mem, ab: int, asum: int) -> int:
    """Dot product of 32 weights q - 8 with 32 int8 whose sum is asum."""
    acc = 0
    for w in range(4):
        acc = ie_q4q8_word(acc, qw[qb + w], aw[ab + w], aw[ab + 4 + w])
    return acc - 8 * asum


@word
def ie_q4q8_term(qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """(q_j - 8) * a_j."""
    return (ie_q4_nib(qw[qb + ie_q4_word_of(j)], j) - 8) * ie_sext8(ie_byte(aw[ab + (j >> 2)], j & 3))


@word
def ie_q4q8_spec(n: Fuel, qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """Sum of the terms j .. 31, at most n of them."""
    return sum_while(n, j, 32, 1, lambda at: ie_q4q8_term(qw, qb, aw, ab, at))


# Q8_0: 34 bytes in a file (f16 scale, then 32 int8); 8 words in a kernel, word w packs weights 4w .. 4w+3.


@word
def ie_q8_src_blk(r: int, b: int, nb: int) -> int:
    """Byte offset of a Q8_0 block; its f16 scale is in bytes 0 and 1."""
    return (r * nb + b) * 34


@word
def ie_q8_src_qbyte(r: int, b: int, k: int, nb: int) -> int:
    """Byte offset of weight k < 32."""
    return (r * nb + b) * 34 + 2 + k


@word
def ie_q8_dst_word(r: int, b: int, w: int, nb: int) -> int:
    """Index of the word w < 8 of a block."""
    return (r * nb + b) * 8 + w


@word
def ie_q8_dst_scale(r: int, b: int, nb: int) -> int:
    """Index of a block's f16 scale."""
    return r * nb + b


@word
def ie_q8_word_row(i: int, nb: int) -> int:
    """Row of the word i."""
    return i // 8 // nb


@word
def ie_q8_word_blk(i: int, nb: int) -> int:
    """Block, within its row, of the word i."""
    return i // 8 % nb


@word
def ie_q8_word_w(i: int) -> int:
    """Which of its block's eight words the word i is."""
    return i % 8


@word
def ie_q8q8_block(qw: Mem, qb: int, aw: Mem, ab: int) -> int:
    """Dot product of 32 int8 weights with 32 int8 activations."""
    acc = 0
    for w in range(8):
        acc = ie_dot4_ss(acc, qw[qb + w], aw[ab + w])
    return acc


@word
def ie_q8q8_term(qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """q_j * a_j."""
    return ie_sext8(ie_byte(qw[qb + (j >> 2)], j & 3)) * ie_sext8(ie_byte(aw[ab + (j >> 2)], j & 3))


@word
def ie_q8q8_spec(n: Fuel, qw: Mem, qb: int, aw: Mem, ab: int, j: int) -> int:
    """Sum of the terms j .. 31, at most n of them."""
    return sum_while(n, j, 32, 1, lambda at: ie_q8q8_term(qw, qb, aw, ab, at))
