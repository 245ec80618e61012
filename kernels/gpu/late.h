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

// A wave merges 128 channels of a head at a time: it weighs the splits, one a lane, and adds their averages in order.
enum { WAVE_CHANNELS = 4 * LANES, IN_FLIGHT = 4 };
INLINE void merge_line(LDS uint8_t *x, const gr_attend GR_CONSTANT *a, uint32_t GLOBAL *scratch, uint32_t used, uint32_t nb) {
  const uint32_t D = a->D, pieces = ceil_div(D, WAVE_CHANNELS), s = lane_id();
#pragma nounroll
  for (uint32_t unit = block_thread() / LANES; unit < a->H * pieces; unit += BLOCK / LANES) {
    const uint32_t h = unit / pieces, c = unit % pieces * WAVE_CHANNELS + 4 * lane_id(), there = c < D;
    const float GLOBAL *parts = parts_of(a, scratch, h), *own = parts + (size_t)(s < used ? s : 0) * (D + 2);
    const float GLOBAL *o = parts + 2 + (there ? c : 0);
    f32x4 y = {0, 0, 0, 0}, part[IN_FLIGHT];
#define LOAD_PARTS(s)                                                                                                  \
  UNROLL(n, IN_FLIGHT) {                                                                                               \
    const f32x2 GLOBAL *p = (const f32x2 GLOBAL *)(o + (size_t)((s) + n < used ? (s) + n : used - 1) * (D + 2));       \
    part[n] = (f32x4){p[0][0], p[0][1], p[1][0], p[1][1]};                                                             \
  }
    const float m = own[0], l = own[1];
    LOAD_PARTS(0)
    const float most = wave_max(s < used ? m : -__builtin_inff());
    const float weight = s < used ? exp_f(m - most) : 0, total = wave_sum(s < used ? weight * l : 0);
#pragma nounroll
    for (uint32_t from = 0; from < used; from += IN_FLIGHT) {
      f32x4 now[IN_FLIGHT];
      UNROLL(n, IN_FLIGHT) now[n] = part[n];
      LOAD_PARTS(from + IN_FLIGHT)
      UNROLL(n, IN_FLIGHT) {
        const float factor = float_of(of_lane(bits_of(weight), from + n < used ? from + n : 0));
        if (from + n < used) y = y + now[n] * factor;
      }
    }
    y = y / total;
    if (a->sigmoid_gate_in) y = gated_four(y, *(const f32x4 GLOBAL *)(ROW(a->sigmoid_gate_in, a->sigmoid_gate_in_col, h) + (there ? c : 0)));
    put_quantised(x, nb, there ? (h * D + c) / 4 : 8 * nb + lane_id() % 8, y);
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

// The delta rule for 32 value channels of a head, a wave for each half of the key channels. Its part of the state lies in
// shared memory meanwhile. What it gives lies in scratch memory, all heads one after the other.
enum { AT_STATE = (DELTA_WORDS + 3) / 4 * 4, COLUMNS_LDS = 4 * (AT_STATE + MOST_STATE * LANES) };
#define STATE_ROWS(i) _Pragma("unroll") for (uint32_t i = thread_id() / 8; i < MOST_STATE; i += THREADS / 8) if (i < D)
INLINE void delta_columns(const gr_delta_layer GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, pieces = D / LANES, h = w.group / pieces, first = w.group % pieces * LANES, column = first + lane_id();
  const uint32_t heads = (uint32_t)a->heads, key = h % heads, i = thread_id() % MOST_STATE, is_k = thread_id() / MOST_STATE;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], 1};
  const rule r = RULE(a, h);
  float GLOBAL *state = r.s + r.slot % r.L * r.all + r.head + first + 4 * (thread_id() % 8);
  LDS f32x4 *rows = (LDS f32x4 *)(SHARED + AT_STATE) + thread_id() % 8; // eight of them a row
  f32x4 loaded[MOST_STATE * 8 / THREADS];
  STATE_ROWS(n) loaded[n * 8 / THREADS] = r.fresh ? (f32x4){0, 0, 0, 0} : *(const f32x4 GLOBAL *)(state + (size_t)n * D);
  const int rules = wave_id() < 2;
  float v = 0, sum = 0;
  if (rules) v = convolve_one(c, (2 * heads + h) * D + column);
  const float unit = i < D ? convolve_one(c, (is_k * heads + key) * D + i) : 0;
  share_units(r, unit);
  STATE_ROWS(n) rows[8 * n] = loaded[n * 8 / THREADS];
  barrier();
  const uint32_t half = D / 2, from = wave_id() ? HALVES : 0;
  LDS float *mine = SHARED + AT_STATE + (wave_id() ? half : 0) * LANES + lane_id();
  const float decay = exp_f(r.a * softplus_f(a->g[h] + r.dt)), beta = gated_f(1.0f, a->b[h]);
  if (rules) {
#pragma unroll 8
    for (uint32_t n = 0; n < half; n++) {
      const float s = mine[n * LANES] * decay;
      mine[n * LANES] = s;
      sum = sum + SHARED[AT_K + from + n] * s;
    }
    SHARED[AT_BOTH + thread_id()] = sum;
  }
  barrier();
  if (rules) {
    const float delta = (v - (SHARED[AT_BOTH + lane_id()] + SHARED[AT_BOTH + LANES + lane_id()])) * beta;
    sum = 0;
#pragma unroll 8
    for (uint32_t n = 0; n < half; n++) {
      const float s = mine[n * LANES] + SHARED[AT_K + from + n] * delta;
      mine[n * LANES] = s;
      sum = sum + SHARED[AT_Q + from + n] * s;
    }
    SHARED[AT_BOTH + 2 * LANES + thread_id()] = sum;
  }
  barrier();
  STATE_ROWS(n) *(f32x4 GLOBAL *)(state + (size_t)n * D) = rows[8 * n];
  if (wave_id() == 0) {
    float GLOBAL *o = (float GLOBAL *)(w.scratch + COUNTERS);
    o[h * D + column] = SHARED[AT_BOTH + 2 * LANES + lane_id()] + SHARED[AT_BOTH + 3 * LANES + lane_id()];
    keep_inputs(c, (2 * heads + h) * D + column);
  }
  if (h < heads && first == 0 && i < D) keep_inputs(c, (is_k * heads + h) * D + i);
}
// Its gated norm: sums of squares of 32 channels by waves first.
INLINE void delta_line(LDS uint8_t *x, const gr_delta_layer GR_CONSTANT *a, uint32_t GLOBAL *scratch, LDS float *squares, uint32_t nb) {
  const float GLOBAL *o = (const float GLOBAL *)(scratch + COUNTERS);
  const uint32_t D = a->D, fours = 8 * nb;
  f32x4 v = four(o, block_thread(), fours), z = four(a->z, block_thread(), fours);
#pragma unroll 2
  for (uint32_t b = block_thread() / LANES; b < nb; b += BLOCK / LANES) {
    const float y = o[32 * b + lane_id()], sum = wave_sum(y * y);
    if (lane_id() == 0) squares[b] = sum;
  }
  block_barrier();
#pragma nounroll
  FOR_FOURS(i, nb) {
    const uint32_t at = i < fours ? i : fours - 1, h = 4 * at / D, c = 4 * at % D;
    const f32x4 value = v, gate = z;
    v = four(o, i + BLOCK, fours);
    z = four(a->z, i + BLOCK, fours);
    float total = 0;
    for (uint32_t n = 0; n < D / LANES; n++) total = total + squares[h * (D / LANES) + n];
    const float scale = 1.0f / __builtin_sqrtf(total / (float)D + (float)a->eps);
    put_quantised(x, nb, i, value * scale * *(const f32x4 GLOBAL *)(a->norm + c) * gated_four(gate, gate));
  }
}
