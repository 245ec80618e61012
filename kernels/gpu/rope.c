// Rotary positions and the write of keys and values to the cache, which is [position][head][channel].
#include "gr.h"

// cos and sin of each pair for token t of a step: [P][2].
#define TURNS(a, t) ((a)->table + ((size_t)(a)->pos[0] + (t)) * (size_t)(a)->width)
#define HEAD(a, x, t, h) ROW(ROW((a)->x, (a)->x##_row, t), (a)->x##_col, h)

// Where a head goes: to f32, or to a cache of f16.
typedef struct {
  void GLOBAL *to;
  int is_half;
} place;

INLINE place cache_place(void GLOBAL *cache, uint32_t is_half, size_t row, uint32_t G, uint32_t g, uint32_t D) {
  const size_t at = (row * G + g) * D;
  return (place){(uint8_t GLOBAL *)cache + (is_half ? 2 * at : 4 * at), is_half != 0};
}
INLINE void put(place p, uint32_t d, float x) {
  if (p.is_half) ((gr_half GLOBAL *)p.to)[d] = __builtin_bit_cast(uint16_t, (half)x);
  else ((float GLOBAL *)p.to)[d] = x;
}
INLINE void put_head(place p, const float GLOBAL *x, uint32_t D) {
  for (uint32_t d = thread_id(); d < D; d += THREADS) put(p, d, x[d]);
}

// How a head is turned, after it was normed if there is a weight: `halves`: pair j is channels j and j + width / 2,
// else 2 j and 2 j + 1.
typedef struct {
  const float GLOBAL *turns, *weight;
  float eps;
  uint32_t D, width;
  int halves;
} rotation;
#define ROTATION(a, t, weight, eps) ((rotation){TURNS(a, t), weight, eps, (a)->D, (uint32_t)(a)->width, (a)->pairs == 1})

INLINE void turn(const rotation *r, const float GLOBAL *x, place to) {
  const uint32_t pairs = r->width / 2, step = r->halves ? 1 : 2, apart = r->halves ? pairs : 1;
  float scale = 1;
  if (r->weight) {
    float sum = 0;
    for (uint32_t d = thread_id(); d < r->D; d += THREADS) sum = sum + x[d] * x[d];
    const float mean = group_sum(sum) / (float)r->D;
    scale = 1.0f / __builtin_sqrtf(mean + r->eps);
  }
#define CHANNEL(d) (r->weight ? x[d] * scale * r->weight[d] : x[d])
  for (uint32_t j = thread_id(); j < pairs; j += THREADS) {
    const uint32_t i = j * step, k = i + apart;
    const float a = CHANNEL(i), b = CHANNEL(k), c = r->turns[2 * j], s = r->turns[2 * j + 1];
    put(to, i, a * c - b * s);
    put(to, k, a * s + b * c);
  }
  for (uint32_t d = r->width + thread_id(); d < r->D; d += THREADS) put(to, d, CHANNEL(d));
#undef CHANNEL
}

INLINE void rope(const gr_rope GR_CONSTANT *a, gr_work w) {
  const uint32_t t = w.group / a->H, h = w.group % a->H;
  if (t >= a->T) return;
  const rotation r = ROTATION(a, t, 0, 0);
  turn(&r, HEAD(a, x, t, h), (place){HEAD(a, y, t, h), 0});
}

INLINE void store(const gr_store GR_CONSTANT *a, gr_work w) {
  const uint32_t t = w.group / a->G, g = w.group % a->G;
  if (t >= a->T) return;
  const size_t row = (size_t)a->pos[0] + t;
  put_head(cache_place(a->kc, a->type_S, row, a->G, g, a->D), HEAD(a, k, t, g), a->D);
  put_head(cache_place(a->vc, a->type_S, row, a->G, g, a->D), HEAD(a, v, t, g), a->D);
}

// Position p is at row p % S; of a long step the last S tokens are kept.
INLINE void store_ring(const gr_store_ring GR_CONSTANT *a, gr_work w) {
  const uint32_t t = w.group / a->G, g = w.group % a->G;
  if (t >= a->T || t + a->S < a->T) return;
  const size_t row = ((uint32_t)a->pos[0] + t) % a->S;
  put_head(cache_place(a->kc, a->type_Z, row, a->G, g, a->D), HEAD(a, k, t, g), a->D);
  put_head(cache_place(a->vc, a->type_Z, row, a->G, g, a->D), HEAD(a, v, t, g), a->D);
}

// A workgroup for each query head, then one for each head of keys and values.
INLINE void rope_store(const gr_rope_store GR_CONSTANT *a, gr_work w) {
  const uint32_t queries = a->T * a->H, i = w.group < queries ? w.group : w.group - queries;
  if (w.group < queries) {
    const uint32_t t = i / a->H, h = i % a->H;
    const rotation r = ROTATION(a, t, 0, 0);
    turn(&r, HEAD(a, q, t, h), (place){HEAD(a, q2, t, h), 0});
    return;
  }
  const uint32_t t = i / a->G, g = i % a->G;
  if (t >= a->T) return;
  const size_t row = (size_t)a->pos[0] + t;
  const rotation r = ROTATION(a, t, 0, 0);
  turn(&r, HEAD(a, k, t, g), cache_place(a->kc, a->type_S, row, a->G, g, a->D));
  put_head(cache_place(a->vc, a->type_S, row, a->G, g, a->D), HEAD(a, v, t, g), a->D);
}

// A workgroup for each query head, then one for each head of keys, then of values.
INLINE void qk_norm_rope_store(const gr_qk_norm_rope_store GR_CONSTANT *a, gr_work w) {
  const uint32_t queries = a->T * a->H, keys = a->T * a->G;
  const float eps = (float)a->eps;
  if (w.group < queries) {
    const uint32_t t = w.group / a->H, h = w.group % a->H;
    const rotation r = ROTATION(a, t, a->q_norm, eps);
    turn(&r, HEAD(a, q, t, h), (place){HEAD(a, q2, t, h), 0});
    return;
  }
  const uint32_t i = w.group - queries, t = i % keys / a->G, g = i % a->G;
  if (i >= 2 * keys) return;
  const size_t row = (size_t)a->pos[0] + t;
  if (i < keys) {
    const rotation r = ROTATION(a, t, a->k_norm, eps);
    turn(&r, HEAD(a, k, t, g), cache_place(a->kc, a->type_S, row, a->G, g, a->D));
  } else put_head(cache_place(a->vc, a->type_S, row, a->G, g, a->D), HEAD(a, v, t, g), a->D);
}
