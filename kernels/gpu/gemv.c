// Products of quantised weights and up to 16 quantised tokens, 8 rows a workgroup.
//
// Blocks l, l + 32, ... are added for l = 0 .. 31, and then these 32 sums by halves, so a token has the same bits
// alone. For one token a wave has a row, and lane l sum l. For several, whose activations are more bytes than the
// weights, a wave has four of the sums of all 8 rows, so that 8 lanes read the same activations.
#include "weights.h"

enum { FEW = 16, AT_ONCE = 4 };   // tokens at most, and those whose loads are in flight together
enum { SUMS = LANES / WAVES };    // of a row, that a wave has of several tokens

// A block of a row as it is loaded.
typedef struct {
  u32x4 words[2], scales;
  u32x2 high;
} block;

INLINE block load_block(uint32_t layout, const weights *m, uint32_t row, uint32_t b) {
  const size_t at = (size_t)row * m->nb + b;
  block k = {0};
  k.words[0] = load16_once(m->words + block_bytes(layout) * at);
  if (in_bytes(layout)) k.words[1] = load16_once(m->words + 32 * at + 16);
  if (layout == GR_Q6_K) k.high = load8(high_bits(m, at));
  k.scales = load_scales(layout, m, at, row, b);
  return k;
}

// 32 activations of a token.
typedef struct {
  u32x4 q[2];
  float d;
  int32_t sum;
} line;

INLINE line load_line(const uint8_t GLOBAL *x, uint32_t nb, uint32_t b) {
  const u32x4_of_8 GLOBAL *q = (const u32x4_of_8 GLOBAL *)(x + 32 * (size_t)b);
  const uint8_t GLOBAL *d = x + 32 * (size_t)nb + 4 * (size_t)b;
  return (line){{q[0], q[1]}, float_of(load4(d)), (int32_t)load4(d + 4 * (size_t)nb)};
}

// Four weights a word.
INLINE void unpack(uint32_t layout, const block *k, uint32_t *u) {
  for (uint32_t i = 0; i < 4; i++)
    for (uint32_t h = 0; h < 2; h++) u[4 * h + i] = in_bytes(layout) ? k->words[h][i] : unpacked(layout, k->words[0][i], k->high[h], h, i);
}
INLINE float add_line(uint32_t layout, const uint32_t *u, factors f, const line *x, float sum) {
  int32_t dot[2] = {0, 0}, half = 0;
  for (int i = 0; i < 4; i++)
    for (int h = 0; h < 2; h++)
      dot[h] = in_bytes(layout) ? dot4(dot[h], u[4 * h + i], x->q[h][i]) : dot4_us(dot[h], u[4 * h + i], x->q[h][i]);
  if (in_halves(layout))
    for (int i = 0; i < 4; i++) half = dot4(half, 0x01010101, x->q[0][i]);
  return add_block(layout, f, dot[0], dot[1], x->d, x->sum, half, sum);
}
INLINE float add_loaded(uint32_t layout, const block *k, const line *x, float sum) {
  uint32_t u[8];
  unpack(layout, k, u);
  return add_line(layout, u, factors_of(layout, k->scales), x, sum);
}

// One token; two blocks of a lane are in flight.
INLINE void one_token(uint32_t layout, const gr_gemv GR_CONSTANT *a, uint32_t row) {
  const weights m = weights_of(a->w);
  const uint32_t nb = m.nb;
  float sum = 0;
  uint32_t b = lane_id();
  for (; b + LANES < nb; b += 2 * LANES) {
    const block first = load_block(layout, &m, row, b), second = load_block(layout, &m, row, b + LANES);
    const line x = load_line(a->x, nb, b), y = load_line(a->x, nb, b + LANES);
    sum = add_loaded(layout, &second, &y, add_loaded(layout, &first, &x, sum));
  }
  if (b < nb) {
    const block last = load_block(layout, &m, row, b);
    const line x = load_line(a->x, nb, b);
    sum = add_loaded(layout, &last, &x, sum);
  }
  sum = wave_sum(sum);
  if (lane_id() == 0) finish(a, row, 0, sum);
}

// At most 16 tokens, which share each block; the last one fills places that are left of four.
INLINE void few_tokens(uint32_t layout, const gr_gemv GR_CONSTANT *a, uint32_t group) {
  const weights m = weights_of(a->w);
  const uint32_t nb = m.nb, T = a->T, row = WAVES * group + lane_id() / SUMS, read = row < m.rows ? row : m.rows - 1;
  LDS float *part = (LDS float *)gr_lds; // [token][wave][lane]
  float sum[FEW];
  for (uint32_t t = 0; t < FEW; t++) sum[t] = 0;
  const uint32_t begin = SUMS * wave_id() + lane_id() % SUMS;
  const int early = !in_bytes(layout); // small blocks are loaded a step ahead
  block next = {0};
  if (early && begin < nb) next = load_block(layout, &m, read, begin);
  for (uint32_t b = begin; b < nb; b += LANES) {
    const block k = early ? next : load_block(layout, &m, read, b);
    if (early && b + LANES < nb) next = load_block(layout, &m, read, b + LANES);
    const factors f = factors_of(layout, k.scales);
    uint32_t u[8];
    unpack(layout, &k, u);
#pragma unroll
    for (uint32_t t = 0; t < FEW; t += AT_ONCE) {
      if (t >= T) continue;
      line x[AT_ONCE];
      for (uint32_t i = 0; i < AT_ONCE; i++) x[i] = load_line(ROW(a->x, a->x_row, t + i < T ? t + i : T - 1), nb, b);
      for (uint32_t i = 0; i < AT_ONCE; i++) sum[t + i] = add_line(layout, u, f, &x[i], sum[t + i]);
    }
  }
  barrier();
#pragma unroll
  for (uint32_t t = 0; t < FEW; t++)
    if (t < T) part[THREADS * t + thread_id()] = sum[t];
  barrier();
  for (uint32_t t = wave_id(); t < T; t += WAVES) {
    float x = waves_sum(part + THREADS * t + lane_id(), LANES);
    for (int mask = SUMS / 2; mask; mask /= 2) x = x + float_of(lane_xor(bits_of(x), mask));
    if (lane_id() % SUMS == 0 && row < m.rows) finish(a, row, t, x + 0.0f);
  }
}

#define PRODUCTS(name, layout)                                                                                         \
  INLINE void gemv_##name(const gr_gemv GR_CONSTANT *a, gr_work w) {                                                   \
    const uint32_t row = WAVES * w.group + wave_id();                                                                  \
    if (row < a->w->rows) one_token(layout, a, row);                                                                   \
  }                                                                                                                    \
  INLINE void gemv_##name##_t(const gr_gemv GR_CONSTANT *a, gr_work w) {                                               \
    if (WAVES * w.group < a->w->rows) few_tokens(layout, a, w.group);                                                  \
  }
PRODUCTS(q4_0, GR_Q4_0)
PRODUCTS(q4_1, GR_Q4_1)
PRODUCTS(q8_0, GR_Q8_0)
PRODUCTS(q4_k, GR_Q4_K)
PRODUCTS(q6_k, GR_Q6_K)
PRODUCTS(i8_a, GR_I8_A)
