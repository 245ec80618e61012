// The delta rule over many tokens, with the bits of delta_rule.c: a workgroup has 64 columns of a head, and a batch of
// tokens whose q and k its waves prepare at the same time. A wave needs no other for its columns.
#include "delta_rule.c"

enum { BATCH = WAVES, CHUNK_COLUMNS = 64, HALF_WAVE = LANES / 2 };
// Words of shared memory: of each token of a batch q, k, decay and beta.
enum { AT_BATCH = 16, AT_DECAY = 2 * UNIT, TOKEN_WORDS = AT_DECAY + 4, CHUNK_WORDS = AT_BATCH + BATCH * TOKEN_WORDS };

// A wave's channels of q and k of a token, and what they are divided by, as share_units does it.
typedef struct {
  float x[2][MOST_STATE / LANES], b, g;
} raw_token;
INLINE raw_token load_token(const gr_delta_rule GR_CONSTANT *a, uint32_t h, uint32_t t) {
  const uint32_t heads = (uint32_t)a->heads, D = a->D;
  raw_token n = {0};
  if (t >= a->T) return n;
  EACH(k, 0, 2) EACH(j, 0, MOST_STATE / LANES) {
    const uint32_t i = lane_id() + LANES * j;
    n.x[k][j] = i < D ? ROW(a->c, a->c_row, t)[(k * heads + h % heads) * D + i] : 0;
  }
  n.b = ROW(a->b, a->b_row, t)[h];
  n.g = ROW(a->g, a->g_row, t)[h];
  return n;
}
INLINE void put_token(rule r, const raw_token *n) {
  const uint32_t to = AT_BATCH + wave_id() * TOKEN_WORDS;
  EACH(k, 0, 2) {
    float sum = 0;
    EACH(j, 0, MOST_STATE / LANES) sum = sum + wave_sum(n->x[k][j] * n->x[k][j]);
    const float length = __builtin_sqrtf(sum + r.eps);
    EACH(j, 0, MOST_STATE / LANES) {
      const uint32_t i = lane_id() + LANES * j;
      const float unit = i < r.D ? n->x[k][j] / length : 0;
      SHARED[to + k * UNIT + place_of_channel(i, r.D)] = k ? unit : unit * inverse_root(r.D);
    }
  }
  const float decay = exp_f(r.a * softplus_f(n->g + r.dt)), beta = gated_f(1.0f, n->b);
  if (lane_id() < 2) SHARED[to + AT_DECAY + lane_id()] = lane_id() ? beta : decay;
}

INLINE void delta_chunk(const gr_delta_rule GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, T = a->T, parts = ceil_div(D, CHUNK_COLUMNS), h = w.group / parts, first = w.group % parts * CHUNK_COLUMNS;
  if (h >= a->U) return;
  const rule r = RULE(a, h);
  const uint32_t column = first + wave_id() * HALF_WAVE + lane_id() % HALF_WAVE, own = column < D ? column : D - 1;
  const state_part p = {column, lane_id() / HALF_WAVE};
  const int works = wave_id() < CHUNK_COLUMNS / HALF_WAVE; // others only prepare tokens
  const float GLOBAL *v = a->c + (2 * (uint32_t)a->heads + h) * D + own;
  float s[HALF];
  if (works) load_state(r, p, s);
  raw_token next = load_token(a, h, wave_id());
  for (uint32_t t0 = 0; t0 < T; t0 += BATCH) {
    barrier();
    put_token(r, &next);
    barrier();
    next = load_token(a, h, t0 + BATCH + wave_id());
    if (!works) continue;
    float value = *ROW(v, a->c_row, t0);
#pragma nounroll
    for (uint32_t t = t0; t < t0 + BATCH && t < T; t++) {
      const uint32_t at = AT_BATCH + (t - t0) * TOKEN_WORDS, q = at + p.half * HALVES, k = q + UNIT;
      const float decay = SHARED[at + AT_DECAY], beta = SHARED[at + AT_DECAY + 1], now = value;
      value = *ROW(v, a->c_row, t + 1 < T ? t + 1 : t);
      float sum = decay_half(D, s, decay, k);
      sum = sum + float_of(lane_xor(bits_of(sum), HALF_WAVE));
      sum = update_half(D, s, (now - sum) * beta, k, q);
      sum = sum + float_of(lane_xor(bits_of(sum), HALF_WAVE));
      if (column < D && p.half == 0) ROW(ROW(a->o, a->o_row, t), a->o_col, h)[column] = sum;
    }
  }
  if (works) keep_state(r, p, s, T - 1);
}
