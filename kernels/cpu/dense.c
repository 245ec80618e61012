// Products of weights as f32 and f32 activations, products and sums rounded apart, in the order of panel.h.
#include "lanes.h"

enum { GROUP = 4 }; // tokens computed together

// Tokens t0 .. t0 + n - 1 of x, columns in the order of the panels: [cols][n].
static void arrange_dense(const gr_gemv_f32 *a, const gr_matrix *order, uint32_t t0, uint32_t n, float *x) {
  for (uint32_t i = 0; i < order->lanes; i++)
    for (uint32_t c = order->lane[i]; c < a->N; c += LANES)
      for (uint32_t t = 0; t < n; t++) *x++ = gr_row(a->x, a->x_row, t0 + t)[c];
}

// A panel of another layout as one of f32; `row` holds the values of one row.
static void widen_panel(const gr_matrix *m, const uint8_t *lane, uint32_t lanes, uint32_t p, float *row, float *out) {
  for (uint32_t r = 0; r < PANEL; r++) {
    if (PANEL * p + r < m->rows) matrix_row(m, PANEL * p + r, row);
    else memset(row, 0, 4 * (size_t)m->cols);
    float *to = out + r;
    for (uint32_t i = 0; i < lanes; i++)
      for (uint32_t c = lane[i]; c < m->cols; c += LANES, to += PANEL) *to = row[c];
  }
}

INLINE void some_tokens(uint32_t n, const gr_gemv_f32 *a, const gr_matrix *m, uint32_t t0, const float *x, const float *w, uint32_t p) {
  vf stack[7][GROUP][V];
  int depth = 0;
  for (uint32_t i = 0; i < m->lanes; i++) {
    vf sum[GROUP][V];
    for (uint32_t t = 0; t < n; t++)
      for (int v = 0; v < V; v++) sum[t][v] = all_f(0);
    for (uint32_t c = m->lane[i]; c < m->cols; c += LANES, w += PANEL, x += n) {
      __builtin_prefetch(w + 2048, 0, 3);
      vf column[V];
      for (int v = 0; v < V; v++) column[v] = load_f(w + W * v);
      for (uint32_t t = 0; t < n; t++) {
        const vf one = all_f(x[t]);
        for (int v = 0; v < V; v++) sum[t][v] = sum[t][v] + column[v] * one;
      }
    }
    for (int k = m->merges[i]; k; k--) {
      depth--;
      for (uint32_t t = 0; t < n; t++)
        for (int v = 0; v < V; v++) sum[t][v] = stack[depth][t][v] + sum[t][v];
    }
    for (uint32_t t = 0; t < n; t++)
      for (int v = 0; v < V; v++) stack[depth][t][v] = sum[t][v];
    depth++;
  }
  for (uint32_t t = 0; t < n; t++) finish(&OUTPUT(a), p, t0 + t, stack[0][t]);
}

static void gemv_f32(const void *record, gr_worker *w) {
  const gr_gemv_f32 *a = record;
  const gr_matrix *m = a->w;
  const gr_range panels = gr_share((m->rows + PANEL - 1) / PANEL, w);
  const int widens = m->layout != GR_F32;
  gr_matrix dense = *m; // the lane order of single columns
  if (widens) {
    dense.layout = GR_F32;
    gr_plan(&dense);
  }
  const size_t cells = (size_t)a->T * a->N, wide = widens ? (size_t)(PANEL + 1) * a->N : 0;
  float *x = gr_scratch(w, sizeof(float) * (cells + wide + 64));
  if (!x || panels.begin == panels.end) return;
  float *panel = x + (cells + 15) / 16 * 16, *row = panel + (size_t)PANEL * a->N;
  for (uint32_t t = 0; t < a->T; t += GROUP) arrange_dense(a, &dense, t, gr_min(GROUP, a->T - t), x + (size_t)t * a->N);
  for (uint32_t p = panels.begin; p < panels.end; p++) {
    if (widens) widen_panel(m, dense.lane, dense.lanes, p, row, panel);
    const float *weights = widens ? panel : (const float *)(m->data + m->stride * p);
    for (uint32_t t = 0; t < a->T; t += GROUP) {
      const float *from = x + (size_t)t * a->N;
      const uint32_t n = a->T - t;
      if (n >= 4) some_tokens(4, a, &dense, t, from, weights, p);
      else if (n == 3) some_tokens(3, a, &dense, t, from, weights, p);
      else if (n == 2) some_tokens(2, a, &dense, t, from, weights, p);
      else some_tokens(1, a, &dense, t, from, weights, p);
    }
  }
}
