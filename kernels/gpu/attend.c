// Attention of a few tokens, in the order of ops/attention.py: workgroups of a head take splits of 32 keys, and the
// last of them puts the splits together. A score is a wave's sum; wave w of 8 weighs keys w, w + 8, w + 16, w + 24.
#include "heads.h"

enum { SHARED_SPLITS = 4, PER_WAVE = SPLIT / WAVES }; // splits of the longest context that a workgroup takes; keys of a wave
enum { SCORES = 32, PARTS = 64, ATTEND_LDS = 4 * (PARTS + WAVES * 256) }; // words of shared memory; a head has up to 256 channels

// Keys and values of a kv head: rows of a cache, or rows of a ring and then the step's own.
typedef struct {
  const uint8_t GLOBAL *kc, *vc; // the head's channels of position 0
  const float GLOBAL *k, *v;     // of the step's first token; null: a cache
  uint32_t half, step;           // whether caches are f16; their bytes from position to position
  uint32_t S, from, context, k_row, v_row;
} key_source;

// What a head of a token needs.
typedef struct {
  const float GLOBAL *q, *gate;
  float GLOBAL *y, *gated;
  uint8_t GLOBAL *quantised; // the token's row
  float GLOBAL *row;         // of H D floats, where heads are not whole blocks
  float GLOBAL *part;        // [splits] of (maximum, sum), then [splits][D]
  uint32_t GLOBAL *counter, *row_counter;
  uint32_t H, D, h, splits;  // room for so many
  uint32_t low, high, positions;
} head_work;

// 32-bit patterns of W channels a lane of key or value i; absent channels repeat the last one.
INLINE void load_row(const key_source *s, int W, int value, uint32_t i, uint32_t D, uint32_t *bits, int *half) {
  const int own = s->k && i >= s->context;
  const uint8_t GLOBAL *row = own ? (const uint8_t GLOBAL *)ROW(value ? s->v : s->k, value ? s->v_row : s->k_row, i - s->context)
                                  : (value ? s->vc : s->kc) + (size_t)(s->k ? (s->from + i) % s->S : i) * s->step;
  *half = s->half && !own;
#pragma unroll
  for (int c = 0; c < W; c++) {
    const uint32_t d = lane_id() + LANES * (uint32_t)c, at = d < D ? d : D - 1;
    bits[c] = *half ? load2(row + 2 * (size_t)at) : load4(row + 4 * (size_t)at);
  }
}
INLINE float widen(uint32_t bits, int half) { return half ? half_of(bits) : float_of(bits); }

// One split: its maximum, sum and unnormalised average to scratch memory.
INLINE void attend_split(const key_source *s, const head_work *a, int W, const float *q, float scale, uint32_t split) {
  LDS float *scores = (LDS float *)gr_lds + SCORES, *parts = (LDS float *)gr_lds + PARTS;
  const uint32_t wave = wave_id(), lane = lane_id(), D = a->D;
  uint32_t k[PER_WAVE][8], v[PER_WAVE][8];
  int k_half[PER_WAVE], v_half[PER_WAVE];
#pragma unroll
  for (int j = 0; j < PER_WAVE; j++) {
    const uint32_t key = split * SPLIT + WAVES * (uint32_t)j + wave, i = key < a->positions ? key : a->positions - 1;
    load_row(s, W, 0, i, D, k[j], &k_half[j]);
    load_row(s, W, 1, i, D, v[j], &v_half[j]);
  }
#pragma unroll
  for (int j = 0; j < PER_WAVE; j++) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < W; c++) sum = sum + q[c] * widen(k[j][c], k_half[j]);
    sum = wave_sum(sum) * scale;
    const uint32_t key = split * SPLIT + WAVES * (uint32_t)j + wave;
    if (lane == 0) scores[WAVES * (uint32_t)j + wave] = key >= a->low && key < a->high ? sum : -__builtin_inff();
  }
  barrier();
  const float score = scores[lane];
  float most = wave_max(score);
  if (most == -__builtin_inff()) most = -__FLT_MAX__;
  const float e = exp_f(score - most), total = wave_sum(e);
  float sum[8] = {0};
#pragma unroll
  for (int j = 0; j < PER_WAVE; j++) {
    const float weight = float_of(of_lane(bits_of(e), WAVES * (uint32_t)j + wave));
#pragma unroll
    for (int c = 0; c < W; c++) sum[c] = sum[c] + weight * widen(v[j][c], v_half[j]);
  }
#pragma unroll
  for (int c = 0; c < W; c++) parts[wave * 256 + lane + LANES * (uint32_t)c] = sum[c];
  barrier();
  const uint32_t d = thread_id();
  float all = 0;
  for (int x = 0; x < WAVES; x++) all = all + parts[x * 256 + d];
  if (d < D) a->part[2 * (size_t)a->splits + (size_t)split * D + d] = all;
  if (d == 0) a->part[2 * split] = most, a->part[2 * split + 1] = total;
}

// Splits first, first + by, ... of a head whose channels are W a lane.
INLINE void attend_splits(const key_source *s, const head_work *a, int W, uint32_t first, uint32_t end, uint32_t by) {
  const float scale = (float)(1 / __builtin_sqrt((double)a->D));
  float q[8];
#pragma unroll
  for (int c = 0; c < W; c++) {
    const uint32_t d = lane_id() + LANES * (uint32_t)c;
    q[c] = d < a->D ? a->q[d] : 0;
  }
  for (uint32_t split = first; split < end; split += by) attend_split(s, a, W, q, scale, split);
}

// Channel thread_id() of the average over splits [begin, end): their parts by their factors, over the sum.
INLINE float merge_splits(const head_work *a, uint32_t begin, uint32_t end) {
  LDS float *parts = (LDS float *)gr_lds + SCORES;
  const uint32_t d = thread_id() < a->D ? thread_id() : 0;
  float most = -__FLT_MAX__, share = 0;
  for (uint32_t s = thread_id(); s < end; s += THREADS)
    if (s >= begin) most = a->part[2 * s] > most ? a->part[2 * s] : most;
  most = wave_max(most);
  barrier();
  if (lane_id() == 0) parts[wave_id()] = most;
  barrier();
  for (int x = 0; x < WAVES; x++) most = parts[x] > most ? parts[x] : most;
  for (uint32_t s = thread_id(); s < end; s += THREADS)
    if (s >= begin) {
      const float factor = exp_f(a->part[2 * s] - most);
      share = share + factor * a->part[2 * s + 1];
      a->part[2 * s] = factor;
    }
  share = group_sum(share); // its barriers make the factors seen
  const float GLOBAL *part = a->part + 2 * (size_t)a->splits + d;
  float sum = 0;
#pragma unroll 8
  for (uint32_t s = begin; s < end; s++) sum = sum + part[(size_t)s * a->D] * a->part[2 * s];
  return sum / share;
}

// A finished head: gated, stored and quantised as the record asks.
INLINE void put_head(const head_work *a, float y) {
  const uint32_t d = thread_id(), D = a->D;
  if (d < D) {
    if (a->y) a->y[d] = y;
    if (a->gate) y = gated_f(y, a->gate[d]);
    if (a->gated) a->gated[d] = y;
  }
  if (!a->quantised) return;
  if (D % 32 == 0) {
    if (d < D) quantise_block(y, a->quantised, a->H * D / 32, (a->h * D + d) / 32);
    return;
  }
  if (d < D) a->row[a->h * D + d] = y;
  quantise_when_last(a->row_counter, a->H, a->row, 1, a->H * D, a->quantised, 0);
}

// Workgroup `part` of `parts` of a head that sees keys [low, high).
INLINE void attend_head(const key_source *s, const head_work *a, uint32_t part, uint32_t parts) {
  const uint32_t begin = a->low / SPLIT, end = ceil_div(a->high, SPLIT), first = begin + part;
  if (first >= end) return;
  if (a->D <= 64) attend_splits(s, a, 2, first, end, parts);
  else if (a->D <= 128) attend_splits(s, a, 4, first, end, parts);
  else attend_splits(s, a, 8, first, end, parts);
  if (!last_group(a->counter, end - begin < parts ? end - begin : parts)) return;
  put_head(a, merge_splits(a, begin, end));
}

// Places in scratch memory of head h of token t among T tokens: counters of heads, then of tokens; parts, then rows.
INLINE void place_head(head_work *a, gr_work w, uint32_t T, uint32_t t, uint32_t positions) {
  const uint32_t heads = T * a->H;
  a->splits = ceil_div(positions, SPLIT);
  a->counter = w.scratch + t * a->H + a->h, a->row_counter = w.scratch + heads + t;
  const size_t each = (size_t)a->splits * (a->D + 2);
  a->part = scratch_data(w) + (t * a->H + a->h) * each;
  a->row = scratch_data(w) + heads * each + (size_t)t * a->H * a->D;
}

INLINE void attn_split(const gr_attend GR_CONSTANT *a, gr_work w) {
  const uint32_t parts = ceil_div(a->C, SPLIT * SHARED_SPLITS), i = w.group / parts, t = i / a->H, h = i % a->H, g = h / (a->H / a->G);
  if (t >= a->T) return;
  const uint32_t size = a->type_S ? 2 : 4, end = (uint32_t)a->pos[0] + t + 1;
  const key_source s = {.kc = (const uint8_t GLOBAL *)a->kc + (size_t)size * g * a->D, .vc = (const uint8_t GLOBAL *)a->vc + (size_t)size * g * a->D,
                        .half = a->type_S, .step = size * a->G * a->D};
  head_work head = {.q = ROW(ROW(a->q, a->q_row, t), a->q_col, h), .H = a->H, .D = a->D, .h = h, .high = end, .positions = end};
  if (a->y) head.y = ROW(ROW(a->y, a->y_row, t), a->y_col, h);
  if (a->sigmoid_gate_in) head.gate = ROW(ROW(a->sigmoid_gate_in, a->sigmoid_gate_in_row, t), a->sigmoid_gate_in_col, h);
  if (a->sigmoid_gate_out) head.gated = ROW(ROW(a->sigmoid_gate_out, a->sigmoid_gate_out_row, t), a->sigmoid_gate_out_col, h);
  if (a->quantize_out) head.quantised = ROW(a->quantize_out, a->quantize_out_row, t);
  place_head(&head, w, a->T, t, a->C);
  attend_head(&s, &head, w.group % parts, parts);
}

// Keys before the step from a ring, then the whole step's own; `window` positions or more behind a query none is seen.
INLINE void attend_block(const gr_attend_block GR_CONSTANT *a, gr_work w) {
  const uint32_t parts = ceil_div(a->S + a->T, SPLIT * SHARED_SPLITS), i = w.group / parts, t = i / a->H, h = i % a->H, g = h / (a->H / a->G);
  if (t >= a->T) return;
  const uint32_t pos = (uint32_t)a->pos[0], window = (uint32_t)a->window, context = window && window < pos ? window : pos;
  const uint32_t size = a->type_Z ? 2 : 4, reach = context + t + 1;
  const key_source s = {.kc = (const uint8_t GLOBAL *)a->kc + (size_t)size * g * a->D, .vc = (const uint8_t GLOBAL *)a->vc + (size_t)size * g * a->D,
                        .k = ROW(a->k, a->k_col, g), .v = ROW(a->v, a->v_col, g), .half = a->type_Z, .step = size * a->G * a->D,
                        .S = a->S, .from = pos - context, .context = context, .k_row = a->k_row, .v_row = a->v_row};
  head_work head = {.q = ROW(ROW(a->q, a->q_row, t), a->q_col, h), .H = a->H, .D = a->D, .h = h,
                    .low = window && reach > window ? reach - window : 0, .high = context + a->T, .positions = context + a->T};
  if (a->y) head.y = ROW(ROW(a->y, a->y_row, t), a->y_col, h);
  if (a->quantize_out) head.quantised = ROW(a->quantize_out, a->quantize_out_row, t);
  place_head(&head, w, a->T, t, a->S + a->T);
  attend_head(&s, &head, w.group % parts, parts);
}
