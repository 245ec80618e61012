// What a block drafter needs besides attention: dynamic convolution, and scores of candidates.
#include "panel.h"
#include "vec.h"

static void dynamic_conv(const void *record, gr_worker *w) {
  const gr_dynamic_conv *a = record;
  const uint32_t N = a->N, groups = N / (uint32_t)a->group;
  const gr_range tokens = gr_share(a->T, w);
  const float *base = a->base + (size_t)a->side * a->K * N;
  float *out = gr_scratch(w, 4 * (size_t)N);
  if (!out) return;
  for (uint32_t t = tokens.begin; t < tokens.end; t++) {
    const float *own = gr_row(a->dyn, a->dyn_row, t) + (size_t)a->side * a->K * groups;
    for (uint32_t j = 0; j < a->K && j <= t; j++) {
      const float *x = gr_row(a->x, a->x_row, t - j);
      for (uint32_t c = 0; c < N; c++) {
        const float term = (base[(size_t)j * N + c] + own[j * groups + c / (uint32_t)a->group]) * x[c];
        out[c] = j ? out[c] + term : term;
      }
    }
    if (a->y) memcpy(gr_row(a->y, a->y_row, t), out, 4 * (size_t)N);
    if (a->quantize_out) quantise_range(out, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), N, 0, N);
  }
}

static void lattice(const void *record, gr_worker *w) {
  const gr_lattice *a = record;
  const uint32_t k = a->k, N = a->N;
  const gr_range pieces = gr_share(a->T, w);
  float *rows = gr_scratch(w, 4 * (size_t)N * (k + 1));
  if (!rows) return;
  for (uint32_t t = pieces.begin; t < pieces.end; t++) {
    const float *top = gr_row(a->top, a->top_row, t), *gate = gr_row(a->gate, a->gate_row, t);
    const int32_t *ids = AT(int32_t, a->ids, (size_t)a->ids_row * t);
    const int32_t *previous = t > 1 ? AT(int32_t, a->ids, (size_t)a->ids_row * (t - 1)) : 0;
    float *second = rows + N;
    for (uint32_t s = 0; s < k; s++) matrix_row(a->after, (uint32_t)ids[s], second + (size_t)s * N);
    for (uint32_t p = 0; p < k; p++) {
      float *scores = AT(float, a->scores, (size_t)a->scores_row * t + (size_t)a->scores_col * p);
      matrix_row(a->before, (uint32_t)(previous ? previous[p] : a->tokens[0]), rows);
      for (uint32_t s = 0; s < k; s++) {
        v8 lanes[4] = {all8(0), all8(0), all8(0), all8(0)};
        for (uint32_t c = 0; t && c < N; c += 8) {
          const v8 first = load_part(rows + c, N - c) * load_part(gate + c, N - c);
          lanes[c / 8 % 4] = lanes[c / 8 % 4] + first * load_part(second + (size_t)s * N + c, N - c);
        }
        scores[s] = t ? tree32(lanes) + top[s] : top[s];
      }
    }
  }
}
