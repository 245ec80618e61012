// Rotary positions and the write of keys and values to the cache.
//
// Values are kept as [position][head][channel]; keys as [position / 16][head][channel][position % 16], so that
// attention scores sixteen positions at a time and never adds across a vector.
#include "vec.h"

// cos and sin of each pair for the tokens of a step: [T][P][2].
#define TURNS(a) ((a)->table + (size_t)(a)->pos[0] * (size_t)(a)->width)

// One head turned; y may be x. `halves`: pair j is channels j and j + width / 2, else 2 j and 2 j + 1.
static void turn(const float *x, float *y, uint32_t D, uint32_t width, int halves, const float *turns) {
  const uint32_t pairs = width / 2, step = halves ? 1 : 2, apart = halves ? pairs : 1;
  for (uint32_t j = 0; j < pairs; j++) {
    const float a = x[j * step], b = x[j * step + apart], c = turns[2 * j], s = turns[2 * j + 1];
    y[j * step] = a * c - b * s;
    y[j * step + apart] = a * s + b * c;
  }
  if (y != x) memcpy(y + width, x + width, 4 * (size_t)(D - width));
}

static void rope(const void *record, gr_worker *w) {
  const gr_rope *a = record;
  const gr_range pieces = gr_share(a->T * a->H, w);
  const float *turns = TURNS(a);
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t t = i / a->H, h = i % a->H;
    turn(AT(float, a->x, (size_t)a->x_row * t + (size_t)a->x_col * h), AT(float, a->y, (size_t)a->y_row * t + (size_t)a->y_col * h), a->D,
         (uint32_t)a->width, a->pairs == 1, turns + (size_t)t * a->width);
  }
}

// One head of one position into the caches.
static void keep_key(void *kc, int half, const float *k, uint32_t G, uint32_t D, uint32_t g, uint32_t position) {
  const size_t at = ((size_t)(position / 16) * G + g) * D * 16 + position % 16;
  if (half)
    for (uint32_t d = 0; d < D; d++) ((gr_half *)kc)[at + 16 * d] = float_to_half(k[d]);
  else
    for (uint32_t d = 0; d < D; d++) ((float *)kc)[at + 16 * d] = k[d];
}
static void keep_row(void *cache, int half, const float *v, uint32_t G, uint32_t D, uint32_t g, uint32_t row) {
  const size_t at = ((size_t)row * G + g) * D;
  if (half)
    for (uint32_t d = 0; d < D; d++) ((gr_half *)cache)[at + d] = float_to_half(v[d]);
  else memcpy((float *)cache + at, v, 4 * (size_t)D);
}

static void store(const void *record, gr_worker *w) {
  const gr_store *a = record;
  const gr_range pieces = gr_share(a->T * a->G, w);
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t t = i / a->G, g = i % a->G, position = (uint32_t)a->pos[0] + t;
    keep_key(a->kc, a->type_S, AT(float, a->k, (size_t)a->k_row * t + (size_t)a->k_col * g), a->G, a->D, g, position);
    keep_row(a->vc, a->type_S, AT(float, a->v, (size_t)a->v_row * t + (size_t)a->v_col * g), a->G, a->D, g, position);
  }
}

// A ring keeps both as rows, position p at row p % S, and of a long step the last S tokens.
static void store_ring(const void *record, gr_worker *w) {
  const gr_store_ring *a = record;
  const uint32_t skipped = a->T > a->S ? a->T - a->S : 0;
  const gr_range pieces = gr_share((a->T - skipped) * a->G, w);
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t t = skipped + i / a->G, g = i % a->G, row = ((uint32_t)a->pos[0] + t) % a->S;
    keep_row(a->kc, a->type_Z, AT(float, a->k, (size_t)a->k_row * t + (size_t)a->k_col * g), a->G, a->D, g, row);
    keep_row(a->vc, a->type_Z, AT(float, a->v, (size_t)a->v_row * t + (size_t)a->v_col * g), a->G, a->D, g, row);
  }
}

static void norm_head(const float *x, const float *weight, uint32_t D, float eps, float *y) {
  const float scale = inverse_rms(x, D, eps);
  for (uint32_t d = 0; d < D; d++) y[d] = x[d] * scale * weight[d];
}

// Queries, then keys and values, a head at a time; normed before if the op says so.
#define ROPE_STORE(name, op, NORM_Q, NORM_K)                                                                             \
  static void name(const void *record, gr_worker *w) {                                                                 \
    const op *a = record;                                                                                              \
    const uint32_t each = a->H + a->G;                                                                                 \
    const gr_range pieces = gr_share(a->T * each, w);                                                                  \
    const float *turns = TURNS(a);                                                                                  \
    float *head = gr_scratch(w, 4 * (size_t)a->D);                                                                     \
    if (!head) return;                                                                                       \
    for (uint32_t i = pieces.begin; i < pieces.end; i++) {                                                             \
      const uint32_t t = i / each, h = i % each, position = (uint32_t)a->pos[0] + t;                                   \
      const float *turned = turns + (size_t)t * a->width;                                                              \
      if (h < a->H) {                                                                                                  \
        const float *q = AT(float, a->q, (size_t)a->q_row * t + (size_t)a->q_col * h);                                 \
        NORM_Q                                                                                                         \
        turn(q, AT(float, a->q2, (size_t)a->q2_row * t + (size_t)a->q2_col * h), a->D, (uint32_t)a->width, a->pairs == 1, turned); \
      } else {                                                                                                         \
        const uint32_t g = h - a->H;                                                                                   \
        const float *k = AT(float, a->k, (size_t)a->k_row * t + (size_t)a->k_col * g);                                 \
        NORM_K                                                                                                         \
        turn(k, head, a->D, (uint32_t)a->width, a->pairs == 1, turned);                                                 \
        keep_key(a->kc, a->type_S, head, a->G, a->D, g, position);                                                      \
        keep_row(a->vc, a->type_S, AT(float, a->v, (size_t)a->v_row * t + (size_t)a->v_col * g), a->G, a->D, g, position); \
      }                                                                                                                \
    }                                                                                                                  \
  }
ROPE_STORE(rope_store, gr_rope_store, , )
ROPE_STORE(qk_norm_rope_store, gr_qk_norm_rope_store, norm_head(q, a->q_norm, a->D, (float)a->eps, head); q = head;
           , norm_head(k, a->k_norm, a->D, (float)a->eps, head); k = head;)
