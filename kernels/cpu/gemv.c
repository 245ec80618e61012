// Products of quantised weights and quantised activations: exact integer dots, f32 sums in the order of panel.h.
#include "lanes.h"

enum { TILE = 32, AHEAD = 8192 }; // tokens that share a read of the weights; bytes to prefetch ahead
enum { UNPACKED = 512 };            // bytes of a block

typedef struct {
  vf s0, s1, m0, m1;
} factors;

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

// Lines that each of n tokens has for a block.
INLINE uint32_t lines_of(uint32_t layout, uint32_t n) { return WIDE && in_bytes(layout) && n > 1 ? 2 : 1; }

// The dot product of a row, or of its halves, added to its lane's sum.
INLINE vf add_dot(uint32_t layout, vi *dot, factors f, const line *x, vf sum) {
  const vf d = all_f(x->d);
  if (layout == GR_Q4_0) dot[0] = sub_i(dot[0], all_i(x->sum8));
  if (layout == GR_Q4_0 || layout == GR_Q8_0) return sum + f.s0 * d * to_f(dot[0]);
  if (layout == GR_Q4_1 || layout == GR_Q4_K) return fma_f(f.m0, all_f(x->dsum), fma_f(f.s0 * to_f(dot[0]), d, sum));
  if (layout == GR_Q6_K)
    for (int h = 0; h < 2; h++) dot[h] = sub_i(dot[h], all_i(x->h32[h]));
  sum = fma_f(fma_f(f.s1, to_f(dot[1]), f.s0 * to_f(dot[0])), d, sum);
  return layout == GR_I8_A ? fma_f(fma_f(all_f(x->h[1]), f.m1, all_f(x->h[0]) * f.m0), d, sum) : sum;
}

// A block of N tokens: to = under + (sum + block). `s` and `above` are its scales, `words` its weights, of layout `from`.
INLINE void add_block(uint32_t layout, uint32_t from, int N, const uint8_t *words, const uint8_t *s, const uint8_t *above, const line *x,
                      vf (*sum)[V], vf (*under)[V], vf (*to)[V]) {
  const int side_by_side = in_halves(layout) && !WIDE ? 1 : V; // what registers have room for
  for (int first = 0; first < V; first += side_by_side) {
    vi dot[MOST_TOKENS][V][2];
    dot_block(layout, from, N, (vectors){first, side_by_side}, words, x, dot);
    for (int i = 0; i < side_by_side; i++) {
      const int v = first + i;
      const factors f = scales(layout, s, above, v);
      for (int t = 0; t < N; t++) to[t][v] = under[t][v] + add_dot(layout, dot[t][i], f, x + t * lines_of(layout, N), sum[t][v]);
    }
  }
}

// A token's line, or two, of block b.
INLINE void set_line(uint32_t layout, uint32_t n, const uint8_t *row, uint32_t nb, uint32_t b, line *l) {
  memcpy(l->q, row + 32 * b, 32);
  memcpy(&l->d, row + 32 * nb + 4 * b, 4);
  memcpy(&l->sum, row + 36 * nb + 4 * b, 4);
  l->sum8 = 8 * l->sum;
  l->dsum = l->d * (float)l->sum;
  if (in_halves(layout) || (in_bytes(layout) && !WIDE)) {
    int32_t h = 0;
    for (int j = 0; j < 16; j++) h += l->q[j];
    l->h32[0] = 32 * h;
    l->h32[1] = 32 * (l->sum - h);
    l->h[0] = (float)h;
    l->h[1] = (float)(l->sum - h);
  }
  if (lines_of(layout, n) == 1) return;
  int16_t *wide = (int16_t *)(l + 1);
  for (int j = 0; j < 32; j += 4)
    for (int k = 0; k < 4; k++) wide[j + k] = l->q[j + (k & 1) * 2 + (k >> 1)];
}

// Lines of tokens t0 .. t0 + n - 1, block after block.
static void arrange(const gr_gemv *a, uint32_t layout, uint32_t t0, uint32_t n, line *lines) {
  const uint32_t nb = a->N / 32;
  for (uint32_t b = 0; b < nb; b++)
    for (uint32_t t = 0; t < n; t++, lines += lines_of(layout, n)) set_line(layout, n, a->x + (size_t)a->x_row * (t0 + t), nb, b, lines);
}

INLINE void prefetch_block(uint32_t layout, const uint8_t *w) {
  for (uint32_t k = 0; k < block_bytes(layout); k += 64) __builtin_prefetch(w + AHEAD + k, 0, 3);
}

// Panel p for one token: sums stay in registers.
INLINE void one_token(uint32_t layout, const gr_gemv *a, uint32_t t0, const line *x, uint32_t p) {
  const gr_matrix *m = a->w;
  const uint32_t nb = m->cols / 32;
  const uint8_t *above = m->data + m->stride * p, *w = above + super_bytes(layout) * (nb / 8);
  vf stack[6][V], sum[V] = {{0}};
  int depth = 0;
  for (uint32_t i = 0; i < m->lanes; i++) {
    for (int v = 0; v < V; v++) sum[v] = all_f(0);
    for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += block_bytes(layout)) {
      if (t0 == 0) prefetch_block(layout, w);
      const line *l = x + b;
      __asm__("" : "+r"(l)); // one base register: broadcasts with an index are slower
      vi dot[1][V][2];
      dot_block(layout, layout, 1, (vectors){0, V}, w, l, dot);
      for (int v = 0; v < V; v++)
        sum[v] = add_dot(layout, dot[0][v], scales(layout, w + word_bytes(layout), above + super_bytes(layout) * (b / 8), v), l, sum[v]);
    }
    for (int k = m->merges[i]; k; k--) {
      depth--;
      for (int v = 0; v < V; v++) sum[v] = stack[depth][v] + sum[v];
    }
    for (int v = 0; v < V; v++) stack[depth][v] = sum[v];
    depth++;
  }
  finish(&OUTPUT(a), p, t0, sum);
}

// Panel p for tokens t0 .. t0 + N - 1; `bytes` are its weights if they were unpacked before.
INLINE void panel_product(uint32_t layout, int N, const gr_gemv *a, uint32_t t0, const line *x, uint32_t p, const uint8_t *bytes) {
  const gr_matrix *m = a->w;
  const uint32_t nb = m->cols / 32;
  const uint8_t *above = m->data + m->stride * p, *w = above + super_bytes(layout) * (nb / 8);
  vf stack[7][MOST_TOKENS][V], nothing[MOST_TOKENS][V];
  for (int t = 0; t < N; t++)
    for (int v = 0; v < V; v++) nothing[t][v] = all_f(0);
  int depth = 0;
  for (uint32_t i = 0; i < m->lanes; i++) {
    int merges = m->merges[i];
    vf (*sum)[V] = nothing;
    for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += block_bytes(layout)) {
      if (t0 == 0) prefetch_block(layout, w);
      const line *l = x + (size_t)b * N * lines_of(layout, N);
      __asm__("" : "+r"(l)); // one base register: broadcasts with an index are slower
      const int last = merges && b + LANES >= nb; // then the lane's sum is merged at once
      vf (*to)[V] = stack[depth - last];
      const uint8_t *scale = w + word_bytes(layout), *over = above + super_bytes(layout) * (b / 8);
      vf (*under)[V] = last ? to : nothing;
      if (bytes) add_block(layout, GR_Q8_0, N, bytes, scale, over, l, sum, under, to), bytes += UNPACKED;
      else add_block(layout, layout, N, w, scale, over, l, sum, under, to);
      sum = to;
    }
    for (depth -= merges > 0; merges > 1; merges--, depth--)
      for (int t = 0; t < N; t++)
        for (int v = 0; v < V; v++) stack[depth - 1][t][v] = stack[depth - 1][t][v] + stack[depth][t][v];
    depth++;
  }
  for (int t = 0; t < N; t++) finish(&OUTPUT(a), p, t0 + t, stack[0][t]);
}
INLINE void panels_product(uint32_t layout, uint32_t N, const gr_gemv *a, uint32_t t0, const line *x, uint32_t p, const uint8_t *bytes) {
  if (N == MOST_TOKENS && bytes) panel_product(layout, MOST_TOKENS, a, t0, x, p, bytes);
  else if (N == MOST_TOKENS) panel_product(layout, MOST_TOKENS, a, t0, x, p, 0);
  else if (N == 4) panel_product(layout, 4, a, t0, x, p, 0);
  else if (N == 3) panel_product(layout, 3, a, t0, x, p, 0);
  else if (N == 2) panel_product(layout, 2, a, t0, x, p, 0);
  else one_token(layout, a, t0, x, p);
}

// The weights of a panel, UNPACKED bytes a block, as they would be unpacked for every group of tokens.
static void unpack_words(uint32_t layout, const gr_matrix *m, uint32_t p, uint8_t *bytes) {
  const uint32_t nb = m->cols / 32;
  const uint8_t *w = m->data + m->stride * p + super_bytes(layout) * (nb / 8);
  for (uint32_t b = 0; b < nb; b++, w += block_bytes(layout), bytes += UNPACKED)
    for (int v = 0; v < V; v++)
      for (int k = 0; k < 8; k++) {
        const vi u = columns(layout, w, v, k);
        memcpy(bytes + 64 * k + 4 * W * v, &u, sizeof u);
      }
}

// How many of the tokens left are next; one alone is slow.
INLINE uint32_t group_of(uint32_t left) {
  if (left >= MOST_TOKENS) return left == 5 && MOST_TOKENS == 4 ? 3 : MOST_TOKENS;
  return left > 4 ? (left + 1) / 2 : left;
}

INLINE void product(uint32_t layout, const gr_gemv *a, gr_worker *w) {
  const uint32_t nb = a->N / 32, most = nb > 256 ? TILE / 2 : TILE;
  const size_t line_count = (size_t)nb * lines_of(layout, 2); // of a token
  const gr_range panels = gr_share((a->w->rows + PANEL - 1) / PANEL, w);
  const size_t line_bytes = sizeof(line) * line_count * gr_min(a->T, most);
  const int unpacks = layout == GR_Q6_K && a->T >= 2 * MOST_TOKENS; // which costs much there
  line *lines = gr_scratch(w, line_bytes + (unpacks ? UNPACKED * (size_t)nb : 0));
  if (!lines || panels.begin == panels.end) return;
  uint8_t *bytes = unpacks ? (uint8_t *)lines + line_bytes : 0;
  for (uint32_t t0 = 0, n; t0 < a->T; t0 += n) {
    n = gr_min(most, a->T - t0);
    for (uint32_t t = 0, some; t < n; t += some) arrange(a, layout, t0 + t, some = group_of(n - t), lines + line_count * t);
    for (uint32_t p = panels.begin; p < panels.end; p++) {
      if (unpacks) unpack_words(layout, a->w, p, bytes);
      for (uint32_t t = 0, some; t < n; t += some)
        panels_product(layout, some = group_of(n - t), a, t0 + t, lines + line_count * t, p, unpacks ? bytes : 0);
    }
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
