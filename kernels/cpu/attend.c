// Attention in the order of ops/attention.py: a score is a wave's sum over channels; keys are taken in splits of 32,
// each with its own maximum; within a split eight waves add every eighth value, and splits are added in order.
#include "keys.h"

enum { MOST = 24, TOGETHER = 2 }; // queries of a tile, and those whose scores are computed side by side

// Scores of N queries [N][wide] with the 16 keys at `keys`: lanes in bit-reversed order make the wave's tree a stack.
INLINE void score(int N, const float *q, uint32_t wide, const float *keys, float scale, float *to, size_t step) {
  v8 stack[6][TOGETHER][2];
  int depth = 0;
#pragma GCC unroll 32
  for (uint32_t place = 0; place < 32; place++) {
    const uint32_t lane = (place & 1) << 4 | (place & 2) << 2 | (place & 4) | (place & 8) >> 2 | place >> 4;
    v8 sum[TOGETHER][2];
    for (int i = 0; i < N; i++)
      for (int h = 0; h < 2; h++) sum[i][h] = all8(q[(size_t)i * wide + lane]) * load8(keys + SPLIT * lane + 8 * h);
    for (uint32_t d = lane + 32; d < wide; d += 32)
      for (int i = 0; i < N; i++)
        for (int h = 0; h < 2; h++) sum[i][h] = sum[i][h] + all8(q[(size_t)i * wide + d]) * load8(keys + SPLIT * d + 8 * h);
    for (uint32_t rest = place; rest & 1; rest >>= 1) {
      depth--;
      for (int i = 0; i < N; i++)
        for (int h = 0; h < 2; h++) sum[i][h] = stack[depth][i][h] + sum[i][h];
    }
    for (int i = 0; i < N; i++)
      for (int h = 0; h < 2; h++) stack[depth][i][h] = sum[i][h];
    depth++;
  }
  for (int i = 0; i < N; i++)
    for (int h = 0; h < 2; h++) store8(to + step * i + 8 * h, (stack[0][i][h] + all8(0)) * all8(scale));
}

// Scores of n queries, for the usual numbers of channels with loops of known length.
#define SCORE(N)                                                    \
  do {                                                              \
    if (wide == 64) score(N, q, 64, keys, scale, to, step);         \
    else if (wide == 128) score(N, q, 128, keys, scale, to, step);  \
    else score(N, q, wide, keys, scale, to, step);                  \
  } while (0)
static void score_all(uint32_t n, const float *q, uint32_t wide, const float *keys, float scale, float *to, size_t step) {
  for (; n >= TOGETHER; n -= TOGETHER, q += TOGETHER * (size_t)wide, to += TOGETHER * step) SCORE(TOGETHER);
  if (n) SCORE(1);
}

// out[N][D] += factor times the split's values weighted by e[N][32]; channels d .. d + 8 C - 1, of which n exist.
INLINE void gather(int N, int C, const float *e, size_t step, const float *values, const float *factor, uint32_t D, uint32_t d, uint32_t n, float *out) {
  v8 total[2][2];
  for (int i = 0; i < N; i++)
    for (int c = 0; c < C; c++) total[i][c] = all8(0);
  for (uint32_t wave = 0; wave < 8; wave++) {
    v8 sum[2][2];
#pragma GCC unroll 4
    for (uint32_t part = 0; part < 4; part++) {
      const uint32_t p = wave + 8 * part;
      for (int c = 0; c < C; c++) {
        const v8 v = load_part(values + D * p + d + 8 * c, n);
        for (int i = 0; i < N; i++) {
          const v8 product = all8(e[step * i + p]) * v;
          sum[i][c] = part ? sum[i][c] + product : product;
        }
      }
    }
    for (int i = 0; i < N; i++)
      for (int c = 0; c < C; c++) total[i][c] = total[i][c] + sum[i][c];
  }
  for (int i = 0; i < N; i++)
    for (int c = 0; c < C; c++) {
      float *to = out + (size_t)i * D + d + 8 * c;
      store_part(to, load_part(to, n) + total[i][c] * all8(factor[i]), n);
    }
}
// All channels of N queries.
INLINE void gather_row(int N, const float *e, size_t step, const float *values, const float *factor, uint32_t D, float *out) {
  uint32_t d = 0;
  for (; d + 16 <= D; d += 16) gather(N, 2, e, step, values, factor, D, d, 8, out);
  for (; d < D; d += 8) gather(N, 1, e, step, values, factor, D, d, D - d, out);
}
#define GATHER(N)                                                       \
  do {                                                                  \
    if (D == 64) gather_row(N, e, step, values, factor, 64, out);       \
    else if (D == 128) gather_row(N, e, step, values, factor, 128, out); \
    else gather_row(N, e, step, values, factor, D, out);                \
  } while (0)
static void gather_all(uint32_t n, const float *e, size_t step, const float *values, const float *factor, uint32_t D, float *out) {
  for (; n >= TOGETHER; n -= TOGETHER, e += TOGETHER * step, out += TOGETHER * D, factor += TOGETHER) GATHER(TOGETHER);
  if (n) GATHER(1);
}

// What the queries of a tile share: q[n][wide], scores[n][room], out[n][D], and a split's keys and values.
typedef struct {
  float *q, *scores, *most, *shares, *keys, *values, *out;
  uint32_t wide, room, splits;
} tile;

static size_t tile_floats(uint32_t D, uint32_t positions, uint32_t queries) {
  const size_t wide = (D + 31) / 32 * 32, splits = (positions + SPLIT - 1) / SPLIT;
  return queries * (wide + splits * (SPLIT + 2) + D) + SPLIT * (wide + D);
}
static tile tile_of(float *memory, uint32_t D, uint32_t positions, uint32_t queries) {
  tile m = {.wide = (D + 31) / 32 * 32, .splits = (positions + SPLIT - 1) / SPLIT};
  m.room = m.splits * SPLIT;
  m.keys = memory;
  m.q = m.keys + SPLIT * m.wide;
  m.scores = m.q + (size_t)queries * m.wide;
  m.values = m.scores + (size_t)queries * m.room;
  m.most = m.values + (size_t)SPLIT * D;
  m.shares = m.most + (size_t)queries * m.splits;
  m.out = m.shares + (size_t)queries * m.splits;
  return m;
}

INLINE float max32(const float *x) {
  v8 top = load8(x);
  for (int i = 8; i < SPLIT; i += 8) {
    const v8 y = load8(x + i);
    top = pick8((i8)(y > top), y, top);
  }
  return max8(top);
}

// Of a query's splits: what is taken from their scores, in place of their maxima, and the factors that this asks for.
INLINE void shrink(float *tops, uint32_t n, float most, float *factors) {
  for (uint32_t b = 0; b < n; b += 8) {
    const v8 top = load_part(tops + b, n - b), shift = pick8((i8)(top == all8(-INFINITY)), all8(-0x1.fffffep127f), top);
    store_part(tops + b, shift, n - b);
    store_part(factors + b, exp8(shift - all8(most)), n - b);
  }
}

// n queries; query i sees keys [low[i], high[i]) of `positions`.
static void attend_tile(const source *s, tile *m, uint32_t n, const uint32_t *low, const uint32_t *high, uint32_t positions) {
  const float scale = (float)(1 / sqrt((double)s->D));
  const uint32_t D = s->D;
  for (uint32_t b = 0; b < positions; b += SPLIT) {
    load_keys(s, b, gr_min(SPLIT, positions - b), m->keys);
    for (uint32_t h = 0; h < gr_min(SPLIT, positions - b); h += 16) score_all(n, m->q, m->wide, m->keys + h, scale, m->scores + b + h, m->room);
  }
  float most[MOST];
  for (uint32_t i = 0; i < n; i++) {
    float *x = m->scores + (size_t)i * m->room;
    for (uint32_t p = 0; p < low[i]; p++) x[p] = -INFINITY;
    for (uint32_t p = high[i]; p < m->room; p++) x[p] = -INFINITY;
    most[i] = -INFINITY;
    for (uint32_t b = 0; b < m->splits; b++) {
      const float top = max32(x + SPLIT * b);
      m->most[i * m->splits + b] = top;
      most[i] = top > most[i] ? top : most[i];
    }
  }
  memset(m->out, 0, sizeof(float) * n * D);
  for (uint32_t i = 0; i < n; i++) shrink(m->most + i * m->splits, m->splits, most[i], m->shares + i * m->splits);
  for (uint32_t b = 0; b < m->splits; b++) {
    float factor[MOST];
    for (uint32_t i = 0; i < n; i++) {
      float *x = m->scores + (size_t)i * m->room + SPLIT * b, *share = m->shares + i * m->splits + b;
      const v8 shift = all8(m->most[i * m->splits + b]);
      v8 e[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) store8(x + 8 * k, e[k] = exp8(load8(x + 8 * k) - shift));
      factor[i] = *share;
      *share = factor[i] * tree32(e);
    }
    load_values(s, SPLIT * b, gr_min(SPLIT, positions - SPLIT * b), m->values);
    gather_all(n, m->scores + SPLIT * b, m->room, m->values, factor, D, m->out);
  }
  for (uint32_t i = 0; i < n; i++) {
    const float total = group_sum(m->shares + i * m->splits, m->splits, 0);
    for (uint32_t d = 0; d < D; d++) m->out[i * D + d] /= total;
  }
}

static void set_query(tile *m, uint32_t i, const float *q, uint32_t D) {
  memset(m->q + i * m->wide, 0, sizeof(float) * m->wide);
  memcpy(m->q + i * m->wide, q, sizeof(float) * D);
}

// Queries r .. r + n - 1 of kv head g, counted over tokens and the heads of a group.
static float *attend_some(const gr_attend *a, uint32_t g, uint32_t r, uint32_t n, float *memory) {
  const uint32_t group = a->H / a->G, first = (uint32_t)a->pos[0] + 1, end = first + (r + n - 1) / group;
  const source s = {.kc = a->kc, .vc = a->vc, .half = a->type_S, .G = a->G, .D = a->D, .g = g};
  tile m = tile_of(memory, a->D, end, n);
  uint32_t low[MOST] = {0}, high[MOST];
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t t = (r + i) / group, h = g * group + (r + i) % group;
    set_query(&m, i, AT(float, a->q, (size_t)a->q_row * t + (size_t)a->q_col * h), a->D);
    high[i] = first + t;
  }
  attend_tile(&s, &m, n, low, high, end);
  return m.out;
}

// A finished head of a token: gated, stored and quantised as the record asks; `row` collects what is quantised later.
static void put_head(const gr_attend *a, uint32_t t, uint32_t h, float *y, float *row) {
  const uint32_t D = a->D;
  if (a->y) memcpy(AT(float, a->y, (size_t)a->y_row * t + (size_t)a->y_col * h), y, 4 * (size_t)D);
  if (a->sigmoid_gate_in) {
    const float *gate = AT(float, a->sigmoid_gate_in, (size_t)a->sigmoid_gate_in_row * t + (size_t)a->sigmoid_gate_in_col * h);
    for (uint32_t d = 0; d < D; d += 8) store_part(y + d, gated8(load_part(y + d, D - d), load_part(gate + d, D - d)), D - d);
    if (a->sigmoid_gate_out)
      memcpy(AT(float, a->sigmoid_gate_out, (size_t)a->sigmoid_gate_out_row * t + (size_t)a->sigmoid_gate_out_col * h), y, 4 * (size_t)D);
  }
  if (row) memcpy(row + h * D, y, 4 * (size_t)D);
  else if (a->quantize_out)
    quantise_range(y, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->H * D, h * D, h * D + D);
}

// So many that the slowest thread ends soonest, loading keys and values being worth the sums of LOADING queries, and
// scores stay in the cache.
static uint32_t queries_at_once(uint32_t G, uint32_t queries, uint32_t positions, uint32_t threads) {
  enum { LOADING = 3, CACHED = 1 << 16 };
  const uint32_t most = gr_min(MOST, gr_max(LOADING, CACHED / positions));
  uint32_t best = 1, least = UINT32_MAX;
  for (uint32_t n = 1; n <= gr_min(most, queries); n++) {
    const uint32_t tiles = G * ((queries + n - 1) / n), cost = (tiles + threads - 1) / threads * (n + LOADING);
    if (cost < least) best = n, least = cost;
  }
  return best;
}

static void attend(const void *record, gr_worker *w) {
  const gr_attend *a = record;
  const uint32_t D = a->D, group = a->H / a->G, queries = a->T * group;
  const uint32_t at_once = queries_at_once(a->G, queries, (uint32_t)a->pos[0] + a->T, w->threads);
  const size_t floats = tile_floats(D, (uint32_t)a->pos[0] + a->T, at_once);
  float *memory = gr_scratch(w, sizeof(float) * (floats + (size_t)a->H * D));
  if (!memory) return;
  if (a->quantize_out && D % 32) { // heads are not whole blocks: a thread computes whole tokens
    float *row = memory + floats;
    for (uint32_t t = w->thread; t < a->T; t += w->threads) {
      for (uint32_t h = 0; h < a->H; h++) put_head(a, t, h, attend_some(a, h / group, t * group + h % group, 1, memory), row);
      quantise_range(row, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->H * D, 0, a->H * D);
    }
    return;
  }
  const uint32_t tiles = (queries + at_once - 1) / at_once;
  for (uint32_t i = w->thread; i < a->G * tiles; i += w->threads) { // later tokens see more positions: dealt like cards
    const uint32_t g = i % a->G, r = i / a->G * at_once, n = gr_min(at_once, queries - r);
    float *out = attend_some(a, g, r, n, memory);
    for (uint32_t j = 0; j < n; j++) put_head(a, (r + j) / group, g * group + (r + j) % group, out + j * D, 0);
  }
}

// Keys before the step from a ring, then the whole step's own; `window` positions or more behind a query none is seen.
static void attend_block(const void *record, gr_worker *w) {
  const gr_attend_block *a = record;
  const uint32_t D = a->D, first = (uint32_t)a->pos[0], window = (uint32_t)a->window;
  const uint32_t context = window ? gr_min(first, window) : first, positions = context + a->T;
  const uint32_t cuts = D % 32 ? 1 : a->H, heads = a->H / cuts, group = a->H / a->G;
  const gr_range pieces = gr_share(a->T * cuts, w);
  const size_t floats = tile_floats(D, positions, 1);
  float *memory = gr_scratch(w, sizeof(float) * (floats + (size_t)heads * D));
  if (!memory) return;
  float *row = memory + floats;
  tile m = tile_of(memory, D, positions, 1);
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t t = i / cuts, begin = i % cuts * heads;
    for (uint32_t h = begin; h < begin + heads; h++) {
      const source s = {a->kc, a->vc, a->k, a->v, a->type_Z, a->G, D, h / group, a->S, first - context, context, a->k_row, a->k_col, a->v_row, a->v_col};
      const uint32_t reach = context + t + 1, low = window && reach > window ? reach - window : 0;
      set_query(&m, 0, AT(float, a->q, (size_t)a->q_row * t + (size_t)a->q_col * h), D);
      attend_tile(&s, &m, 1, &low, &positions, positions);
      memcpy(row + (size_t)(h - begin) * D, m.out, 4 * (size_t)D);
      if (a->y) memcpy(AT(float, a->y, (size_t)a->y_row * t + (size_t)a->y_col * h), m.out, 4 * (size_t)D);
    }
    if (a->quantize_out)
      quantise_range(row, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->H * D, begin * D, (begin + heads) * D);
  }
}
