// Weight matrices on the processor: panels of 16 rows, whose blocks stand in the order in which they are added.
//
// Lane l of 32 adds blocks l, l + 32, ..., and then the lanes are added by halves: offsets 16, 8, 4, 2, 1. Taking
// lanes in bit-reversed order makes this tree a stack: after a lane, `merges` partial sums are taken from the stack
// and added (left operand from the stack), and the result is put on it. Rows are the elements of vectors, so nothing
// is ever added across a vector. A panel holds, for nb blocks of 32 columns:
//
//   q4_k, q6_k: for every 8 blocks f16 d[16] (q4_k: and f16 dmin[16])
//   then each block in the order above: its words [4 or 8][16 rows], and its scales:
//     q4_0, q8_0: f16 d[16]             q4_1: f16 d[16], f16 m[16]          q4_k: u8 scale[16], u8 minimum[16]
//     q6_k: words of high bits [2][16] come first; then i8 scale[2][16]      i8_a: f32 s0[16], s1[16], m0[16], m1[16]
//   f32: columns in the order above, with a column for a block: f32[cols][16 rows]
#pragma once
#include "worker.h"

enum { PANEL = 16, LANES = 32 };

INLINE uint32_t word_bytes(uint32_t layout) { // of a block
  return layout == GR_F32 ? 64 : layout == GR_Q8_0 || layout == GR_I8_A ? 512 : layout == GR_Q6_K ? 384 : 256;
}
INLINE uint32_t block_bytes(uint32_t layout) {
  uint32_t scales = layout == GR_F32 ? 0 : layout == GR_I8_A ? 256 : layout == GR_Q4_1 ? 64 : 32;
  return word_bytes(layout) + scales;
}
INLINE uint32_t super_bytes(uint32_t layout) { // for every 8 blocks
  return layout == GR_Q4_K ? 64 : layout == GR_Q6_K ? 32 : 0;
}
INLINE uint32_t blocks_of(const gr_matrix *m) { return m->layout == GR_F32 ? m->cols : m->cols / 32; }

INLINE uint32_t reversed(uint32_t place) { // its five bits
  uint32_t lane = 0;
  for (int bit = 0; bit < 5; bit++) lane |= (place >> bit & 1) << (4 - bit);
  return lane;
}

// Stride and lane order of a matrix whose layout, rows and cols are set.
static void gr_plan(gr_matrix *m) {
  const uint32_t blocks = blocks_of(m);
  m->lanes = 0;
  m->stride = (super_bytes(m->layout) * (blocks / 8) + (uint64_t)block_bytes(m->layout) * blocks + 63) & ~(uint64_t)63;
  for (uint32_t place = 0; place < LANES; place++) {
    uint32_t merges = 0;
    if (reversed(place) >= blocks) continue;
    for (uint32_t size = 2; size <= LANES; size *= 2) { // subtrees that end with this lane
      const uint32_t begin = place / size * size;
      uint32_t later = 0, right = 0;
      for (uint32_t p = begin; p < begin + size; p++) {
        later |= p > place && reversed(p) < blocks;
        right |= p >= begin + size / 2 && reversed(p) < blocks;
      }
      if (later) break;
      merges += right;
    }
    m->lane[m->lanes] = (uint8_t)reversed(place);
    m->merges[m->lanes++] = (uint8_t)merges;
  }
}
