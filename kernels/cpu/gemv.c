// Products of quantised weights and quantised activations: exact integer dots, f32 sums in the order of panel.h.
#include "lanes.h"

enum { TILE = 32, AHEAD = 8192 }; // tokens computed together; bytes to prefetch ahead

typedef struct {
  vf s0, s1, m0, m1;
} factors;

INLINE int in_halves(uint32_t layout) { return layout == GR_Q6_K || layout == GR_I8_A; }

// Vector v of a block's weights as 8 vectors of 4 columns: unsigned but for q8_0 and i8_a.
INLINE void unpack(uint32_t layout, const uint8_t *w, int v, vi *u) {
  w += 4 * W * v;
  if (layout == GR_Q8_0 || layout == GR_I8_A) {
    for (int k = 0; k < 8; k++) u[k] = load_i(w + 64 * k);
    return;
  }
  for (int k = 0; k < 4; k++) {
    vi x = load_i(w + 64 * k);
    u[k] = low_bits(x, 0, 0, 15);
    u[4 + k] = low_bits(x, 4, 0, 15);
  }
  if (layout != GR_Q6_K) return;
  for (int h = 0; h < 2; h++) {
    vi x = load_i(w + 256 + 64 * h);
    u[4 * h] = or_i(u[4 * h], low_bits(x, 0, 4, 0x30));
    u[4 * h + 1] = or_i(u[4 * h + 1], low_bits(x, 0, 2, 0x30));
    u[4 * h + 2] = or_i(u[4 * h + 2], low_bits(x, 0, 0, 0x30));
    u[4 * h + 3] = or_i(u[4 * h + 3], low_bits(x, 2, 0, 0x30));
  }
}

// Vector v of a block's scales; `above` points to what 8 blocks share.
INLINE factors scales(uint32_t layout, const uint8_t *s, const uint8_t *above, int v) {
  factors f = {all_f(0), all_f(0), all_f(0), all_f(0)};
  const int r = W * v;
  if (layout == GR_Q4_0 || layout == GR_Q8_0) f.s0 = half_f(s + 2 * r);
  if (layout == GR_Q4_1) {
    f.s0 = half_f(s + 2 * r);
    f.m0 = half_f(s + 32 + 2 * r);
  }
  if (layout == GR_Q4_K) {
    f.s0 = half_f(above + 2 * r) * u8_f(s + r);
    f.m0 = -(half_f(above + 32 + 2 * r) * u8_f(s + 16 + r));
  }
  if (layout == GR_Q6_K) {
    vf d = half_f(above + 2 * r);
    f.s0 = d * s8_f(s + r);
    f.s1 = d * s8_f(s + 16 + r);
  }
  if (layout == GR_I8_A) {
    const float *a = (const float *)s + r;
    f.s0 = load_f(a);
    f.s1 = load_f(a + 16);
    f.m0 = -load_f(a + 32);
    f.m1 = -load_f(a + 48);
  }
  return f;
}

// One block of N tokens added to their lane's sums.
INLINE void add_block(uint32_t layout, int N, const vi *u, factors f, const line *x, vf *sum) {
  vi dot[4][2];
  if (layout == GR_Q6_K) dot_sixes(N, u, x, dot);
  else if (layout == GR_Q8_0 || layout == GR_I8_A) dot_bytes(N, u, x, dot);
  else dot_nibbles(N, u, x, dot);
  for (int t = 0; t < N; t++) {
    const vf d = all_f(x[t].d);
    if (layout == GR_Q4_0) dot[t][0] = sub_i(dot[t][0], all_i(x[t].sum8));
    if (layout == GR_Q8_0) dot[t][0] = add_i(dot[t][0], dot[t][1]);
    if (layout == GR_Q4_0 || layout == GR_Q8_0) sum[t] = sum[t] + f.s0 * d * to_f(dot[t][0]);
    if (layout == GR_Q4_1 || layout == GR_Q4_K) {
      sum[t] = fma_f(f.s0 * to_f(dot[t][0]), d, sum[t]);
      sum[t] = fma_f(f.m0, all_f(x[t].dsum), sum[t]);
    }
    if (layout == GR_Q6_K)
      for (int h = 0; h < 2; h++) dot[t][h] = sub_i(dot[t][h], all_i(x[t].h32[h]));
    if (in_halves(layout)) sum[t] = fma_f(fma_f(f.s1, to_f(dot[t][1]), f.s0 * to_f(dot[t][0])), d, sum[t]);
    if (layout == GR_I8_A) sum[t] = fma_f(fma_f(all_f(x[t].h[1]), f.m1, all_f(x[t].h[0]) * f.m0), d, sum[t]);
  }
}

// Lines of tokens t0 .. t0 + n - 1, block after block, n lines each.
static void arrange(const gr_gemv *a, uint32_t layout, uint32_t t0, uint32_t n, line *lines) {
  const uint32_t nb = a->N / 32;
  for (uint32_t t = 0; t < n; t++) {
    const uint8_t *row = a->x + (size_t)a->x_row * (t0 + t);
    for (uint32_t b = 0; b < nb; b++) {
      line *l = lines + (size_t)b * n + t;
      memcpy(l->q, row + 32 * b, 32);
      memcpy(&l->d, row + 32 * nb + 4 * b, 4);
      memcpy(&l->sum, row + 36 * nb + 4 * b, 4);
      l->sum8 = 8 * l->sum;
      l->dsum = l->d * (float)l->sum;
      if (in_halves(layout) || layout == GR_Q8_0) {
        int32_t h = 0;
        for (int j = 0; j < 16; j++) h += l->q[j];
        l->h32[0] = 32 * h;
        l->h32[1] = 32 * (l->sum - h);
        l->h[0] = (float)h;
        l->h[1] = (float)(l->sum - h);
      }
    }
  }
}

INLINE void prefetch_block(uint32_t layout, const uint8_t *w) {
  for (uint32_t k = 0; k < block_bytes(layout); k += 64) __builtin_prefetch(w + AHEAD + k, 0, 3);
}

INLINE void one_token(uint32_t layout, const gr_gemv *a, const line *x, gr_range panels) {
  const gr_matrix *m = a->w;
  const uint32_t nb = m->cols / 32;
  for (uint32_t p = panels.begin; p < panels.end; p++) {
    const uint8_t *above = m->data + m->stride * p, *w = above + super_bytes(layout) * (nb / 8);
    vf stack[6][V], sum[V] = {{0}};
    int depth = 0;
    for (uint32_t i = 0; i < m->lanes; i++) {
      for (int v = 0; v < V; v++) sum[v] = all_f(0);
      for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += block_bytes(layout)) {
        prefetch_block(layout, w);
        const uint8_t *over = above + super_bytes(layout) * (b / 8);
        const line *l = x + b;
        __asm__("" : "+r"(l)); // one base register: broadcasts with an index are slower
        for (int v = 0; v < V; v++) {
          vi u[8];
          unpack(layout, w, v, u);
          add_block(layout, 1, u, scales(layout, w + word_bytes(layout), over, v), l, &sum[v]);
        }
      }
      for (int k = m->merges[i]; k; k--) {
        depth--;
        for (int v = 0; v < V; v++) sum[v] = stack[depth][v] + sum[v];
      }
      for (int v = 0; v < V; v++) stack[depth][v] = sum[v];
      depth++;
    }
    finish(&OUTPUT(a), p, 0, sum);
  }
}

// A block of N tokens. `first`: lanes start here; `last`: they end here, on top of the sums at `under`.
INLINE void step_tokens(uint32_t layout, int N, int first, int last, const vi *u, factors f, const line *x, float *sum, float *under) {
  vf total[4];
  for (int t = 0; t < N; t++) total[t] = first ? all_f(0) : load_f(sum + W * t);
  add_block(layout, N, u, f, x, total);
  for (int t = 0; t < N; t++) {
    if (last) store_f(under + W * t, load_f(under + W * t) + total[t]);
    else store_f(sum + W * t, total[t]);
  }
}
INLINE void tokens(uint32_t layout, int first, int last, const vi *u, factors f, const line *x, uint32_t n, float *sum, float *under) {
  const int some = in_halves(layout) || layout == GR_Q8_0 ? 2 : 4; // that registers have room for
  const line *end = x + n;
  for (; x + some <= end; x += some, sum += W * some, under += W * some) {
    __asm__("" : "+r"(x));
    step_tokens(layout, some, first, last, u, f, x, sum, under);
  }
  for (; x < end; x++, sum += W, under += W) step_tokens(layout, 1, first, last, u, f, x, sum, under);
}

INLINE void many_tokens(uint32_t layout, const gr_gemv *a, uint32_t t0, uint32_t n, const line *x, gr_range panels) {
  const gr_matrix *m = a->w;
  const uint32_t nb = m->cols / 32;
  float stack[7][V][TILE * W] __attribute__((aligned(64)));
  for (uint32_t p = panels.begin; p < panels.end; p++) {
    const uint8_t *above = m->data + m->stride * p, *w = above + super_bytes(layout) * (nb / 8);
    int depth = 0;
    for (uint32_t i = 0; i < m->lanes; i++) {
      int merges = m->merges[i];
      for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += block_bytes(layout)) {
        if (t0 == 0) prefetch_block(layout, w);
        const uint8_t *over = above + super_bytes(layout) * (b / 8);
        const int first = b == m->lane[i], last = merges && b + LANES >= nb;
        for (int v = 0; v < V; v++) {
          vi u[8];
          unpack(layout, w, v, u);
          factors f = scales(layout, w + word_bytes(layout), over, v);
          float *sum = stack[depth][v], *under = last ? stack[depth - 1][v] : sum;
          const line *l = x + (size_t)b * n;
          if (first && last) tokens(layout, 1, 1, u, f, l, n, sum, under);
          else if (first) tokens(layout, 1, 0, u, f, l, n, sum, under);
          else if (last) tokens(layout, 0, 1, u, f, l, n, sum, under);
          else tokens(layout, 0, 0, u, f, l, n, sum, under);
        }
      }
      for (depth -= merges > 0; merges > 1; merges--, depth--)
        for (int v = 0; v < V; v++)
          for (uint32_t t = 0; t < n * W; t += W)
            store_f(stack[depth - 1][v] + t, load_f(stack[depth - 1][v] + t) + load_f(stack[depth][v] + t));
      depth++;
    }
    for (uint32_t t = 0; t < n; t++) {
      vf sum[V];
      for (int v = 0; v < V; v++) sum[v] = load_f(stack[0][v] + W * t);
      finish(&OUTPUT(a), p, t0 + t, sum);
    }
  }
}

INLINE void product(uint32_t layout, const gr_gemv *a, gr_worker *w) {
  const uint32_t nb = a->N / 32, most = nb > 256 ? TILE / 2 : TILE;
  const gr_range panels = gr_share((a->w->rows + PANEL - 1) / PANEL, w);
  line *lines = gr_scratch(w, sizeof(line) * nb * gr_min(a->T, most));
  if (!lines || panels.begin == panels.end) return;
  for (uint32_t t = 0; t < a->T; t += most) {
    const uint32_t n = gr_min(most, a->T - t);
    arrange(a, layout, t, n, lines);
    if (a->T == 1) one_token(layout, a, lines, panels);
    else many_tokens(layout, a, t, n, lines, panels);
  }
}

#define PRODUCT(name, layout) \
  static void gemv_##name(const void *record, gr_worker *w) { product(layout, record, w); }
PRODUCT(q4_0, GR_Q4_0)
PRODUCT(q4_1, GR_Q4_1)
PRODUCT(q8_0, GR_Q8_0)
PRODUCT(q4_k, GR_Q4_K)
PRODUCT(q6_k, GR_Q6_K)
PRODUCT(i8_a, GR_I8_A)
