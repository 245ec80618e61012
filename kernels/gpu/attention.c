// Attention in splits of 32 keys: every sum in the order of `average` in ops/attention.py.
#include "rows.h"

enum { MOST_DIM = 256, PIECES = MOST_DIM / LANES };
// Channels of a head lie in lanes, piece after piece in registers: loops over them must be unrolled.
#define FOR_PIECES(j) _Pragma("unroll") for (uint32_t j = 0; j < PIECES; j++)
#define FOR_CHANNELS(j, c, D)                                                                                           \
  _Pragma("unroll") for (uint32_t j = 0, c = lane_id(); j < PIECES; j++, c += LANES) if (LANES * j < (D) && c < (D))

// Rows of keys or values of one head: those of a cache, position `first` being number 0, in a ring of `size` rows if
// that is not 0; and from number `count` on those of a block, in f32.
typedef struct {
  const void GLOBAL *cache;
  const float GLOBAL *block;
  uint32_t wide, step, head, first, size, count, row; // wide: f32 cache; step, head: channels to the next row, to the head
} rows;
typedef struct {
  const void GLOBAL *at;
  uint32_t wide;
} row;
INLINE row row_of(rows k, uint32_t i) {
  if (i >= k.count) return (row){ROW(k.block, k.row, i - k.count) + k.head, 1};
  const uint32_t place = k.size ? (k.first + i) % k.size : k.first + i;
  const size_t at = (size_t)place * k.step + k.head;
  return (row){(const uint8_t GLOBAL *)k.cache + (k.wide ? 4 : 2) * at, k.wide};
}
INLINE float channel(row k, uint32_t c) {
  return k.wide ? ((const float GLOBAL *)k.at)[c] : half_of(((const uint16_t GLOBAL *)k.at)[c]);
}

// A wave's score of a query, whose channels lanes hold, and a key.
INLINE float score(const float *q, row k, uint32_t D, float scale) {
  float sum = 0;
  FOR_CHANNELS(j, c, D) sum = sum + q[j] * channel(k, c);
  return wave_sum(sum) * scale;
}
INLINE void load_query(float *q, const float GLOBAL *from, uint32_t D) {
  FOR_PIECES(j) q[j] = 0;
  FOR_CHANNELS(j, c, D) q[j] = from[c];
}

// A head's channel of a token with what was absorbed; whole blocks of channels are in one wave.
#define FINISH_HEAD(a, t, h, c, value)                                                                                 \
  do {                                                                                                                 \
    float y_ = (value);                                                                                                \
    if ((a)->y) ROW(ROW((a)->y, (a)->y_row, t), (a)->y_col, h)[c] = y_;                                                \
    if ((a)->sigmoid_gate_in) {                                                                                        \
      y_ = gated_f(y_, ROW(ROW((a)->sigmoid_gate_in, (a)->sigmoid_gate_in_row, t), (a)->sigmoid_gate_in_col, h)[c]);   \
      if ((a)->sigmoid_gate_out) ROW(ROW((a)->sigmoid_gate_out, (a)->sigmoid_gate_out_row, t), (a)->sigmoid_gate_out_col, h)[c] = y_; \
    }                                                                                                                  \
    if ((a)->quantize_out)                                                                                             \
      quantise_block(y_, ROW((a)->quantize_out, (a)->quantize_out_row, t), (a)->H * (a)->D / 32, ((h) * (a)->D + (c)) / 32); \
  } while (0)

// Shared memory of a split: 32 scores, then each wave's part of the values' average.
enum { SCORES = 16, PARTS = SCORES + SPLIT };

// The scores of keys `from` .. from + 31 in shared memory, -inf for those that are not seen.
INLINE void score_split(const float *q, rows keys, uint32_t from, uint32_t seen, uint32_t D) {
  LDS float *shared = (LDS float *)gr_lds;
  for (uint32_t key = wave_id(); key < SPLIT; key += WAVES) {
    const float s = seen >> key & 1 ? score(q, row_of(keys, from + key), D, inverse_root(D)) : -__builtin_inff();
    if (lane_id() == 0) shared[SCORES + key] = s;
  }
  barrier();
}
// Maximum, sum and average of a split by its scores, the latter of channel c in thread c.
INLINE float average_split(rows values, uint32_t from, uint32_t seen, uint32_t D, float *m, float *l) {
  LDS float *shared = (LDS float *)gr_lds;
  const float s = shared[SCORES + lane_id()];
  *m = wave_max(s);
  const float e = exp_f(s - *m);
  *l = wave_sum(e);
  float o[PIECES];
  FOR_PIECES(j) o[j] = 0;
  for (uint32_t key = wave_id(); key < SPLIT; key += WAVES) {
    const float weight = float_of(of_lane(bits_of(e), key));
    if (!(seen >> key & 1)) continue;
    const row v = row_of(values, from + key);
    FOR_CHANNELS(j, c, D) o[j] = o[j] + weight * channel(v, c);
  }
  FOR_CHANNELS(j, c, D) shared[PARTS + wave_id() * D + c] = o[j];
  barrier();
  float total = 0;
  if (thread_id() < D)
    for (uint32_t wave = 0; wave < WAVES; wave++) total = total + shared[PARTS + wave * D + thread_id()];
  return total;
}
INLINE void write_part(float GLOBAL *part, float m, float l, float o, uint32_t D) {
  if (thread_id() == 0) {
    part[0] = m;
    part[1] = l;
  }
  if (thread_id() < D) part[2 + thread_id()] = o;
}

// Part (token, head, split) in scratch memory: maximum, sum, average[D].
INLINE float GLOBAL *part_of(gr_work w, uint32_t D, uint32_t splits, uint32_t unit, uint32_t split) {
  return (float GLOBAL *)(w.scratch + COUNTERS) + ((size_t)unit * splits + split) * (D + 2);
}
// The average over all splits of a token and head, channel by thread; reads what other workgroups wrote.
INLINE float merge_splits(const float GLOBAL *part, uint32_t D, uint32_t used) {
  LDS float *shared = (LDS float *)gr_lds;
  float most = -__builtin_inff();
  for (uint32_t s = thread_id(); s < used; s += THREADS) {
    const float m = part[(size_t)s * (D + 2)];
    most = m > most ? m : most;
  }
  most = wave_max(most);
  barrier();
  if (lane_id() == 0) shared[wave_id()] = most;
  barrier();
  for (uint32_t wave = 0; wave < WAVES; wave++) most = shared[wave] > most ? shared[wave] : most;
  float sum = 0, y = 0;
  for (uint32_t s = thread_id(); s < used; s += THREADS) {
    const float GLOBAL *p = part + (size_t)s * (D + 2);
    sum = sum + exp_f(p[0] - most) * p[1];
  }
  const float total = group_sum(sum);
  for (uint32_t first = 0; first < used; first += THREADS) {
    barrier();
    if (first + thread_id() < used) shared[SCORES + thread_id()] = exp_f(part[(size_t)(first + thread_id()) * (D + 2)] - most);
    barrier();
    if (thread_id() < D)
      for (uint32_t s = first; s < used && s < first + THREADS; s++) y = y + part[(size_t)s * (D + 2) + 2 + thread_id()] * shared[SCORES + s - first];
  }
  return y / total;
}

// A workgroup for each token, head and split; the last one of a token and head merges.
INLINE void attn_split(const gr_attend GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, splits = ceil_div(a->C, SPLIT), split = w.group % splits, unit = w.group / splits;
  if (unit >= a->T * a->H) return;
  const uint32_t t = unit / a->H, h = unit % a->H, last = (uint32_t)a->pos[0] + t, used = last / SPLIT + 1;
  if (split >= used) return;
  const uint32_t left = last - split * SPLIT, seen = left >= SPLIT - 1 ? ~0u : (2u << left) - 1;
  const rows keys = {a->kc, 0, !a->type_S, a->G * D, h / (a->H / a->G) * D, 0, 0, ~0u, 0};
  rows values = keys;
  values.cache = a->vc;
  float q[PIECES], m, l;
  load_query(q, ROW(ROW(a->q, a->q_row, t), a->q_col, h), D);
  score_split(q, keys, split * SPLIT, seen, D);
  const float o = average_split(values, split * SPLIT, seen, D, &m, &l);
  write_part(part_of(w, D, splits, unit, split), m, l, o, D);
  if (!last_group(w.scratch + unit, used)) return;
  const float y = merge_splits(part_of(w, D, splits, unit, 0), D, used);
  if (thread_id() < D) FINISH_HEAD(a, t, h, thread_id(), y);
}

// A workgroup for each token and head, split after split: the context's last positions, and then the block.
INLINE void attend_block(const gr_attend_block GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, t = w.group / a->H, h = w.group % a->H, splits = ceil_div(a->S + a->T, SPLIT);
  if (t >= a->T) return;
  const uint32_t pos = (uint32_t)a->pos[0], window = (uint32_t)a->window, head = h / (a->H / a->G) * D;
  const uint32_t context = window && window < pos ? window : pos, first = pos - context, all = context + a->T;
  const uint32_t used = ceil_div(all, SPLIT);
  const rows keys = {a->kc, (const float GLOBAL *)a->k, !a->type_Z, a->G * D, head, first, a->S, context, a->k_row};
  const rows values = {a->vc, (const float GLOBAL *)a->v, !a->type_Z, a->G * D, head, first, a->S, context, a->v_row};
  float q[PIECES];
  load_query(q, ROW(ROW(a->q, a->q_row, t), a->q_col, h), D);
  for (uint32_t split = 0; split < used; split++) {
    float m = -3.402823466e38f, l = 0, o = 0;
    uint32_t seen = 0;
    for (uint32_t key = 0; key < SPLIT; key++) {
      const int32_t behind = (int32_t)(pos + t) - (int32_t)(first + split * SPLIT + key);
      if (split * SPLIT + key < all && (!window || behind < (int32_t)window)) seen |= 1u << key;
    }
    if (seen) {
      score_split(q, keys, split * SPLIT, seen, D);
      o = average_split(values, split * SPLIT, seen, D, &m, &l);
    }
    write_part(part_of(w, D, splits, w.group, split), m, l, o, D);
    barrier();
  }
  const float y = merge_splits(part_of(w, D, splits, w.group, 0), D, used);
  if (thread_id() >= D) return;
  if (a->y) ROW(ROW(a->y, a->y_row, t), a->y_col, h)[thread_id()] = y;
  if (a->quantize_out) quantise_block(y, ROW(a->quantize_out, a->quantize_out_row, t), a->H * D / 32, (h * D + thread_id()) / 32);
}
