// Linear attention by the gated delta rule, token after token, so that a token's bits do not depend on the step.
#include "rows.h"

enum { MOST_STATE = 128, HALF = MOST_STATE / 2, ONLY_LAST = 17 }; // tokens from which only the last state is kept
// Words of shared memory: what gr.h uses, sums of waves, q, k and v of a token, and what halves of a sum exchange.
enum { AT_SUMS = 16, AT_Q = AT_SUMS + WAVES, AT_K = AT_Q + MOST_STATE, AT_V = AT_K + MOST_STATE, AT_BOTH = AT_V + MOST_STATE, DELTA_WORDS = AT_BOTH + 2 * MOST_STATE };
#define FOR_HALF(i) _Pragma("unroll") for (uint32_t i = 0; i < HALF; i++) // of a state in registers
#define SHARED ((LDS float *)gr_lds)

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

INLINE void conv_silu(const gr_conv_silu GR_CONSTANT *a, gr_work w) {
  const convolution v = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], a->T};
  const uint32_t c = w.group * THREADS + thread_id();
  if (c >= a->N) return;
  for (uint32_t t = 0; t < a->T; t++) ROW(a->y, a->y_row, t)[c] = convolve(v, c, t);
  keep_inputs(v, c);
}

// One head: thread (j, half) has value channel j of `columns` from `first`, and half of the key channels.
typedef struct {
  uint32_t D, columns, first, T, L, slot, fresh;
  size_t head, all; // floats to the head's state, and in all heads' states
  float dt, a, eps;
  float GLOBAL *s;
} rule;
INLINE uint32_t half_of_keys(rule r) { return thread_id() / r.columns; }
INLINE uint32_t column_of(rule r) { return r.first + thread_id() % r.columns; }
INLINE int active(rule r) { return half_of_keys(r) < 2 && column_of(r) < r.D; }
INLINE float GLOBAL *state_of(rule r, uint32_t number) {
  return r.s + number % r.L * r.all + r.head + (size_t)(half_of_keys(r) ? r.D / 2 : 0) * r.D + column_of(r);
}

INLINE void load_state(rule r, float *s) {
  if (!active(r)) return;
  const uint32_t count = anew(r.D) / 2;
  const float GLOBAL *from = state_of(r, r.slot);
  FOR_HALF(i) s[i] = i < count && !r.fresh ? from[(size_t)i * r.D] : 0;
}
INLINE void keep_state(rule r, const float *s, uint32_t t) {
  if (!active(r) || ((r.T >= ONLY_LAST || r.T > r.L) && t + 1 < r.T)) return;
  const uint32_t count = anew(r.D) / 2;
  float GLOBAL *to = state_of(r, r.slot + t);
  FOR_HALF(i)
    if (i < count) to[(size_t)i * r.D] = s[i];
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
  const float length = __builtin_sqrtf(sum + r.eps);
  if (i < r.D) SHARED[(is_k ? AT_K : AT_Q) + i] = is_k ? x / length : x / length * inverse_root(r.D);
}

// Both halves of a sum over key channels, of this thread's column.
INLINE float both(rule r, float sum) {
  barrier();
  if (active(r)) SHARED[AT_BOTH + thread_id()] = sum;
  barrier();
  if (!active(r)) return 0;
  const uint32_t at = AT_BOTH + thread_id() % r.columns;
  return SHARED[at] + SHARED[at + r.columns];
}

// One token; q and k are in shared memory, v is this thread's column's, b and g the head's. Returns the column's o.
INLINE float recur(rule r, float *s, float v, float b, float g) {
  barrier();
  const uint32_t half = anew(r.D) / 2, again = anew(r.D) / 2, from = half_of_keys(r) ? half : 0;
  const float decay = exp_f(r.a * softplus_f(g + r.dt)), beta = gated_f(1.0f, b);
  float sum = 0;
  if (active(r))
    FOR_HALF(i)
      if (i < half) {
        s[i] = s[i] * decay;
        sum = sum + SHARED[AT_K + from + i] * s[i];
      }
  const float delta = (v - both(r, sum)) * beta;
  sum = 0;
  if (active(r))
    FOR_HALF(i)
      if (i < again) {
        s[i] = s[i] + SHARED[AT_K + from + i] * delta;
        sum = sum + SHARED[AT_Q + from + i] * s[i];
      }
  return both(r, sum);
}

#define RULE(a, h, columns, first)                                                                                     \
  {(a)->D, columns, first, (a)->T, (a)->L, (uint32_t)(a)->slot[0], (a)->pos[0] == 0, (size_t)(h) * (a)->D * (a)->D,    \
   (size_t)(a)->U * (a)->D * (a)->D, (a)->dt[h], (a)->a[h], (float)(a)->eps, (a)->s}

INLINE void rule_of_columns(const gr_delta_rule GR_CONSTANT *a, uint32_t h, uint32_t columns, uint32_t first) {
  const rule r = RULE(a, h, columns, first);
  const uint32_t heads = (uint32_t)a->heads, key = h % heads, i = thread_id() % MOST_STATE, is_k = thread_id() / MOST_STATE;
  float s[HALF];
  load_state(r, s);
  for (uint32_t t = 0; t < a->T; t++) {
    const float GLOBAL *c = ROW(a->c, a->c_row, t);
    share_units(r, i < a->D ? c[(is_k * heads + key) * a->D + i] : 0);
    const float v = active(r) ? c[(2 * heads + h) * a->D + column_of(r)] : 0;
    const float o = recur(r, s, v, ROW(a->b, a->b_row, t)[h], ROW(a->g, a->g_row, t)[h]);
    if (active(r) && half_of_keys(r) == 0) ROW(ROW(a->o, a->o_row, t), a->o_col, h)[column_of(r)] = o;
    keep_state(r, s, t);
  }
}
INLINE void delta_rule(const gr_delta_rule GR_CONSTANT *a, gr_work w) {
  if (w.group < a->U) rule_of_columns(a, w.group, MOST_STATE, 0);
}
INLINE void delta_chunk(const gr_delta_rule GR_CONSTANT *a, gr_work w) { // 32 columns: more workgroups, the same bits
  const uint32_t parts = ceil_div(a->D, LANES);
  if (w.group < a->U * parts) rule_of_columns(a, w.group / parts, LANES, w.group % parts * LANES);
}

// A head of a whole layer: convolution, rule and gated norm. The last workgroup overwrites rows of the ring that others
// may still read, and quantises where heads are no whole blocks.
INLINE void delta_layer(const gr_delta_layer GR_CONSTANT *a, gr_work w) {
  const uint32_t h = w.group, D = a->D, heads = (uint32_t)a->heads, key = h % heads;
  if (h >= a->U) return;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], a->T};
  const rule r = RULE(a, h, MOST_STATE, 0);
  const uint32_t i = thread_id() % MOST_STATE, is_k = thread_id() / MOST_STATE;
  const int overwrites = a->T + a->K - 1 > a->S, across = a->quantize_out && D % LANES;
  float GLOBAL *rows = (float GLOBAL *)(w.scratch + COUNTERS);
  float s[HALF];
  load_state(r, s);
  for (uint32_t t = 0; t < a->T; t++) {
    share_units(r, i < D ? convolve(c, (is_k * heads + key) * D + i, t) : 0);
    if (!is_k && i < D) SHARED[AT_V + i] = convolve(c, (2 * heads + h) * D + i, t);
    barrier();
    const float o = recur(r, s, i < D ? SHARED[AT_V + i] : 0, ROW(a->b, a->b_row, t)[h], ROW(a->g, a->g_row, t)[h]);
    keep_state(r, s, t);
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
INLINE void gated_norm(const gr_gated_norm GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, groups = ceil_div(a->U, WAVES), t = w.group / groups, h0 = w.group % groups * WAVES, h = h0 + wave_id();
  if (t >= a->T) return;
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
      if (a->quantize_out) SHARED[AT_SUMS + wave_id() * D + i] = y;
    }
  }
  if (!a->quantize_out) return;
  barrier();
  const uint32_t all = (a->U - h0 < WAVES ? a->U - h0 : WAVES) * D;
  for (uint32_t i = thread_id(); i < all; i += THREADS)
    quantise_block(SHARED[AT_SUMS + i], ROW(a->quantize_out, a->quantize_out_row, t), a->N / 32, (h0 * D + i) / 32);
}
