// What blocks of the resident kernel finish by themselves before a product: the parts of attention, and the norm of the
// delta rule. Then no workgroup waits for the last of a head.
#pragma once
#include "product.h"

enum { LATE_SPLITS = LANES }; // of attention: so many parts a wave merges; of more the last workgroup does

INLINE uint32_t splits_of(uint32_t pos) { return pos / SPLIT + 1; }
INLINE float GLOBAL *parts_of(const gr_attend GR_CONSTANT *a, uint32_t GLOBAL *scratch, uint32_t h) {
  const uint32_t all = ceil_div(a->C, SPLIT), splits = all < MOST_PARTS ? all : MOST_PARTS;
  return (float GLOBAL *)(scratch + COUNTERS) + (size_t)h * splits * (a->D + 2);
}
// The part of one split of one head: workgroup `g` of H * splits.
INLINE void part_of_split(const gr_attend GR_CONSTANT *a, gr_work w, uint32_t pos) {
  const uint32_t D = a->D, h = w.group % a->H, split = w.group / a->H;
  const rows keys = {a->kc, 0, !a->type_S, a->G * D, h / (a->H / a->G) * D, 0, 0, ~0u, 0};
  visible x = {keys, keys, 0, pos + 1, D};
  x.values.cache = a->vc;
  const float GLOBAL *from = ROW(a->q, a->q_col, h);
  float q[PIECES], m, l, o;
#define PART(W) (load_query(W, q, from, D), average_split(W, q, &x, split *SPLIT, &m, &l))
  o = BY_WIDTH(D, PART);
#undef PART
  write_part(parts_of(a, w.scratch, h) + (size_t)split * (D + 2), m, l, o, D);
}

// The heads of a wave's 128 channels: weights of their splits by lane, and their sums.
enum { WAVE_HEADS = 4, IN_FLIGHT = BESIDE > 1 ? 16 : 8 };
typedef struct {
  float weight[WAVE_HEADS], total[WAVE_HEADS];
  uint32_t first, count, mine;
} heads_of_wave;
#define FOR_HEADS(x, j) UNROLL(j, WAVE_HEADS) if (j < (x)->count)
INLINE float of_head(const heads_of_wave *x, const float *y) {
  float found = y[0];
  FOR_HEADS(x, j) found = x->mine == j ? y[j] : found;
  return found;
}
INLINE void weigh(heads_of_wave *x, const gr_attend GR_CONSTANT *a, uint32_t GLOBAL *scratch, uint32_t used) {
  float m[WAVE_HEADS], l[WAVE_HEADS];
  const uint32_t s = lane_id();
  FOR_HEADS(x, j) {
    const float GLOBAL *p = parts_of(a, scratch, x->first + j) + (size_t)(s < used ? s : 0) * (a->D + 2);
    m[j] = p[0];
    l[j] = p[1];
  }
  FOR_HEADS(x, j) {
    const float most = wave_max(s < used ? m[j] : -__builtin_inff());
    x->weight[j] = s < used ? exp_f(m[j] - most) : 0;
    x->total[j] = wave_sum(s < used ? x->weight[j] * l[j] : 0);
  }
}
INLINE void merge_line(LDS uint8_t *x, const gr_attend GR_CONSTANT *a, uint32_t GLOBAL *scratch, uint32_t used, uint32_t nb) {
  const uint32_t D = a->D;
  FOR_FOURS(i, nb) {
    const uint32_t at = i < 8 * nb ? i : 8 * nb - 1, h = 4 * at / D, c = 4 * at % D;
    heads_of_wave k;
    k.first = first_lane(4 * (i - lane_id()) / D);
    k.count = first_lane(of_lane(h, LANES - 1)) - k.first + 1;
    k.mine = h - k.first;
    const float GLOBAL *o = parts_of(a, scratch, h) + 2 + c;
    f32x4 y = {0, 0, 0, 0}, part[IN_FLIGHT];
#define LOAD_PARTS(s)                                                                                                  \
  UNROLL(n, IN_FLIGHT) {                                                                                               \
    const f32x2 GLOBAL *p = (const f32x2 GLOBAL *)(o + (size_t)((s) + n < used ? (s) + n : used - 1) * (D + 2));       \
    part[n] = (f32x4){p[0][0], p[0][1], p[1][0], p[1][1]};                                                             \
  }
    LOAD_PARTS(0)
    weigh(&k, a, scratch, used);
    for (uint32_t s = 0; s < used; s += IN_FLIGHT) {
      if (s) LOAD_PARTS(s)
      UNROLL(n, IN_FLIGHT) {
        float weight[WAVE_HEADS];
        if (s + n >= used) break;
        FOR_HEADS(&k, j) weight[j] = float_of(of_lane(bits_of(k.weight[j]), s + n));
        const float mine = of_head(&k, weight);
        y = y + part[n] * mine;
      }
    }
    y = y / of_head(&k, k.total);
    if (a->sigmoid_gate_in) {
      const f32x4 gate = *(const f32x4 GLOBAL *)(ROW(a->sigmoid_gate_in, a->sigmoid_gate_in_col, h) + c);
      UNROLL(j, 4) y[j] = gated_f(y[j], gate[j]);
    }
    put_quantised(x, nb, i, y);
  }
}

// Channel c of the convolution of one token, all loads first.
enum { TAPS = 8 };
INLINE float convolve_one(convolution a, uint32_t c) {
  float x[TAPS], w[TAPS], sum = 0;
  UNROLL(tap, TAPS)
    if (tap < a.K) {
      const uint32_t back = a.K - 1 - tap, row = a.pos - back;
      x[tap] = back == 0 ? a.x[c] : a.pos >= back ? a.tail[(size_t)(row % a.S) * a.N + c] : 0;
      w[tap] = a.w[(size_t)c * a.K + tap];
    }
  UNROLL(tap, TAPS)
    if (tap < a.K) sum = tap ? sum + x[tap] * w[tap] : x[tap] * w[tap];
  return gated_f(sum, sum);
}
// What a workgroup needs that no call of this step makes, on its way to the second cache.
INLINE void fetch_columns(const gr_delta_layer GR_CONSTANT *a, uint32_t group) {
  const uint32_t D = a->D, pieces = D / LANES, h = group / pieces, column = group % pieces * LANES, i = thread_id();
  if (h >= a->U) return;
  if (i < D) fetch_ahead(a->s + ((size_t)((uint32_t)a->slot[0] % a->L) * a->U + h) * D * D + (size_t)i * D + column);
  else if (i - MOST_STATE < a->K * LANES / 8) fetch_ahead(a->w + (size_t)((2 * (uint32_t)a->heads + h) * D + column) * a->K + 8 * (i - MOST_STATE));
}

// The delta rule for 32 value channels of a head, a wave for each half of the key channels. What it gives lies in
// scratch memory, all heads one after the other.
INLINE void delta_columns(const gr_delta_layer GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, pieces = D / LANES, h = w.group / pieces, column = w.group % pieces * LANES + lane_id();
  const uint32_t heads = (uint32_t)a->heads, key = h % heads, i = thread_id() % MOST_STATE, is_k = thread_id() / MOST_STATE;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], 1};
  const rule r = RULE(a, h);
  const state_part p = {column, wave_id()};
  const int rules = wave_id() < 2;
  float s[HALF], v = 0, sum = 0;
  if (rules) load_state(r, p, s);
  if (rules) v = convolve_one(c, (2 * heads + h) * D + column);
  const float unit = i < D ? convolve_one(c, (is_k * heads + key) * D + i) : 0;
  share_units(r, unit);
  barrier();
  const uint32_t from = p.half ? HALVES : 0;
  const float decay = exp_f(r.a * softplus_f(a->g[h] + r.dt)), beta = gated_f(1.0f, a->b[h]);
  if (rules) {
    sum = decay_half(D, s, decay, AT_K + from);
    SHARED[AT_BOTH + thread_id()] = sum;
  }
  barrier();
  if (rules) {
    const float delta = (v - (SHARED[AT_BOTH + lane_id()] + SHARED[AT_BOTH + LANES + lane_id()])) * beta;
    sum = update_half(D, s, delta, AT_K + from, AT_Q + from);
    SHARED[AT_BOTH + 2 * LANES + thread_id()] = sum;
    keep_state(r, p, s, 0);
  }
  barrier();
  if (wave_id() == 0) {
    float GLOBAL *o = (float GLOBAL *)(w.scratch + COUNTERS);
    o[h * D + column] = SHARED[AT_BOTH + 2 * LANES + lane_id()] + SHARED[AT_BOTH + 3 * LANES + lane_id()];
    keep_inputs(c, (2 * heads + h) * D + column);
  }
  if (h < heads && w.group % pieces == 0 && i < D) keep_inputs(c, (is_k * heads + h) * D + i);
}
// Its gated norm: sums of squares of 32 channels by waves first.
INLINE void delta_line(LDS uint8_t *x, const gr_delta_layer GR_CONSTANT *a, uint32_t GLOBAL *scratch, LDS float *squares, uint32_t nb) {
  const float GLOBAL *o = (const float GLOBAL *)(scratch + COUNTERS);
  const uint32_t D = a->D, fours = 8 * nb;
  f32x4 v[EARLY], z[EARLY];
  FOR_EARLY(j, i) v[j] = four(o, i, fours), z[j] = four(a->z, i, fours);
  for (uint32_t b = block_thread() / LANES; b < nb; b += BLOCK / LANES) {
    const float y = o[32 * b + lane_id()], sum = wave_sum(y * y);
    if (lane_id() == 0) squares[b] = sum;
  }
  block_barrier();
#define NORM_FOUR(i, value, gate)                                                                                      \
  do {                                                                                                                 \
    const uint32_t at = (i) < fours ? (i) : fours - 1, h = 4 * at / D, c = 4 * at % D;                                 \
    float total = 0;                                                                                                   \
    for (uint32_t n = 0; n < D / LANES; n++) total = total + squares[h * (D / LANES) + n];                             \
    const float scale = 1.0f / __builtin_sqrtf(total / (float)D + (float)a->eps);                                      \
    f32x4 y = (value) * scale * *(const f32x4 GLOBAL *)(a->norm + c);                                                  \
    UNROLL(n, 4) y[n] = y[n] * gated_f((gate)[n], (gate)[n]);                                                          \
    put_quantised(x, nb, i, y);                                                                                        \
  } while (0)
  FOR_EARLY(j, i)
    if (i - lane_id() < fours) NORM_FOUR(i, v[j], z[j]);
  FOR_LATE(i, nb) NORM_FOUR(i, four(o, i, fours), four(a->z, i, fours));
}
