// Attention of many tokens: a wave for each query, which goes over its keys twice, for the maximum and for the average.
#include "attention.c"

enum { TILE_TOKENS = 16 };

// Scores of 32 keys, one a lane; -inf from key `seen` on.
INLINE float wave_scores(const float *q, rows keys, uint32_t from, uint32_t seen, uint32_t D, float scale) {
  float mine = -__builtin_inff();
  for (uint32_t key = 0; key < SPLIT && key < seen; key++) {
    const float s = score(q, row_of(keys, from + key), D, scale);
    if (lane_id() == key) mine = s;
  }
  return mine;
}
// o[D] += factor times the average of a split's values, eight chains of them added in order.
INLINE void add_values(float *y, float e, float factor, rows values, uint32_t from, uint32_t seen, uint32_t D) {
  float o[PIECES];
  FOR_PIECES(j) o[j] = 0;
  for (uint32_t chain = 0; chain < WAVES; chain++) {
    float part[PIECES];
    FOR_PIECES(j) part[j] = 0;
    for (uint32_t key = chain; key < SPLIT && key < seen; key += WAVES) {
      const float weight = float_of(of_lane(bits_of(e), key));
      const row v = row_of(values, from + key);
      FOR_CHANNELS(j, c, D) part[j] = part[j] + weight * channel(v, c);
    }
    FOR_PIECES(j) o[j] = o[j] + part[j];
  }
  FOR_PIECES(j) y[j] = y[j] + o[j] * factor;
}

INLINE void attn_flash(const gr_attend GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, R = a->H / a->G, g = w.group % a->G, t0 = w.group / a->G * TILE_TOKENS;
  const rows keys = {a->kc, 0, !a->type_S, a->G * D, g * D, 0, 0, ~0u, 0};
  rows values = keys;
  values.cache = a->vc;
  const float scale = inverse_root(D);
  for (uint32_t pair = wave_id(); pair < TILE_TOKENS * R; pair += WAVES) {
    const uint32_t t = t0 + pair / R, h = g * R + pair % R, count = (uint32_t)a->pos[0] + t + 1;
    if (t >= a->T) break;
    float q[PIECES], y[PIECES], shares[WAVES], most = -__builtin_inff();
    load_query(q, ROW(ROW(a->q, a->q_row, t), a->q_col, h), D);
    for (uint32_t from = 0; from < count; from += SPLIT) {
      const float m = wave_max(wave_scores(q, keys, from, count - from, D, scale));
      most = m > most ? m : most;
    }
    FOR_PIECES(j) y[j] = 0;
    FOR_PIECES(i) shares[i] = 0; // what 256 threads would add of the splits' sums
    for (uint32_t from = 0; from < count; from += SPLIT) {
      const float s = wave_scores(q, keys, from, count - from, D, scale), m = wave_max(s), e = exp_f(s - m);
      const float factor = exp_f(m - most), share = factor * wave_sum(e);
      const uint32_t split = from / SPLIT;
      FOR_PIECES(i)
        if (split / LANES % WAVES == i && split % LANES == lane_id()) shares[i] = shares[i] + share;
      add_values(y, e, factor, values, from, count - from, D);
    }
    float total = 0;
    FOR_PIECES(i) total = total + wave_sum(shares[i]);
    FOR_CHANNELS(j, c, D) FINISH_HEAD(a, t, h, c, y[j] / total);
  }
}
