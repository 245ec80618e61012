// Quantised rows: 32 nb int8, nb f32 d, nb i32 sums.
#pragma once
#include "gr.h"

// Block `b` of 32 channels, one a lane, as int8 with their scale and sum; a row is 32 nb int8, nb f32 d, nb i32 sums.
INLINE void quantise_block(float x, uint8_t GLOBAL *row, uint32_t nb, uint32_t b) {
  uint32_t top = bits_of(x) & 0x7fffffff; // patterns of magnitudes are ordered like the magnitudes, nan above all
  for (int mask = 16; mask; mask /= 2) {
    const uint32_t other = lane_xor(top, mask);
    top = other > top ? other : top;
  }
  const float d = float_of(top) / 127.0f;
  int32_t q = 0;
  if (d != 0) {
    const float scaled = x / d;
    q = (int32_t)scaled;
    const float rest = scaled - (float)q;
    q += (int32_t)(rest + rest);
  }
  int32_t sum = q;
  for (int mask = 16; mask; mask /= 2) sum += (int32_t)lane_xor((uint32_t)sum, mask);
  row[32 * (size_t)b + lane_id()] = (uint8_t)q;
  if (lane_id() == 0) {
    ((float GLOBAL *)(row + 32 * (size_t)nb))[b] = d;
    ((int32_t GLOBAL *)(row + 36 * (size_t)nb))[b] = sum;
  }
}
