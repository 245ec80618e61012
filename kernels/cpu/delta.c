// Linear attention by the gated delta rule, token after token, so that a token's bits do not depend on the step.
#include "vec.h"

enum { ONLY_LAST = 17 }; // tokens from which a step keeps no state but its last

INLINE v8 column(const float *w, uint32_t K, uint32_t tap, uint32_t n) { // one tap of n channels
  v8 x = all8(0);
  for (uint32_t i = 0; i < gr_min(n, 8); i++) x[i] = w[(size_t)i * K + tap];
  return x;
}

typedef struct {
  const float *x, *w;
  float *tail;
  uint32_t x_row, N, K, S, pos, T;
} convolution;

// Channels [begin, begin + n) of all tokens to y[T][step]; the ring `tail` has position p at row p % S.
static void convolve(const convolution *a, uint32_t begin, uint32_t n, float *y, size_t step) {
  for (uint32_t c = 0; c < n; c += 8)
    for (uint32_t t = 0; t < a->T; t++) {
      v8 sum = all8(0);
      for (uint32_t tap = 0; tap < a->K; tap++) {
        const int64_t at = (int64_t)t + tap - (a->K - 1), position = a->pos + at;
        v8 x = all8(0);
        if (at >= 0) x = load_part(AT(float, a->x, (size_t)a->x_row * at) + begin + c, n - c);
        else if (position >= 0) x = load_part(a->tail + (size_t)(position % a->S) * a->N + begin + c, n - c);
        const v8 term = x * column(a->w + (size_t)(begin + c) * a->K, a->K, tap, n - c);
        sum = tap ? sum + term : term;
      }
      store_part(y + t * step + c, gated8(sum, sum), n - c);
    }
}

static void keep_inputs(const convolution *a, uint32_t begin, uint32_t n) {
  for (uint32_t t = a->T > a->S ? a->T - a->S : 0; t < a->T; t++)
    memcpy(a->tail + (size_t)((a->pos + t) % a->S) * a->N + begin, AT(float, a->x, (size_t)a->x_row * t) + begin, 4 * (size_t)n);
}

static void conv_silu(const void *record, gr_worker *w) {
  const gr_conv_silu *a = record;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], a->T};
  const gr_range blocks = gr_share((a->N + 31) / 32, w);
  const uint32_t begin = 32 * blocks.begin, end = gr_min(32 * blocks.end, a->N);
  if (begin >= end) return;
  convolve(&c, begin, end - begin, a->y + begin, a->y_row / 4);
  keep_inputs(&c, begin, end - begin);
}

// What the rule needs of a step: q, k, v are [T][step] floats of one head.
typedef struct {
  const float *q, *k, *v, *b, *g;
  size_t step;
  uint32_t b_row, g_row, T, U, L, D, slot, fresh;
  float dt, a, eps;
  float *s;
} rule;

static float unit_scale(const float *x, uint32_t D, float eps) { return sqrtf(group_sum(x, D, 1) + eps); }

// Value channels [j, j + n), n at most 32, of head h, with states S[key channel][value channel]. Sums over key
// channels are those of each half in order, then both.
static void recur(const rule *r, uint32_t h, uint32_t j, uint32_t n, float *o, size_t o_step, float *memory) {
  const uint32_t D = r->D, V8 = (n + 7) / 8;
  float *q = memory, *k = memory + D;
  const size_t head = (size_t)D * D, all = r->U * head;
  const float *from = r->s + r->slot * all + h * head;
  for (uint32_t t = 0; t < r->T; t++) {
    const uint32_t kept = r->T >= ONLY_LAST || r->T > r->L ? r->T - 1 : t;
    float *to = r->s + (r->slot + kept) % r->L * all + h * head;
    const float *q0 = r->q + r->step * t, *k0 = r->k + r->step * t, *v0 = r->v + r->step * t;
    const float q_norm = unit_scale(q0, D, r->eps), k_norm = unit_scale(k0, D, r->eps), root = (float)(1 / sqrt((double)D));
    for (uint32_t i = 0; i < D; i++) q[i] = q0[i] / q_norm * root, k[i] = k0[i] / k_norm;
    const v8 gate = all8(*AT(float, r->g, (size_t)r->g_row * t) + r->dt);
    const v8 decay = exp8(all8(r->a) * softplus8(gate)), beta = gated8(all8(1), all8(*AT(float, r->b, (size_t)r->b_row * t)));
    v8 sum[2][4] = {{{0}}}, delta[4];
    for (uint32_t i = 0; i < D; i++)
      for (uint32_t v = 0; v < V8; v++) {
        const size_t at = (size_t)i * D + j + 8 * v;
        const v8 x = t == 0 && r->fresh ? all8(0) : load_part(from + at, n - 8 * v) * decay;
        store_part(to + at, x, n - 8 * v);
        sum[i >= D / 2][v] = sum[i >= D / 2][v] + all8(k[i]) * x;
      }
    for (uint32_t v = 0; v < V8; v++) {
      delta[v] = (load_part(v0 + j + 8 * v, n - 8 * v) - (sum[0][v] + sum[1][v])) * beta;
      sum[0][v] = sum[1][v] = all8(0);
    }
    for (uint32_t i = 0; i < D; i++)
      for (uint32_t v = 0; v < V8; v++) {
        const size_t at = (size_t)i * D + j + 8 * v;
        const v8 x = load_part(to + at, n - 8 * v) + all8(k[i]) * delta[v];
        store_part(to + at, x, n - 8 * v);
        sum[i >= D / 2][v] = sum[i >= D / 2][v] + all8(q[i]) * x;
      }
    for (uint32_t v = 0; v < V8; v++) store_part(o + o_step * t + j + 8 * v, sum[0][v] + sum[1][v], n - 8 * v);
    from = to;
  }
}

static void delta_rule(const void *record, gr_worker *w) {
  const gr_delta_rule *a = record;
  const uint32_t D = a->D, parts = (D + 31) / 32;
  const gr_range pieces = gr_share(a->U * parts, w);
  float *memory = gr_scratch(w, 8 * (size_t)D);
  if (!memory) return;
  for (uint32_t i = pieces.begin; i < pieces.end; i++) {
    const uint32_t h = i / parts, j = i % parts * 32, key = h % (uint32_t)a->heads;
    const float *c = a->c;
    const rule r = {.q = c + key * D, .k = c + ((uint32_t)a->heads + key) * D, .v = c + (2 * (uint32_t)a->heads + h) * D,
                    .step = a->c_row / 4, .b = a->b + h, .b_row = a->b_row, .g = a->g + h, .g_row = a->g_row,
                    .T = a->T, .U = a->U, .L = a->L, .D = D, .slot = (uint32_t)a->slot[0], .fresh = a->pos[0] == 0,
                    .dt = a->dt[h], .a = a->a[h], .eps = (float)a->eps, .s = a->s};
    recur(&r, h, j, gr_min(32, D - j), AT(float, a->o, (size_t)a->o_col * h), a->o_row / 4, memory);
  }
}

// One head of a whole layer: convolution, rule and gated norm; y[T][D] in memory.
static float *layer_head(const gr_delta_layer *a, const convolution *c, uint32_t h, float *memory) {
  const uint32_t D = a->D, T = a->T, heads = (uint32_t)a->heads, key = h % heads;
  float *q = memory, *k = q + (size_t)T * D, *v = k + (size_t)T * D, *y = v + (size_t)T * D, *rest = y + (size_t)T * D;
  convolve(c, key * D, D, q, D);
  convolve(c, (heads + key) * D, D, k, D);
  convolve(c, (2 * heads + h) * D, D, v, D);
  const rule r = {.q = q, .k = k, .v = v, .step = D, .b = a->b + h, .b_row = a->b_row, .g = a->g + h, .g_row = a->g_row,
                  .T = T, .U = a->U, .L = a->L, .D = D, .slot = (uint32_t)a->slot[0], .fresh = a->pos[0] == 0,
                  .dt = a->dt[h], .a = a->a[h], .eps = (float)a->eps, .s = a->s};
  for (uint32_t j = 0; j < D; j += 32) recur(&r, h, j, gr_min(32, D - j), y, D, rest);
  for (uint32_t t = 0; t < T; t++) {
    float *o = y + (size_t)t * D;
    const float *z = gr_row(a->z, a->z_row, t) + h * D, scale = inverse_rms(o, D, (float)a->eps);
    for (uint32_t j = 0; j < D; j += 8) {
      const uint32_t n = D - j;
      const v8 gate = load_part(z + j, n);
      store_part(o + j, load_part(o + j, n) * all8(scale) * load_part(a->norm + j, n) * gated8(gate, gate), n);
    }
  }
  return y;
}

static void delta_layer(const void *record, gr_worker *w) {
  const gr_delta_layer *a = record;
  const uint32_t D = a->D, T = a->T, heads = (uint32_t)a->heads;
  const convolution c = {a->x, a->w, a->tail, a->x_row, a->N, a->K, a->S, (uint32_t)a->pos[0], T};
  // One thread alone where the ring's rows would be overwritten while another still reads them, or where heads are
  // not whole blocks of 32.
  const int alone = T + a->K - 1 > a->S || (a->quantize_out && D % 32);
  if (alone && w->thread) return;
  const gr_range mine = alone ? (gr_range){0, a->U} : gr_share(a->U, w);
  const size_t rows = alone ? (size_t)T * a->M : 0;
  float *memory = gr_scratch(w, 4 * (rows + 4 * (size_t)T * D + 2 * (size_t)D));
  if (!memory) return;
  for (uint32_t h = mine.begin; h < mine.end; h++) {
    const float *y = layer_head(a, &c, h, memory + rows);
    for (uint32_t t = 0; t < T; t++) {
      if (a->y) memcpy(gr_row(a->y, a->y_row, t) + h * D, y + (size_t)t * D, 4 * (size_t)D);
      if (rows) memcpy(memory + (size_t)t * a->M + h * D, y + (size_t)t * D, 4 * (size_t)D);
      else if (a->quantize_out)
        quantise_range(y + (size_t)t * D, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->M, h * D, h * D + D);
    }
  }
  for (uint32_t t = 0; rows && a->quantize_out && t < T; t++)
    quantise_range(memory + (size_t)t * a->M, AT(uint8_t, a->quantize_out, (size_t)a->quantize_out_row * t), a->M, 0, a->M);
  for (uint32_t h = mine.begin; h < mine.end; h++) {
    if (h < heads) keep_inputs(&c, h * D, D), keep_inputs(&c, (heads + h) * D, D);
    keep_inputs(&c, (2 * heads + h) * D, D);
  }
}
