// Norms and other work on rows of channels.
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

// Every workgroup of a row sums all its squares, and writes 256 channels.
INLINE void rms_norm(const gr_rms_norm GR_CONSTANT *a, gr_work w) {
  const uint32_t pieces = ceil_div(a->N, THREADS), row = w.group / pieces, i = w.group % pieces * THREADS + thread_id();
  const uint32_t r = row / a->cols, c = row % a->cols;
  const float GLOBAL *x = ROW(ROW(a->x, a->x_row, r), a->x_col, c);
  float sum = 0;
  for (uint32_t j = thread_id(); j < a->N; j += THREADS) sum = sum + x[j] * x[j];
  const float mean = group_sum(sum) / (float)a->N;
  const float scale = 1.0f / __builtin_sqrtf(mean + (float)a->eps);
  if (i >= a->N) return;
  const float y = x[i] * scale * a->w[i];
  if (a->y) ROW(ROW(a->y, a->y_row, r), a->y_col, c)[i] = y;
  if (a->quantize_out) quantise_block(y, ROW(a->quantize_out, a->quantize_out_row, r), a->N / 32, i / 32);
}
