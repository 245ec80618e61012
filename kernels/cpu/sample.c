// Rows of matrices, and the choice of tokens.
#include "panel.h"
#include "vec.h"

// One row of a matrix as f32, each weight s * q - m rounded twice, as stored.
static void matrix_row(const gr_matrix *m, uint32_t row, float *out) {
  const uint8_t *panel = m->data + m->stride * (row / PANEL);
  const uint32_t r = row % PANEL, layout = m->layout, nb = blocks_of(m), size = block_bytes(layout);
  const uint8_t *w = panel + super_bytes(layout) * (nb / 8);
  for (uint32_t i = 0; i < m->lanes; i++)
    for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += size) {
      const uint8_t *s = w + word_bytes(layout), *above = panel + super_bytes(layout) * (b / 8);
      const gr_half *h = (const gr_half *)s, *over = (const gr_half *)above;
      const float *f = (const float *)s;
      float scale[2] = {0}, minus[2] = {0};
      if (layout == GR_F32) {
        out[b] = ((const float *)w)[r];
        continue;
      }
      if (layout == GR_Q4_0 || layout == GR_Q8_0 || layout == GR_Q4_1) scale[0] = scale[1] = halves_to_float(h[r]);
      if (layout == GR_Q4_1) minus[0] = minus[1] = -halves_to_float(h[16 + r]);
      if (layout == GR_Q4_K) {
        scale[0] = scale[1] = halves_to_float(over[r]) * s[r];
        minus[0] = minus[1] = halves_to_float(over[16 + r]) * s[16 + r];
      }
      if (layout == GR_Q6_K)
        for (int k = 0; k < 2; k++) scale[k] = halves_to_float(over[r]) * (int8_t)s[16 * k + r];
      if (layout == GR_I8_A)
        for (int k = 0; k < 2; k++) scale[k] = f[16 * k + r], minus[k] = f[32 + 16 * k + r];
      for (uint32_t j = 0; j < 32; j++) {
        int32_t q;
        if (layout == GR_Q8_0 || layout == GR_I8_A) q = (int8_t)w[64 * (j / 4) + 4 * r + j % 4];
        else q = w[64 * (j % 16 / 4) + 4 * r + j % 4] >> (j / 16 * 4) & 15;
        if (layout == GR_Q4_0) q -= 8;
        if (layout == GR_Q6_K) q = (q | (w[256 + 64 * (j / 16) + 4 * r + j % 4] >> (j % 16 / 4 * 2) & 3) << 4) - 32;
        const float product = (float)q * scale[j / 16];
        out[32 * b + j] = layout == GR_Q4_0 || layout == GR_Q8_0 || layout == GR_Q6_K ? product : product - minus[j / 16];
      }
    }
}

static void embed(const void *record, gr_worker *w) {
  const gr_embed *a = record;
  const gr_range tokens = gr_share(a->T, w);
  for (uint32_t t = tokens.begin; t < tokens.end; t++) matrix_row(a->w, (uint32_t)a->tokens[t], gr_row(a->x, a->x_row, t));
}

static void argmax(const void *record, gr_worker *w) {
  const gr_argmax *a = record;
  const gr_range rows = gr_share(a->R, w);
  for (uint32_t r = rows.begin; r < rows.end; r++) {
    const float *x = gr_row(a->x, a->x_row, r);
    v8 most = all8(-INFINITY);
    i8 place = all8i(0);
    uint32_t i = 0;
    for (; i + 8 <= a->V; i += 8) { // each lane keeps its first largest
      v8 y = load8(x + i);
      i8 more = (i8)(y > most);
      most = pick8(more, y, most);
      place = (more & all8i((int32_t)i)) | (~more & place);
    }
    float top = most[0];
    uint32_t best = (uint32_t)place[0];
    for (uint32_t j = 1; j < 8; j++) {
      const uint32_t at = (uint32_t)place[j] + j;
      if (most[j] > top || (most[j] == top && at < best)) top = most[j], best = at;
    }
    for (; i < a->V; i++)
      if (x[i] > top) top = x[i], best = i;
    a->y[r] = (int32_t)(top > -INFINITY ? best : 0);
  }
}

// The k largest, kept sorted: value descending, index ascending among equals.
static void topk(const void *record, gr_worker *w) {
  const gr_topk *a = record;
  const gr_range rows = gr_share(a->R, w);
  const uint32_t k = (uint32_t)a->k;
  for (uint32_t r = rows.begin; r < rows.end; r++) {
    const float *x = gr_row(a->x, a->x_row, r);
    float *top = gr_row(a->top, a->top_row, r);
    int32_t *ids = AT(int32_t, a->ids, (size_t)a->ids_row * r);
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->V; i++) {
      if (n == k && !(x[i] > top[k - 1])) continue;
      uint32_t at = n < k ? n++ : k - 1;
      for (; at > 0 && x[i] > top[at - 1]; at--) top[at] = top[at - 1], ids[at] = ids[at - 1];
      top[at] = x[i];
      ids[at] = (int32_t)i;
    }
  }
}
