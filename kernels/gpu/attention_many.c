// Attention of many tokens: a workgroup has up to 64 queries of a kv head, which share keys and values in shared memory,
// and goes over them twice, for the maximum of each query and for its average. Every sum is in the order of attention.c.
#include "attention.c"

enum { QUERIES = 64, WIDE_QUERIES = 16, MOST_HEADS = 4, SLOTS = THREADS, EACH_WEIGHTS = SPLIT + 4 };
// Words of shared memory: queries, then keys or values, then weights with a split's factor and the sum of all.
#define LINE_OF(W) (LANES * (W) + 4)
enum { FLASH_WORDS = (QUERIES + SPLIT) * LINE_OF(4) + QUERIES * EACH_WEIGHTS };

// What a workgroup has: tokens t0 .. t0 + tokens - 1 and `heads` query heads from h0; query n is token n / heads.
typedef struct {
  const gr_attend GR_CONSTANT *a;
  float GLOBAL *sums; // [query][slot], of the splits' shares of the sum
  uint32_t t0, tokens, h0, heads, pos;
  visible x;
} flash;
// Scores of Q queries and a split's keys: a thread has every DOWN-th query and every ACROSS-th key.
#define ACROSS(Q) ((Q) >= 32 ? 8 : 16)     // threads side by side with a query's keys
#define DOWN(Q) (THREADS / ACROSS(Q))      // and with a key's queries
#define OWN_QUERIES(Q) ((Q) / DOWN(Q))
#define OWN_KEYS(Q) (SPLIT / ACROSS(Q))
enum { MOST_QUERIES = 2, MOST_KEYS = 4 };
INLINE int is_query(const flash *f, uint32_t n) { return n < f->tokens * f->heads; }
INLINE uint32_t token_of(const flash *f, uint32_t n) { return f->t0 + n / f->heads; }
INLINE uint32_t head_of(const flash *f, uint32_t n) { return f->h0 + n % f->heads; }

// Lanes in the order in which a wave's sum adds them: neighbours first. A line has the channels of one after the other.
INLINE uint32_t place_of(uint32_t lane) { return __builtin_bitreverse32(lane) >> 27; }
INLINE void put_line(uint32_t W, LDS float *line, const float *channels, int by_place) {
  UNROLL(j, W) line[by_place ? place_of(lane_id()) * W + j : channel_of(j)] = channels[j];
}
INLINE void put_queries(uint32_t W, uint32_t Q, const flash *f, uint32_t first) {
  for (uint32_t n = wave_id(); n < Q; n += WAVES) {
    float q[PIECES] = {0};
    const uint32_t at = first + n;
    if (is_query(f, at)) load_query(W, q, ROW(ROW(f->a->q, f->a->q_row, token_of(f, at)), f->a->q_col, head_of(f, at)), f->x.D);
    put_line(W, (LDS float *)gr_lds + n * LINE_OF(W), q, 1);
  }
}
// Rows wave, wave + 8, ... of a split's keys or values, once all threads have done with what was there.
INLINE void put_rows(uint32_t W, uint32_t Q, const channels *rows, uint32_t D, int by_place) {
  LDS float *to = (LDS float *)gr_lds + Q * LINE_OF(W);
  barrier();
  UNROLL(i, PER_WAVE) {
    float values[PIECES];
    UNROLL(j, W) values[j] = channel_of(j) < D ? value_of(&rows[i], j) : 0;
    put_line(W, to + (wave_id() + WAVES * i) * LINE_OF(W), values, by_place);
  }
  barrier();
}

// Scores of a thread's queries and keys.
typedef struct {
  float of[MOST_QUERIES][MOST_KEYS];
} scores;
#define FOR_PAIRS(Q) UNROLL(i, OWN_QUERIES(Q)) UNROLL(j, OWN_KEYS(Q))
INLINE scores add_scores(uint32_t Q, scores a, scores b) {
  FOR_PAIRS(Q) a.of[i][j] = a.of[i][j] + b.of[i][j];
  return a;
}
// The sum of two places that are neighbours, from word `at` of the lines.
INLINE scores two_places(uint32_t W, uint32_t Q, const LDS float *q, const LDS float *k) {
  scores half[2];
  UNROLL(c, W / 2) {
    f32x4 x[MOST_QUERIES], y[MOST_KEYS];
    UNROLL(i, OWN_QUERIES(Q)) x[i] = *(const LDS f32x4 *)(q + DOWN(Q) * i * LINE_OF(W) + 4 * c);
    UNROLL(j, OWN_KEYS(Q)) y[j] = *(const LDS f32x4 *)(k + ACROSS(Q) * j * LINE_OF(W) + 4 * c);
    FOR_PAIRS(Q) UNROLL(e, 4) {
      const uint32_t channel = 4 * c + e, place = channel / W;
      float *sum = &half[place].of[i][j];
      *sum = channel % W ? *sum + x[i][e] * y[j][e] : x[i][e] * y[j][e];
    }
    FOR_PAIRS(Q) half[(4 * c + 3) / W].of[i][j] = settled(half[(4 * c + 3) / W].of[i][j]);
  }
  return add_scores(Q, half[0], half[1]);
}
INLINE scores scores_of(uint32_t W, uint32_t Q, const flash *f, uint32_t first, uint32_t split) {
  const uint32_t key = thread_id() % ACROSS(Q), query = thread_id() / ACROSS(Q);
  const LDS float *q = (LDS float *)gr_lds + query * LINE_OF(W), *k = (LDS float *)gr_lds + (Q + key) * LINE_OF(W);
  scores sum = {0}, last = {0};
#pragma nounroll
  for (uint32_t eight = 0; eight < 4; eight++) {
    scores pair = two_places(W, Q, q, k), four = add_scores(Q, pair, two_places(W, Q, q + 2 * W, k + 2 * W));
    pair = two_places(W, Q, q + 4 * W, k + 4 * W);
    four = add_scores(Q, four, add_scores(Q, pair, two_places(W, Q, q + 6 * W, k + 6 * W)));
    if (eight == 0) sum = four;
    else if (eight == 2) last = four;
    else sum = add_scores(Q, sum, eight == 1 ? four : add_scores(Q, last, four));
    q += 8 * W, k += 8 * W;
  }
  FOR_PAIRS(Q) {
    const uint32_t at = f->pos + token_of(f, first + query + DOWN(Q) * i);
    const float score = (sum.of[i][j] + 0.0f) * inverse_root(f->x.D);
    sum.of[i][j] = split * SPLIT + key + ACROSS(Q) * j > at ? -__builtin_inff() : score;
  }
  return sum;
}
INLINE float most_across(uint32_t Q, float x) {
  for (uint32_t mask = ACROSS(Q) / 2; mask; mask /= 2) {
    const float other = float_of(lane_xor(bits_of(x), (int)mask));
    x = other > x ? other : x;
  }
  return x;
}
INLINE float most_of(uint32_t Q, const float *x) {
  float most = x[0];
  UNROLL(j, OWN_KEYS(Q)) most = x[j] > most ? x[j] : most;
  return most_across(Q, most);
}
INLINE LDS float *weights_at(uint32_t W, uint32_t Q, uint32_t query) { return (LDS float *)gr_lds + (Q + SPLIT) * LINE_OF(W) + query * EACH_WEIGHTS; }

// Weights of a split's keys, chain after chain, and its factor to shared memory; its share of the sum to its slot.
INLINE void weigh(uint32_t W, uint32_t Q, const flash *f, uint32_t first, uint32_t split, const scores *s, const float *most) {
  const uint32_t lane = thread_id() % ACROSS(Q);
  UNROLL(i, OWN_QUERIES(Q)) {
    const uint32_t query = thread_id() / ACROSS(Q) + DOWN(Q) * i;
    const float top = most_of(Q, s->of[i]), m = top == -__builtin_inff() ? -3.402823466e38f : top, factor = exp_f(m - most[i]);
    LDS float *to = weights_at(W, Q, query);
    float e[MOST_KEYS];
    UNROLL(j, OWN_KEYS(Q)) {
      e[j] = exp_f(s->of[i][j] - m);
      const uint32_t key = lane + ACROSS(Q) * j;
      to[key % WAVES * PER_WAVE + key / WAVES] = e[j];
    }
    float total = OWN_KEYS(Q) == 4 ? (e[0] + e[2]) + (e[1] + e[3]) : e[0] + e[1];
    for (uint32_t mask = ACROSS(Q) / 2; mask; mask /= 2) total = total + float_of(lane_xor(bits_of(total), (int)mask));
    const float share = factor * (total + 0.0f);
    if (lane) continue;
    to[SPLIT] = factor;
    float GLOBAL *sum = f->sums + (first + query) * SLOTS + split % SLOTS;
    *sum = split < SLOTS ? share : *sum + share;
  }
}

// A thread's part of the average: some queries next to each other, and four channels of each.
#define ACROSS_QUADS(W) (LANES * (W) / 4)
#define AVERAGED(W, Q) ((Q) * ACROSS_QUADS(W) / THREADS)
enum { MOST_AVERAGED = 8, AVERAGED_AT_ONCE = 4 };
INLINE uint32_t averaged(uint32_t W, uint32_t Q) { return thread_id() / ACROSS_QUADS(W) * AVERAGED(W, Q); }
INLINE uint32_t quad_of(uint32_t W) { return 4 * (thread_id() % ACROSS_QUADS(W)); }
INLINE void add_values(uint32_t W, uint32_t Q, f32x4 *y) {
  const LDS float *weights = weights_at(W, Q, averaged(W, Q)), *values = (LDS float *)gr_lds + Q * LINE_OF(W) + quad_of(W);
  UNROLL(part, AVERAGED(W, Q) / AVERAGED_AT_ONCE) {
    f32x4 o[AVERAGED_AT_ONCE];
    UNROLL(n, AVERAGED_AT_ONCE) o[n] = 0;
#pragma nounroll
    for (uint32_t chain = 0; chain < WAVES; chain++) {
      f32x4 v[PER_WAVE];
      UNROLL(i, PER_WAVE) v[i] = *(const LDS f32x4 *)(values + (chain + WAVES * i) * LINE_OF(W));
      UNROLL(n, AVERAGED_AT_ONCE) {
        const f32x4 e = *(const LDS f32x4 *)(weights + (AVERAGED_AT_ONCE * part + n) * EACH_WEIGHTS + PER_WAVE * chain);
        o[n] = o[n] + (((e[0] * v[0] + e[1] * v[1]) + e[2] * v[2]) + e[3] * v[3]);
        UNROLL(c, 4) o[n][c] = settled(o[n][c]);
      }
    }
    UNROLL(n, AVERAGED_AT_ONCE) {
      const uint32_t at = AVERAGED_AT_ONCE * part + n;
      y[at] = y[at] + o[n] * weights[at * EACH_WEIGHTS + SPLIT];
    }
  }
}
// Each query's sum over its slots, in all lanes of its wave.
INLINE float slots_sum(const float GLOBAL *sums, uint32_t splits) {
  float total = 0;
  for (uint32_t slot = lane_id(); slot < SLOTS; slot += LANES) total = total + wave_sum(slot < splits ? sums[slot] : 0);
  return total;
}
INLINE void finish_queries(uint32_t W, uint32_t Q, const flash *f, uint32_t first, uint32_t splits, const f32x4 *y) {
  LDS float *lines = (LDS float *)gr_lds;
  UNROLL(n, AVERAGED(W, Q)) *(LDS f32x4 *)(lines + (averaged(W, Q) + n) * LINE_OF(W) + quad_of(W)) = y[n];
  barrier();
  for (uint32_t n = wave_id(); n < Q && is_query(f, first + n); n += WAVES) {
    const float total = slots_sum(f->sums + (first + n) * SLOTS, splits);
    const uint32_t t = token_of(f, first + n), h = head_of(f, first + n);
    UNROLL(j, W)
      if (channel_of(j) < f->x.D) FINISH_HEAD(f->a, t, h, channel_of(j), lines[n * LINE_OF(W) + channel_of(j)] / total);
  }
  barrier();
}

INLINE void flash_queries(uint32_t W, uint32_t Q, const flash *f, uint32_t first) {
  const uint32_t D = f->x.D, splits = ceil_div(f->x.high, SPLIT);
  float most[MOST_QUERIES];
  f32x4 y[MOST_AVERAGED];
  channels rows[PER_WAVE];
  UNROLL(i, OWN_QUERIES(Q)) most[i] = -__builtin_inff();
  UNROLL(n, AVERAGED(W, Q)) y[n] = 0;
  put_queries(W, Q, f, first);
  load_four(W, f->x.keys, wave_id(), WAVES, f->x.high, D, rows);
#pragma nounroll
  for (uint32_t step = 0; step < 2 * splits; step++) {
    const uint32_t split = step % splits, next = (step + 1) % splits * SPLIT + wave_id();
    put_rows(W, Q, rows, D, 1);
    if (step < splits) load_four(W, f->x.keys, next, WAVES, f->x.high, D, rows);
    else load_four(W, f->x.values, split * SPLIT + wave_id(), WAVES, f->x.high, D, rows);
    const scores s = scores_of(W, Q, f, first, split);
    if (step < splits) {
      UNROLL(i, OWN_QUERIES(Q)) {
        const float m = most_of(Q, s.of[i]);
        most[i] = m > most[i] ? m : most[i];
      }
      continue;
    }
    weigh(W, Q, f, first, split, &s, most);
    put_rows(W, Q, rows, D, 0);
    load_four(W, f->x.keys, next, WAVES, f->x.high, D, rows);
    add_values(W, Q, y);
  }
  finish_queries(W, Q, f, first, splits, y);
}

INLINE void attn_flash(const gr_attend GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, R = a->H / a->G, parts = ceil_div(R, MOST_HEADS), heads = ceil_div(R, parts), tile = QUERIES / heads;
  const uint32_t part = w.group % parts, g = w.group / parts % a->G, t0 = w.group / parts / a->G * tile;
  if (t0 >= a->T || part * heads >= R) return;
  const rows keys = {a->kc, 0, !a->type_S, a->G * D, g * D, 0, 0, 0, 0};
  flash f = {.a = a, .t0 = t0, .tokens = a->T - t0 < tile ? a->T - t0 : tile, .h0 = g * R + part * heads};
  f.heads = R - part * heads < heads ? R - part * heads : heads, f.pos = (uint32_t)a->pos[0];
  f.x = (visible){keys, keys, 0, f.pos + t0 + f.tokens, D};
  f.x.values.cache = a->vc;
  f.sums = (float GLOBAL *)(w.scratch + COUNTERS) + (size_t)w.group * QUERIES * SLOTS;
  barrier();
  if (D <= 2 * LANES) flash_queries(2, QUERIES, &f, 0);
  else if (D <= 4 * LANES) flash_queries(4, QUERIES, &f, 0);
  else
#pragma nounroll
    for (uint32_t first = 0; is_query(&f, first); first += WIDE_QUERIES) flash_queries(8, WIDE_QUERIES, &f, first);
}
