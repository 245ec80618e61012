// Norms, gates, sums and other work on rows of channels: a workgroup makes 256 channels of a row.
#include "rows.h"

// Which channel of which row a thread makes; `row` is r * cols + c.
typedef struct {
  uint32_t row, r, c, i;
} cell;
INLINE cell cell_of(gr_work w, uint32_t cols, uint32_t N) {
  const uint32_t pieces = ceil_div(N, THREADS), row = w.group / pieces;
  return (cell){row, row / cols, row % cols, w.group % pieces * THREADS + thread_id()};
}
#define GRID(t) ROW(ROW(a->t, a->t##_row, k.r), a->t##_col, k.c)
#define LINE(t) ROW(a->t, a->t##_row, k.row)

// Every workgroup of a row sums all its squares.
INLINE void rms_norm(const gr_rms_norm GR_CONSTANT *a, gr_work w) {
  const cell k = cell_of(w, a->cols, a->N);
  if (k.row >= a->rows * a->cols) return;
  const float GLOBAL *x = GRID(x);
  float sum = 0;
  for (uint32_t j = thread_id(); j < a->N; j += THREADS) sum = sum + x[j] * x[j];
  const float mean = group_sum(sum) / (float)a->N;
  const float scale = 1.0f / __builtin_sqrtf(mean + (float)a->eps);
  if (k.i >= a->N) return;
  const float y = x[k.i] * scale * a->w[k.i];
  if (a->y) GRID(y)[k.i] = y;
  if (a->quantize_out) quantise_block(y, LINE(quantize_out), a->N / 32, k.i / 32);
}

#define PAIRWISE(name, x, y, z, result)                                                                                \
  INLINE void name(const gr_##name GR_CONSTANT *a, gr_work w) {                                                        \
    const cell k = cell_of(w, a->cols, a->N);                                                                          \
    if (k.row >= a->rows * a->cols || k.i >= a->N) return;                                                             \
    const float p = GRID(x)[k.i], q = GRID(y)[k.i];                                                                    \
    GRID(z)[k.i] = result;                                                                                             \
  }
PAIRWISE(add, x, y, z, p + q)
PAIRWISE(mul, x, y, z, p *q)

INLINE void sigmoid_gate(const gr_sigmoid_gate GR_CONSTANT *a, gr_work w) {
  const cell k = cell_of(w, a->cols, a->N);
  if (k.row >= a->rows * a->cols || k.i >= a->N) return;
  const float y = gated_f(GRID(x)[k.i], GRID(gate)[k.i]);
  if (a->y) GRID(y)[k.i] = y;
  if (a->quantize_out) quantise_block(y, LINE(quantize_out), a->N / 32, k.i / 32);
}

INLINE void swiglu(const gr_swiglu GR_CONSTANT *a, gr_work w) {
  const cell k = cell_of(w, 1, a->N);
  if (k.row >= a->T || k.i >= a->N) return;
  const float gate = LINE(gate)[k.i], y = gated_f(gate, gate) * LINE(up)[k.i];
  if (a->y) LINE(y)[k.i] = y;
  if (a->quantize_out) quantise_block(y, LINE(quantize_out), a->N / 32, k.i / 32);
}

INLINE void concat(const gr_concat GR_CONSTANT *a, gr_work w) {
  const uint32_t n = a->N + a->M;
  const cell k = cell_of(w, 1, n);
  if (k.row >= a->T || k.i >= n) return;
  const float y = k.i < a->N ? LINE(a)[k.i] : LINE(b)[k.i - a->N];
  if (a->y) LINE(y)[k.i] = y;
  if (a->quantize_out) quantise_block(y, LINE(quantize_out), n / 32, k.i / 32);
}

INLINE void quantize(const gr_quantize GR_CONSTANT *a, gr_work w) {
  const cell k = cell_of(w, a->cols, a->N);
  if (k.row < a->rows * a->cols && k.i < a->N) quantise_block(GRID(x)[k.i], GRID(y), a->N / 32, k.i / 32);
}
