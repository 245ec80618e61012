// Products of many tokens by AMX: exact integer dots of 16 tokens, 16 rows and 32 columns at a time, and the f32 sums
// of gemv.c. A block of a panel, as signed bytes, is a tile as it stands: each line has four columns of 16 rows.
#include "lanes.h"
#include <immintrin.h>

enum {
  TOKENS = 16, // of a tile
  FEWEST = 12, // tokens that are worth tiles
  TILE_BYTES = 512,
  ACTIVATIONS = 1 << 20, // bytes kept in the second-level cache
  WEIGHTS = 1 << 16,     // unpacked, kept in the first
  GROUPED = 4            // panels unpacked together at most
};
_Static_assert((int)W == (int)PANEL, "a vector is a panel");
#define MEMORY_IS_CURRENT() __asm__ volatile("" ::: "memory") // tile instructions read more than compilers may know

typedef int8_t signed_bytes __attribute__((vector_size(64)));
typedef struct {
  int32_t half[2][TOKENS * PANEL]; // [tokens][rows]; of whole blocks only the first is used
} tile_dots;

// Tiles 0 to 3 are dots, 4 and 5 activations [tokens][columns], 6 and 7 weights [columns / 4][rows][4].
static void configure_tiles(int halves, uint32_t tokens) {
  struct {
    uint8_t palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } c __attribute__((aligned(64))) = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    c.rows[i] = (uint8_t)(i < 6 ? tokens : halves ? 4 : 8);
    c.row_bytes[i] = i == 4 || i == 5 ? (halves ? 16 : 32) : 64;
  }
  MEMORY_IS_CURRENT();
  _tile_loadconfig(&c);
}

#define TILE_DOT(sum, a, b, q, w)    \
  do {                               \
    _tile_loadd(a, q, sizeof(line)); \
    _tile_loadd(b, w, 64);           \
    _tile_zero(sum);                 \
    _tile_dpbssd(sum, a, b);         \
  } while (0)

// Blocks take turns at the tiles, so that a block's dots are stored while those of the next are computed.
INLINE void start_dots(int halves, uint32_t place, const line *x, const int8_t *w) {
  const int8_t *q = x->q, *q1 = q + 16, *w1 = w + TILE_BYTES / 2;
  if (place & 1) {
    TILE_DOT(0, 4, 6, q, w);
    if (halves) TILE_DOT(1, 5, 7, q1, w1);
  } else if (halves) {
    TILE_DOT(2, 4, 6, q, w);
    TILE_DOT(3, 5, 7, q1, w1);
  } else TILE_DOT(2, 5, 7, q, w);
}
INLINE void store_dots(int halves, uint32_t place, tile_dots *dots) {
  int32_t *d0 = dots[place & 1].half[0], *d1 = dots[place & 1].half[1];
  if (place & 1) {
    _tile_stored(0, d0, 64);
    if (halves) _tile_stored(1, d1, 64);
  } else {
    _tile_stored(2, d0, 64);
    if (halves) _tile_stored(3, d1, 64);
  }
}

// A block's dots of N tokens added to their lane's sums, as by add_block. The first of a lane is not added to +0,
// which could only turn -0 to +0, and `finish` does that.
INLINE void add_dots(uint32_t layout, int N, int first, factors f, const line *x, const tile_dots *dots, vf *sum) {
#pragma GCC unroll 16
  for (int t = 0; t < N; t++) {
    const vf d = all_f(x[t].d), dot = to_f(load_i(dots->half[0] + PANEL * t)), before = first ? all_f(0) : sum[t];
    if (layout == GR_Q4_0 || layout == GR_Q8_0) {
      sum[t] = f.s0 * d * dot;
      if (!first) sum[t] = before + sum[t];
    }
    if (layout == GR_Q4_1 || layout == GR_Q4_K)
      sum[t] = fma_f(f.m0, all_f(x[t].dsum), fma_f(f.s0 * dot, d, before));
    if (in_halves(layout)) {
      const vf second = to_f(load_i(dots->half[1] + PANEL * t));
      sum[t] = fma_f(fma_f(f.s1, second, f.s0 * dot), d, before);
    }
    if (layout == GR_I8_A) sum[t] = fma_f(fma_f(all_f(x[t].h[1]), f.m1, all_f(x[t].h[0]) * f.m0), d, sum[t]);
  }
}

// A panel's weights as signed bytes, 512 a block.
INLINE void unpack_panel(uint32_t layout, const gr_matrix *m, uint32_t p, int8_t *bytes) {
  const uint32_t nb = m->cols / 32;
  const int8_t zero = layout == GR_Q4_0 ? 8 : layout == GR_Q6_K ? 32 : 0;
  const uint8_t *w = m->data + m->stride * p + super_bytes(layout) * (nb / 8);
  for (uint32_t i = 0; i < nb; i++, w += block_bytes(layout), bytes += TILE_BYTES) {
    vi u[8];
    unpack(layout, w, 0, u);
    for (int k = 0; k < 8; k++) *(signed_bytes *)(bytes + 64 * k) = (signed_bytes)u[k] - zero;
  }
}

// Lines of tokens t0 .. t0 + n - 1, and zeros for the rest of a tile, in the order of the panels: [nb][16].
static void arrange_tile(const gr_gemv *a, uint32_t layout, uint32_t t0, uint32_t n, line *l) {
  const uint32_t nb = a->N / 32;
  for (uint32_t i = 0; i < a->w->lanes; i++)
    for (uint32_t b = a->w->lane[i]; b < nb; b += LANES, l += TOKENS) {
      for (uint32_t t = 0; t < n; t++) {
        const uint8_t *row = a->x + (size_t)a->x_row * (t0 + t);
        int32_t sum, h = 0;
        memcpy(l[t].q, row + 32 * (size_t)b, 32);
        memcpy(&l[t].d, row + 32 * (size_t)nb + 4 * b, 4);
        memcpy(&sum, row + 36 * (size_t)nb + 4 * b, 4);
        l[t].dsum = l[t].d * (float)sum;
        if (layout != GR_I8_A) continue;
        for (int j = 0; j < 16; j++) h += l[t].q[j];
        l[t].h[0] = (float)h;
        l[t].h[1] = (float)(sum - h);
      }
      memset(l + n, 0, sizeof(line) * (TOKENS - n));
    }
}

// Where a panel is being computed: `place` counts its blocks, whose lines, bytes and stored form follow.
typedef struct {
  uint32_t place, nb;
  const line *x;
  const int8_t *bytes;
  const uint8_t *w;
} cursor;

// One block of N tokens, while the dots of the next are stored and those of the one after it computed. `over` points
// to what 8 blocks share; what lies `ahead` is prefetched.
INLINE void next_block(uint32_t layout, int N, int first, cursor *c, const uint8_t *over, size_t ahead, tile_dots *dots, vf *sum) {
  const int halves = in_halves(layout);
  if (c->place + 2 < c->nb) start_dots(halves, c->place, c->x + 2 * TOKENS, c->bytes + 2 * TILE_BYTES);
  if (c->place + 1 < c->nb) store_dots(halves, c->place + 1, dots);
  for (uint32_t k = 0; ahead && k < block_bytes(layout); k += 64) __builtin_prefetch(c->w + ahead + k, 0, 2);
  const line *x = c->x;
  const tile_dots *ready = &dots[c->place & 1];
  __asm__("" : "+r"(x), "+r"(ready)); // one base register: broadcasts with an index are slower
  add_dots(layout, N, first, scales(layout, c->w + word_bytes(layout), over, 0), x, ready, sum);
  *c = (cursor){c->place + 1, c->nb, c->x + TOKENS, c->bytes + TILE_BYTES, c->w + block_bytes(layout)};
}

// The sums of N tokens of a tile, left at the bottom of the stack.
INLINE void tile_panel(uint32_t layout, int N, const gr_matrix *m, uint32_t p, const line *x, const int8_t *bytes, size_t ahead,
                       float (*stack)[TOKENS * PANEL]) {
  const uint32_t nb = m->cols / 32, shared = super_bytes(layout);
  const uint8_t *above = m->data + m->stride * p;
  cursor c = {0, nb, x, bytes, above + shared * (nb / 8)};
  tile_dots dots[2] __attribute__((aligned(64)));
  int depth = 0;
  start_dots(in_halves(layout), 0, x, bytes);
  if (nb > 1) start_dots(in_halves(layout), 1, x + TOKENS, bytes + TILE_BYTES);
  store_dots(in_halves(layout), 0, dots);
  for (uint32_t i = 0; i < m->lanes; i++) {
    vf sum[TOKENS];
    uint32_t b = m->lane[i];
    next_block(layout, N, 1, &c, above + shared * (b / 8), ahead, dots, sum);
    for (b += LANES; b < nb; b += LANES) next_block(layout, N, 0, &c, above + shared * (b / 8), ahead, dots, sum);
    for (int k = m->merges[i]; k; k--) {
      depth--;
#pragma GCC unroll 16
      for (int t = 0; t < N; t++) sum[t] = load_f(stack[depth] + PANEL * t) + sum[t];
    }
#pragma GCC unroll 16
    for (int t = 0; t < N; t++) store_f(stack[depth] + PANEL * t, sum[t]);
    depth++;
  }
}

// Panel p of tokens t0 .. t0 + n - 1, at most 16.
INLINE void tile_product(uint32_t layout, const gr_gemv *a, uint32_t p, uint32_t t0, uint32_t n, const line *x, const int8_t *bytes, size_t ahead) {
  float stack[7][TOKENS * PANEL] __attribute__((aligned(64)));
  if (n > 12) tile_panel(layout, 16, a->w, p, x, bytes, ahead, stack);
  else if (n > 8) tile_panel(layout, 12, a->w, p, x, bytes, ahead, stack);
  else if (n > 4) tile_panel(layout, 8, a->w, p, x, bytes, ahead, stack);
  else tile_panel(layout, 4, a->w, p, x, bytes, ahead, stack);
  for (uint32_t t = 0; t < n; t++) {
    const vf sum = load_f(stack[0] + PANEL * t);
    finish(&OUTPUT(a), p, t0 + t, &sum);
  }
}

INLINE void product_by_tiles(uint32_t layout, const gr_gemv *a, gr_worker *worker) {
  const gr_range panels = gr_share((a->w->rows + PANEL - 1) / PANEL, worker);
  const size_t nb = a->N / 32, tile = TOKENS * nb, unpacked = TILE_BYTES * nb;
  const uint32_t tiles = (a->T + TOKENS - 1) / TOKENS;
  const uint32_t most = TOKENS * gr_min(tiles, gr_max(1, (uint32_t)(ACTIVATIONS / (sizeof(line) * tile))));
  const uint32_t group = gr_max(1, gr_min(GROUPED, (uint32_t)(WEIGHTS / unpacked)));
  if (panels.begin == panels.end) return;
  line *lines = gr_scratch(worker, sizeof(line) * nb * most + unpacked * group);
  if (!lines) return;
  int8_t *bytes = (int8_t *)(lines + nb * most);
  configure_tiles(in_halves(layout), gr_min(TOKENS, (a->T + 3) / 4 * 4));
  for (uint32_t t0 = 0; t0 < a->T; t0 += most) {
    const uint32_t n = gr_min(most, a->T - t0);
    for (uint32_t t = 0; t < n; t += TOKENS) arrange_tile(a, layout, t0 + t, gr_min(TOKENS, n - t), lines + nb * t);
    for (uint32_t p = panels.begin; p < panels.end; p += group) {
      const uint32_t some = gr_min(group, panels.end - p);
      for (uint32_t g = 0; g < some; g++) unpack_panel(layout, a->w, p + g, bytes + unpacked * g);
      MEMORY_IS_CURRENT();
      for (uint32_t t = 0; t < n; t += TOKENS)
        for (uint32_t g = 0; g < some; g++)
          tile_product(layout, a, p + g, t0 + t, gr_min(TOKENS, n - t), lines + nb * t, bytes + unpacked * g, t ? 0 : a->w->stride * group);
    }
  }
  _tile_release();
}

#define PRODUCT_BY_TILES(name, layout)                           \
  static void gemm_##name(const void *record, gr_worker *w) {    \
    const gr_gemv *a = record;                                   \
    if (a->T < FEWEST) gemv_##name(record, w);                   \
    else product_by_tiles(layout, a, w);                         \
  }
PRODUCT_BY_TILES(q4_0, GR_Q4_0)
PRODUCT_BY_TILES(q4_1, GR_Q4_1)
PRODUCT_BY_TILES(q8_0, GR_Q8_0)
PRODUCT_BY_TILES(q4_k, GR_Q4_K)
PRODUCT_BY_TILES(q6_k, GR_Q6_K)
PRODUCT_BY_TILES(i8_a, GR_I8_A)
