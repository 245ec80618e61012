// Products of weights as f32 and f32 activations, products and sums rounded apart: a wave a row, 8 rows a workgroup.
//
// Lane l of 32 adds columns l, l + 32, ... and then the lanes are added by halves.
#include "weights.h"

enum { COLUMNS = 8 }; // of a lane, in flight

INLINE float one_dense(const gr_gemv_f32 GR_CONSTANT *a, uint32_t row) {
  const float GLOBAL *weight = (const float GLOBAL *)a->w->data + (size_t)row * a->w->cols, *x = a->x;
  const uint32_t N = a->w->cols;
  float sum = 0;
  uint32_t c = lane_id();
  for (; c + LANES * (COLUMNS - 1) < N; c += LANES * COLUMNS) {
    float some[COLUMNS], y[COLUMNS];
    for (uint32_t i = 0; i < COLUMNS; i++) some[i] = weight[c + LANES * i], y[i] = x[c + LANES * i];
    for (uint32_t i = 0; i < COLUMNS; i++) sum = sum + some[i] * y[i];
  }
  for (; c < N; c += LANES) sum = sum + weight[c] * x[c];
  return sum;
}

INLINE void finish_dense(const gr_gemv_f32 GR_CONSTANT *a, uint32_t row, uint32_t t, float sum) {
  finish((const gr_gemv GR_CONSTANT *)a, row, t, sum); // structs differ in the type of x
}

// Tokens t0 .. end - 1, at most 16, in fours, whose last are filled with the last one.
INLINE void some_dense(const gr_gemv_f32 GR_CONSTANT *a, uint32_t row, uint32_t t0, uint32_t end, int is_f32) {
  const float GLOBAL *weight = (const float GLOBAL *)a->w->data + (size_t)row * a->w->cols;
  const uint32_t N = a->w->cols;
  float sum[16];
  for (int t = 0; t < 16; t++) sum[t] = 0;
  for (uint32_t c = lane_id(); c < N; c += LANES) {
    const float one = is_f32 ? weight[c] : matrix_value(a->w, row, c);
#pragma unroll
    for (uint32_t t = 0; t < 16; t += 4) {
      if (t0 + t >= end) continue;
      float x[4];
      for (uint32_t i = 0; i < 4; i++) x[i] = ROW(a->x, a->x_row, t0 + t + i < end ? t0 + t + i : end - 1)[c];
      for (uint32_t i = 0; i < 4; i++) sum[t + i] = sum[t + i] + one * x[i];
    }
  }
  float own = 0; // lane i has the sum of token t0 + i
#pragma unroll
  for (uint32_t t = 0; t < 16; t++) {
    if (t0 + t >= end) continue;
    const float total = wave_sum(sum[t]);
    own = lane_id() == t ? total : own;
  }
  if (t0 + lane_id() < end && lane_id() < 16) finish_dense(a, row, t0 + lane_id(), own);
}

// A matrix of any layout and any number of tokens; one token and f32 is the common case.
INLINE void gemv_f32(const gr_gemv_f32 GR_CONSTANT *a, gr_work w) {
  const uint32_t row = WAVES * w.group + wave_id(), T = a->T;
  if (row >= a->w->rows) return;
  const int is_f32 = a->w->layout == GR_F32;
  if (is_f32 && T == 1) {
    const float sum = wave_sum(one_dense(a, row));
    if (lane_id() == 0) finish_dense(a, row, 0, sum);
    return;
  }
  for (uint32_t t = 0; t < T; t += 16) {
    const uint32_t end = t + 16 < T ? t + 16 : T;
    some_dense(a, row, t, end, is_f32);
  }
}
INLINE void gemv_f32_t(const gr_gemv_f32 GR_CONSTANT *a, gr_work w) {
  const uint32_t row = WAVES * w.group + wave_id();
  if (row < a->w->rows) some_dense(a, row, 0, a->T, 1);
}
// 16 tokens x 8 rows a workgroup.
INLINE void gemm_f32(const gr_gemv_f32 GR_CONSTANT *a, gr_work w) {
  const uint32_t across = ceil_div(a->w->rows, WAVES), row = WAVES * (w.group % across) + wave_id();
  const uint32_t t = w.group / across * 16, end = t + 16 < a->T ? t + 16 : a->T;
  if (row < a->w->rows && t < a->T) some_dense(a, row, t, end, 1);
}
