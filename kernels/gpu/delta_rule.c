// Linear attention by the gated delta rule, token after token, so that a token's bits do not depend on the step.
#include "rows.h"

enum { MOST_STATE = 128, HALF = MOST_STATE / 2, ONLY_LAST = 17 }; // tokens from which only the last state is kept
// Words of shared memory: what gr.h uses, sums of waves, q, k and v of a token, and what halves of a sum exchange. The
// halves of q and k begin HALVES words from each other, in different banks.
enum { HALVES = HALF + 4, UNIT = HALVES + HALF };
enum { AT_SUMS = 16, AT_Q = AT_SUMS + WAVES, AT_K = AT_Q + UNIT, AT_V = AT_K + UNIT, AT_BOTH = AT_V + MOST_STATE, DELTA_WORDS = AT_BOTH + 2 * MOST_STATE };
#define SHARED ((LDS float *)gr_lds)
#define EACH(i, from, to) _Pragma("unroll") for (uint32_t i = (from); i < (to); i++)
// Channels of half a state, in registers, eight at a time; `count` of them exist.
#define FOR_EIGHTS(b) _Pragma("unroll") for (uint32_t b = 0; b < HALF; b += 8)

typedef struct {
  const float GLOBAL *x, *w;
  float GLOBAL *tail;
  uint32_t x_row, N, K, S, pos, T;
} convolution;

// Channel c of token t: taps are added oldest first; the ring `tail` has position p at row p % S.
INLINE float convolve(convolution a, uint32_t c, uint32_t t) {
  float sum = 0;
  for (uint32_t tap = 0; tap < a.K; tap++) {
    const int64_t at = (int64_t)t + tap - (a.K - 1), position = a.pos + at;
    float x = 0;
    if (at >= 0) x = ROW(a.x, a.x_row, at)[c];
    else if (position >= 0) x = a.tail[(size_t)((uint32_t)position % a.S) * a.N + c];
    const float term = x * a.w[(size_t)c * a.K + tap];
    sum = tap ? sum + term : term;
  }
  return gated_f(sum, sum);
}
INLINE void keep_inputs(convolution a, uint32_t c) {
  for (uint32_t t = a.T > a.S ? a.T - a.S : 0; t < a.T; t++) a.tail[(size_t)((a.pos + t) % a.S) * a.N + c] = ROW(a.x, a.x_row, t)[c];
}

enum { CONV_TOKENS = 16 }; // of a workgroup, as ops/delta.py says

// The first workgroup of a channel takes all tokens that look into the ring, and then overwrites its rows.
INLINE void conv_silu(const gr_conv_silu GR_CONSTANT *a, gr_work w) {
  const convolution v = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], a->T};
  const uint32_t pieces = ceil_div(a->N, THREADS), c = w.group % pieces * THREADS + thread_id(), piece = w.group / pieces;
  if (c >= a->N) return;
  uint32_t t = CONV_TOKENS * piece, end = t + CONV_TOKENS;
  const uint32_t looking = a->K - 1;
  if (piece == 0) end = end > looking ? end : looking;
  else t = t > looking ? t : looking;
  for (; t < end && t < a->T; t++) ROW(a->y, a->y_row, t)[c] = convolve(v, c, t);
  if (piece == 0) keep_inputs(v, c);
}

// One head.
typedef struct {
  uint32_t D, T, L, slot, fresh;
  size_t head, all; // floats to the head's state, and in all heads' states
  float dt, a, eps;
  float GLOBAL *s;
} rule;
// What a thread has of its state: a value channel, and half of the key channels.
typedef struct {
  uint32_t column, half;
} state_part;
INLINE state_part own_part(void) { return (state_part){thread_id() % MOST_STATE, thread_id() / MOST_STATE}; }
INLINE float GLOBAL *state_of(rule r, state_part p, uint32_t number) {
  return r.s + number % r.L * r.all + r.head + (size_t)(p.half ? r.D / 2 : 0) * r.D + p.column;
}

INLINE void load_state(rule r, state_part p, float *s) {
  EACH(i, 0, HALF) s[i] = 0;
  if (p.column >= r.D || r.fresh) return;
  const float GLOBAL *from = state_of(r, p, r.slot);
  FOR_EIGHTS(b) {
    const uint32_t step = anew(r.D), count = step / 2;
    if (b + 8 <= count) {
      EACH(i, 0, 8) s[b + i] = from[(size_t)i * step];
    } else
      EACH(i, 0, 8) if (b + i < count) s[b + i] = from[(size_t)i * step];
    from += 8 * (size_t)step;
  }
}
INLINE void keep_state(rule r, state_part p, const float *s, uint32_t t) {
  if (p.column >= r.D || ((r.T >= ONLY_LAST || r.T > r.L) && t + 1 < r.T)) return;
  float GLOBAL *to = state_of(r, p, r.slot + t);
  FOR_EIGHTS(b) {
    const uint32_t step = anew(r.D), count = step / 2;
    if (b + 8 <= count) {
      EACH(i, 0, 8) to[(size_t)i * step] = s[b + i];
    } else
      EACH(i, 0, 8) if (b + i < count) to[(size_t)i * step] = s[b + i];
    to += 8 * (size_t)step;
  }
}

// Where channel i of q or k is in shared memory: each half with zeros behind it, which are channels from D on.
INLINE uint32_t place_of_channel(uint32_t i, uint32_t D) {
  const uint32_t half = D / 2, last = i < D ? i : i - D, rest = HALF - half;
  return i < D ? (last < half ? last : HALVES + last - half) : (last < rest ? half + last : HALVES + half + last - rest);
}
// q in threads 0 .. D - 1 and k in threads 128 .. are divided by their lengths and put into shared memory.
INLINE void share_units(rule r, float x) {
  const uint32_t i = thread_id() % MOST_STATE, is_k = thread_id() / MOST_STATE;
  const float square = wave_sum(i < r.D ? x * x : 0);
  barrier();
  if (lane_id() == 0) SHARED[AT_SUMS + wave_id()] = square;
  barrier();
  float sum = 0;
  for (uint32_t wave = 0; wave < WAVES / 2; wave++) sum = sum + SHARED[AT_SUMS + WAVES / 2 * is_k + wave];
  const float unit = i < r.D ? x / __builtin_sqrtf(sum + r.eps) : 0;
  SHARED[(is_k ? AT_K : AT_Q) + place_of_channel(i, r.D)] = is_k ? unit : unit * inverse_root(r.D);
}

// Both halves of a sum over key channels, of this thread's column.
INLINE float both(rule r, float sum) {
  const uint32_t column = own_part().column;
  barrier();
  if (column < r.D) SHARED[AT_BOTH + thread_id()] = sum;
  barrier();
  return column < r.D ? SHARED[AT_BOTH + column] + SHARED[AT_BOTH + MOST_STATE + column] : 0;
}

// Eight words of shared memory, whose address is a multiple of 4 words.
typedef struct {
  f32x4 low, high;
} eight;
INLINE eight eight_of(uint32_t at) { return (eight){*(const LDS f32x4 *)(SHARED + at), *(const LDS f32x4 *)(SHARED + at + 4)}; }
INLINE float of_eight(eight x, uint32_t i) { return i < 4 ? x.low[i] : x.high[i - 4]; }
// Channels from `count` on are 0, whatever was computed of them.
INLINE void clear_rest(float *s, uint32_t count) {
  if (count < 8) EACH(i, 1, 8) s[i] = i < count ? s[i] : 0;
}

// Decay of half a column; its sum with k, whose half begins at word k of shared memory.
INLINE float decay_half(uint32_t D, float *s, float decay, uint32_t k) {
  float sum = 0;
  FOR_EIGHTS(c) {
    const uint32_t count = anew(D) / 2;
    if (c >= count) continue;
    const eight x = eight_of(k + c);
    EACH(i, 0, 8) s[c + i] = s[c + i] * decay;
    clear_rest(s + c, count - c);
    EACH(i, 0, 8) sum = sum + of_eight(x, i) * s[c + i];
  }
  return sum;
}
// Its update; its sum with q.
INLINE float update_half(uint32_t D, float *s, float delta, uint32_t k, uint32_t q) {
  float sum = 0;
  FOR_EIGHTS(c) {
    const uint32_t count = anew(D) / 2;
    if (c >= count) continue;
    const eight x = eight_of(k + c), y = eight_of(q + c);
    EACH(i, 0, 8) s[c + i] = s[c + i] + of_eight(x, i) * delta;
    clear_rest(s + c, count - c);
    EACH(i, 0, 8) sum = sum + of_eight(y, i) * s[c + i];
  }
  return sum;
}
// One token; q and k are in shared memory, v is this thread's column's, b and g the head's. Returns the column's o.
INLINE float recur(rule r, state_part p, float *s, float v, float b, float g) {
  barrier();
  const uint32_t from = p.half ? HALVES : 0;
  const float decay = exp_f(r.a * softplus_f(g + r.dt)), beta = gated_f(1.0f, b);
  float sum = 0;
  if (p.column < r.D) sum = decay_half(r.D, s, decay, AT_K + from);
  const float delta = (v - both(r, sum)) * beta;
  if (p.column < r.D) sum = update_half(r.D, s, delta, AT_K + from, AT_Q + from);
  return both(r, sum);
}

#define RULE(a, h)                                                                                                     \
  {(a)->D, (a)->T, (a)->L, (uint32_t)(a)->slot[0], (a)->pos[0] == 0, (size_t)(h) * (a)->D * (a)->D,                    \
   (size_t)(a)->U * (a)->D * (a)->D, (a)->dt[h], (a)->a[h], (float)(a)->eps, (a)->s}

INLINE void delta_rule(const gr_delta_rule GR_CONSTANT *a, gr_work w) {
  const uint32_t h = w.group, heads = (uint32_t)a->heads, key = h % heads;
  if (h >= a->U) return;
  const rule r = RULE(a, h);
  const state_part p = own_part();
  float s[HALF];
  load_state(r, p, s);
  for (uint32_t t = 0; t < a->T; t++) {
    const float GLOBAL *c = ROW(a->c, a->c_row, t);
    share_units(r, p.column < a->D ? c[(p.half * heads + key) * a->D + p.column] : 0);
    const float v = p.column < a->D ? c[(2 * heads + h) * a->D + p.column] : 0;
    const float o = recur(r, p, s, v, ROW(a->b, a->b_row, t)[h], ROW(a->g, a->g_row, t)[h]);
    if (p.column < a->D && p.half == 0) ROW(ROW(a->o, a->o_row, t), a->o_col, h)[p.column] = o;
    keep_state(r, p, s, t);
  }
}

// A head of a whole layer: convolution, rule and gated norm. The last workgroup overwrites rows of the ring that others
// may still read, and quantises where heads are no whole blocks.
INLINE void delta_layer(const gr_delta_layer GR_CONSTANT *a, gr_work w) {
  const uint32_t h = w.group, D = a->D, heads = (uint32_t)a->heads, key = h % heads;
  if (h >= a->U) return;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], a->T};
  const rule r = RULE(a, h);
  const state_part p = own_part();
  const uint32_t i = p.column, is_k = p.half;
  const int overwrites = a->T + a->K - 1 > a->S, across = a->quantize_out && D % LANES;
  float GLOBAL *rows = (float GLOBAL *)(w.scratch + COUNTERS);
  float s[HALF];
  load_state(r, p, s);
  for (uint32_t t = 0; t < a->T; t++) {
    share_units(r, i < D ? convolve(c, (is_k * heads + key) * D + i, t) : 0);
    if (!is_k && i < D) SHARED[AT_V + i] = convolve(c, (2 * heads + h) * D + i, t);
    barrier();
    const float o = recur(r, p, s, i < D ? SHARED[AT_V + i] : 0, ROW(a->b, a->b_row, t)[h], ROW(a->g, a->g_row, t)[h]);
    keep_state(r, p, s, t);
    const float mean = group_sum(!is_k && i < D ? o * o : 0) / (float)D;
    if (is_k || i >= D) continue;
    const float gate = ROW(a->z, a->z_row, t)[h * D + i];
    const float y = o * (1.0f / __builtin_sqrtf(mean + (float)a->eps)) * a->norm[i] * gated_f(gate, gate);
    if (a->y) ROW(a->y, a->y_row, t)[h * D + i] = y;
    if (across) rows[(size_t)t * a->M + h * D + i] = y;
    else if (a->quantize_out) quantise_block(y, ROW(a->quantize_out, a->quantize_out_row, t), a->M / 32, (h * D + i) / 32);
  }
  if (overwrites || across) {
    if (last_group(w.scratch, a->U)) {
      for (uint32_t j = thread_id(); overwrites && j < a->N; j += THREADS) keep_inputs(c, j);
      for (uint32_t j = thread_id(); across && j < a->T * a->M; j += THREADS) // M and the threads are whole blocks
        quantise_block(rows[j], ROW(a->quantize_out, a->quantize_out_row, j / a->M), a->M / 32, j % a->M / 32);
    }
  }
  if (i >= D || overwrites) return;
  if (h < heads) keep_inputs(c, (is_k * heads + h) * D + i);
  if (!is_k) keep_inputs(c, (2 * heads + h) * D + i);
}

// A wave for each head of a token; the sum of squares is a workgroup's: trees of 32, eight chains of them in order.
// Where heads are no whole blocks the last workgroup quantises.
INLINE void gated_norm(const gr_gated_norm GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, N = a->N, groups = ceil_div(a->U, WAVES), t = w.group / groups, h = w.group % groups * WAVES + wave_id();
  if (t >= a->T) return;
  const int across = a->quantize_out && D % LANES;
  float GLOBAL *rows = (float GLOBAL *)(w.scratch + COUNTERS);
  if (h < a->U) {
    const float GLOBAL *o = ROW(ROW(a->o, a->o_row, t), a->o_col, h), *z = ROW(a->z, a->z_row, t) + h * D;
    float total = 0;
    for (uint32_t chain = 0; chain < WAVES; chain++) {
      float sum = 0;
      for (uint32_t i = LANES * chain + lane_id(); i < D; i += THREADS) sum = sum + o[i] * o[i];
      total = total + wave_sum(sum);
    }
    const float scale = 1.0f / __builtin_sqrtf(total / (float)D + (float)a->eps);
    for (uint32_t i = lane_id(); i < D; i += LANES) {
      const float y = o[i] * scale * a->w[i] * gated_f(z[i], z[i]);
      if (a->y) ROW(a->y, a->y_row, t)[h * D + i] = y;
      if (across) rows[(size_t)t * N + h * D + i] = y;
      else if (a->quantize_out) quantise_block(y, ROW(a->quantize_out, a->quantize_out_row, t), N / 32, (h * D + i) / 32);
    }
  }
  if (!across || !last_group(w.scratch, a->T * groups)) return;
  for (uint32_t j = thread_id(); j < a->T * N; j += THREADS) // N and the threads are whole blocks
    quantise_block(rows[j], ROW(a->quantize_out, a->quantize_out_row, j / N), N / 32, j % N / 32);
}
