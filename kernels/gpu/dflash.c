// What a block drafter needs besides attention: dynamic convolution, and scores of candidates.
#include "rows.h"
#include "weights.h"

INLINE void dynamic_conv(const gr_dynamic_conv GR_CONSTANT *a, gr_work w) {
  const uint32_t N = a->N, pieces = ceil_div(N, THREADS), t = w.group / pieces, c = w.group % pieces * THREADS + thread_id();
  if (t >= a->T || c >= N) return;
  const uint32_t group = (uint32_t)a->group, groups = N / group, first = (uint32_t)a->side * a->K;
  const float GLOBAL *base = a->base + (size_t)first * N + c;
  const float GLOBAL *own = ROW(a->dyn, a->dyn_row, t) + (size_t)first * groups + c / group;
  float sum = (base[0] + own[0]) * ROW(a->x, a->x_row, t)[c];
  for (uint32_t j = 1; j < a->K && j <= t; j++)
    sum = sum + (base[(size_t)j * N] + own[j * groups]) * ROW(a->x, a->x_row, t - j)[c];
  if (a->y) ROW(a->y, a->y_row, t)[c] = sum;
  if (a->quantize_out) quantise_block(sum, ROW(a->quantize_out, a->quantize_out_row, t), N / 32, c / 32);
}

// A workgroup for each candidate p of the row before; a wave scores candidates s, s + 8, ... after it.
INLINE void lattice(const gr_lattice GR_CONSTANT *a, gr_work w) {
  const uint32_t k = a->k, N = a->N, t = w.group / k, p = w.group % k;
  if (t >= a->T) return;
  const float GLOBAL *top = ROW(a->top, a->top_row, t), *gate = ROW(a->gate, a->gate_row, t);
  float GLOBAL *scores = ROW(ROW(a->scores, a->scores_row, t), a->scores_col, p);
  const int32_t GLOBAL *ids = ROW(a->ids, a->ids_row, t);
  const uint32_t before = (uint32_t)(t > 1 ? ROW(a->ids, a->ids_row, t - 1)[p] : a->tokens[0]);
  for (uint32_t s = wave_id(); s < k; s += WAVES) {
    float sum = 0;
    for (uint32_t c = lane_id(); t && c < N; c += LANES) {
      const float first = matrix_value(a->before, before, c) * gate[c];
      sum = sum + first * matrix_value(a->after, (uint32_t)ids[s], c);
    }
    sum = wave_sum(sum);
    if (lane_id() == 0) scores[s] = t ? sum + top[s] : top[s];
  }
}
