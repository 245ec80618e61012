// Ops on rows of channels: norms, gates, sums, and the quantised copies that follow them.
#include "vec.h"

// Channels [begin, end) of a row that is made by several threads, in whole blocks of 32.
typedef struct {
  uint32_t row, begin, end;
} piece;

// Rows are shared; rows fewer than threads are cut at multiples of 32 channels.
typedef struct {
  uint32_t cuts, blocks, channels;
  gr_range pieces;
} division;

INLINE division divide(uint32_t rows, uint32_t channels, const gr_worker *w) {
  division d = {.blocks = (channels + 31) / 32, .channels = channels};
  d.cuts = rows >= 2 * w->threads ? 1 : gr_max(1, gr_min(d.blocks / 4, w->threads));
  d.pieces = gr_share(rows * d.cuts, w);
  return d;
}
INLINE piece piece_of(const division *d, uint32_t i) {
  uint32_t cut = i % d->cuts;
  return (piece){i / d->cuts, 32 * (d->blocks * cut / d->cuts), gr_min(d->channels, 32 * (d->blocks * (cut + 1) / d->cuts))};
}

static float inverse_rms(const float *x, uint32_t n, float eps) { return 1.0f / sqrtf(group_sum(x, n, 1) / (float)n + eps); }

INLINE void quantise_range(const float *x, uint8_t *row, uint32_t channels, uint32_t begin, uint32_t end) {
  for (uint32_t b = begin / 32; b < end / 32; b++) quantise_block(x + 32 * (b - begin / 32), row, channels / 32, b);
}

INLINE float *cell(float *base, uint32_t row_bytes, uint32_t col_bytes, uint32_t cols, uint32_t row) {
  return AT(float, base, (size_t)row_bytes * (row / cols) + (size_t)col_bytes * (row % cols));
}

static void rms_norm(const void *record, gr_worker *w) {
  const gr_rms_norm *a = record;
  const division d = divide(a->rows * a->cols, a->N, w);
  for (uint32_t i = d.pieces.begin; i < d.pieces.end; i++) {
    const piece c = piece_of(&d, i);
    const float *x = cell(a->x, a->x_row, a->x_col, a->cols, c.row);
    float *y = a->y ? cell(a->y, a->y_row, a->y_col, a->cols, c.row) : 0;
    const float scale = inverse_rms(x, a->N, (float)a->eps);
    for (uint32_t j = c.begin; j < c.end; j += 32) {
      float out[32] __attribute__((aligned(32)));
      const uint32_t n = gr_min(32, c.end - j);
      for (uint32_t k = 0; k < n; k += 8)
        store8(out + k, load_part(x + j + k, n - k) * all8(scale) * load_part(a->w + j + k, n - k));
      if (y) memcpy(y + j, out, 4 * n);
      if (a->quantize_out) quantise_block(out, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * c.row), a->N / 32, j / 32);
    }
  }
}

enum { AT_ONCE = 128 }; // channels computed before they are quantised, so that long chains of both overlap

// y = f(x, z) for rows of two operands; the result is stored, quantised, or both.
#define PAIRWISE(name, op, first, second, result, ROWS, CELLX, CELLZ, CELLY, QUANTISED)                                  \
  static void name(const void *record, gr_worker *w) {                                                                 \
    const op *a = record;                                                                                              \
    const division d = divide(ROWS, a->N, w);                                                                          \
    for (uint32_t i = d.pieces.begin; i < d.pieces.end; i++) {                                                         \
      const piece c = piece_of(&d, i);                                                                                 \
      const float *x = CELLX, *z = CELLZ;                                                                              \
      float *y = CELLY;                                                                                                \
      for (uint32_t j = c.begin; j < c.end; j += AT_ONCE) {                                                            \
        float out[AT_ONCE] __attribute__((aligned(32)));                                                               \
        const uint32_t n = gr_min(AT_ONCE, c.end - j);                                                                 \
        for (uint32_t k = 0; k < n; k += 8) {                                                                          \
          v8 first = load_part(x + j + k, n - k), second = load_part(z + j + k, n - k);                                \
          store8(out + k, result);                                                                                     \
        }                                                                                                              \
        if (y) memcpy(y + j, out, 4 * n);                                                                              \
        QUANTISED                                                                                                      \
      }                                                                                                                \
    }                                                                                                                  \
  }
#define QUANTISE_OUT \
  if (a->quantize_out) quantise_range(out, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * c.row), a->N, j, j + n);
#define GRID(t) cell(a->t, a->t##_row, a->t##_col, a->cols, c.row)
#define LINE(t) gr_row(a->t, a->t##_row, c.row)

PAIRWISE(add, gr_add, p, q, p + q, a->rows * a->cols, GRID(x), GRID(y), GRID(z), )
PAIRWISE(mul, gr_mul, p, q, p * q, a->rows * a->cols, GRID(x), GRID(y), GRID(z), )
PAIRWISE(swiglu, gr_swiglu, p, q, gated8(p, p) * q, a->T, LINE(gate), LINE(up), a->y ? LINE(y) : 0, QUANTISE_OUT)
PAIRWISE(sigmoid_gate, gr_sigmoid_gate, p, q, gated8(p, q), a->rows * a->cols, GRID(x), GRID(gate), a->y ? GRID(y) : 0, QUANTISE_OUT)

static void quantize(const void *record, gr_worker *w) {
  const gr_quantize *a = record;
  const division d = divide(a->rows * a->cols, a->N, w);
  for (uint32_t i = d.pieces.begin; i < d.pieces.end; i++) {
    const piece c = piece_of(&d, i);
    const float *x = GRID(x);
    uint8_t *y = AT(uint8_t, a->y, (size_t)a->y_row * (c.row / a->cols) + (size_t)a->y_col * (c.row % a->cols));
    for (uint32_t b = c.begin / 32; b < c.end / 32; b++) quantise_block(x + 32 * b, y, a->N / 32, b);
  }
}

static void concat(const void *record, gr_worker *w) {
  const gr_concat *a = record;
  const gr_range rows = gr_share(a->T, w);
  const uint32_t n = a->N + a->M;
  float *row = gr_scratch(w, 4 * (size_t)n);
  if (!row) return;
  for (uint32_t t = rows.begin; t < rows.end; t++) {
    memcpy(row, gr_row(a->a, a->a_row, t), 4 * (size_t)a->N);
    memcpy(row + a->N, gr_row(a->b, a->b_row, t), 4 * (size_t)a->M);
    if (a->y) memcpy(gr_row(a->y, a->y_row, t), row, 4 * (size_t)n);
    if (a->quantize_out) quantise_range(row, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), n, 0, n);
  }
}

// Heads of a token are normed apart; threads share tokens, and heads where these fill whole blocks.
static void gated_norm(const void *record, gr_worker *w) {
  const gr_gated_norm *a = record;
  const uint32_t cuts = a->D % 32 ? 1 : a->U, heads = a->U / cuts, width = heads * a->D;
  const gr_range pieces = gr_share(a->T * cuts, w);
  float *out = gr_scratch(w, 4 * (size_t)width + 32);
  if (!out) return;
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t t = i / cuts, first = i % cuts * width;
    for (uint32_t h = first / a->D; h < first / a->D + heads; h++) {
      const float *o = AT(float, a->o, (size_t)a->o_row * t + (size_t)a->o_col * h);
      const float *z = gr_row(a->z, a->z_row, t) + h * a->D;
      const float scale = inverse_rms(o, a->D, (float)a->eps);
      for (uint32_t j = 0; j < a->D; j += 8) {
        const uint32_t n = a->D - j;
        const v8 gate = load_part(z + j, n);
        store_part(out + h * a->D - first + j, load_part(o + j, n) * all8(scale) * load_part(a->w + j, n) * gated8(gate, gate), n);
      }
    }
    if (a->y) memcpy(gr_row(a->y, a->y_row, t) + first, out, 4 * (size_t)width);
    if (a->quantize_out) quantise_range(out, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->N, first, first + width);
  }
}
