// Attention in splits of 32 keys: every sum in the order of `average` in ops/attention.py.
#include "rows.h"

enum { MOST_DIM = 256, PIECES = MOST_DIM / LANES, PER_WAVE = SPLIT / WAVES };
enum { ENOUGH = 1024, MOST_PARTS = 8192 }; // workgroups in all, and parts of a head of all tokens: as ops/attention.py says
// Channels of a head lie in lanes, W of them in each, where W is known when this is compiled: 2, 4 or 8.
#define UNROLL(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#define BY_WIDTH(D, call) ((D) <= 2 * LANES ? call(2) : (D) <= 4 * LANES ? call(4) : call(8))
INLINE uint32_t channel_of(uint32_t j) { return lane_id() + LANES * j; }

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
  if (k.block && i >= k.count) return (row){ROW(k.block, k.row, i - k.count) + k.head, 1};
  const uint32_t place = k.size ? (k.first + i) % k.size : k.first + i;
  const size_t at = (size_t)place * k.step + k.head;
  return (row){(const uint8_t GLOBAL *)k.cache + (k.wide ? 4 : 2) * at, k.wide};
}
// A lane's channels of a row, as they are stored; absent ones repeat the last.
typedef struct {
  uint32_t bits[PIECES], wide;
} channels;
INLINE uint32_t present(uint32_t W, uint32_t j, uint32_t D) { // all of the lower half are, but for the least W
  return channel_of(j) < D || (W > 2 && j < W / 2) ? channel_of(j) : D - 1;
}
INLINE void load_wide(uint32_t W, row r, uint32_t D, channels *x) {
  x->wide = 1;
  UNROLL(j, W) x->bits[j] = load4((const uint32_t GLOBAL *)r.at + present(W, j, D));
}
INLINE void load_half(uint32_t W, row r, uint32_t D, channels *x) {
  x->wide = 0;
  UNROLL(j, W) x->bits[j] = load2((const uint16_t GLOBAL *)r.at + present(W, j, D));
}
// Rows key, key + step, ..., those from `high` on being the last before it.
INLINE void load_four(uint32_t W, rows k, uint32_t key, uint32_t step, uint32_t high, uint32_t D, channels *x) {
  row r[PER_WAVE];
  UNROLL(i, PER_WAVE) r[i] = row_of(k, key + step * i < high ? key + step * i : high - 1);
  if (k.wide) UNROLL(i, PER_WAVE) load_wide(W, r[i], D, &x[i]);
  else if (!k.block || key + step * (PER_WAVE - 1) < k.count) UNROLL(i, PER_WAVE) load_half(W, r[i], D, &x[i]);
  else UNROLL(i, PER_WAVE) {
      if (r[i].wide) load_wide(W, r[i], D, &x[i]);
      else load_half(W, r[i], D, &x[i]);
    }
}
INLINE float value_of(const channels *x, uint32_t j) { return x->wide ? float_of(x->bits[j]) : half_of(x->bits[j]); }

INLINE void load_query(uint32_t W, float *q, const float GLOBAL *from, uint32_t D) {
  UNROLL(j, W) q[j] = channel_of(j) < D ? from[channel_of(j)] : 0;
}
// The sums of a query and four keys; products with absent channels are 0, whatever these hold.
INLINE void four_scores(uint32_t W, const float *q, channels *k, uint32_t D, float *scores) {
  if (D < W * LANES) UNROLL(i, PER_WAVE) UNROLL(j, W) k[i].bits[j] = channel_of(j) < D ? k[i].bits[j] : 0;
  UNROLL(i, PER_WAVE) {
    float sum = 0;
    UNROLL(j, W) sum = sum + q[j] * value_of(&k[i], j);
    scores[i] = wave_sum(sum) * inverse_root(D);
  }
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

// The keys [low, high) of a head, and what they stand for.
typedef struct {
  rows keys, values;
  uint32_t low, high, D;
} visible;
// Of keys `from` .. from + 31 those in [low, high).
INLINE uint32_t seen_of(const visible *x, uint32_t from) {
  const uint32_t first = x->low > from ? x->low - from : 0, end = x->high > from ? x->high - from : 0;
  return (end < SPLIT ? (1u << end) - 1 : ~0u) & (first < SPLIT ? ~0u << first : 0);
}

// Maximum, sum and average of keys `from` .. from + 31 by a workgroup, the latter of channel c in thread c.
INLINE float average_split(uint32_t W, const float *q, const visible *x, uint32_t from, float *m, float *l) {
  LDS float *shared = (LDS float *)gr_lds;
  const uint32_t seen = seen_of(x, from), wave = wave_id(), D = x->D;
  channels k[PER_WAVE], v[PER_WAVE];
  float scores[PER_WAVE], o[PIECES] = {0}, total = 0;
  load_four(W, x->keys, from + wave, WAVES, x->high, D, k);
  if (W < PIECES) load_four(W, x->values, from + wave, WAVES, x->high, D, v); // else there are no registers for both
  four_scores(W, q, k, D, scores);
  if (W == PIECES) load_four(W, x->values, from + wave, WAVES, x->high, D, v);
  UNROLL(i, PER_WAVE) {
    const uint32_t key = wave + WAVES * i;
    if (lane_id() == 0) shared[SCORES + key] = seen >> key & 1 ? scores[i] : -__builtin_inff();
  }
  barrier();
  const float s = shared[SCORES + lane_id()];
  *m = wave_max(s);
  const float e = exp_f(s - *m);
  *l = wave_sum(e);
  UNROLL(i, PER_WAVE) {
    const float weight = float_of(of_lane(bits_of(e), wave + WAVES * i));
    if (seen >> (wave + WAVES * i) & 1) UNROLL(j, W) o[j] = o[j] + weight * value_of(&v[i], j);
  }
  UNROLL(j, W)
    if (channel_of(j) < D) shared[PARTS + wave * D + channel_of(j)] = o[j];
  barrier();
  if (thread_id() < D) UNROLL(i, WAVES) total = total + shared[PARTS + i * D + thread_id()];
  return total;
}
// Parts of a token and head lie in scratch memory, one for each split: maximum, sum, average[D].
INLINE void write_part(float GLOBAL *part, float m, float l, float o, uint32_t D) {
  if (thread_id() == 0) {
    part[0] = m;
    part[1] = l;
  }
  if (thread_id() < D) part[2 + thread_id()] = o;
}

// The greatest of all waves' numbers, in all threads.
INLINE float group_most(float most) {
  LDS float *shared = (LDS float *)gr_lds;
  barrier();
  if (lane_id() == 0) shared[wave_id()] = most;
  barrier();
  for (uint32_t wave = 0; wave < WAVES; wave++) most = shared[wave] > most ? shared[wave] : most;
  return most;
}
// The average over all splits of a token and head, channel by thread; reads what other workgroups wrote.
INLINE float merge_splits(const float GLOBAL *part, uint32_t D, uint32_t used) {
  LDS float *shared = (LDS float *)gr_lds;
  float most = -__builtin_inff();
  for (uint32_t s = thread_id(); s < used; s += THREADS) {
    const float m = part[(size_t)s * (D + 2)];
    most = m > most ? m : most;
  }
  most = group_most(wave_max(most));
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

// Scores of keys `from` .. from + 31, one a lane; -inf for those that are not seen.
INLINE float wave_scores(uint32_t W, const float *q, const visible *x, uint32_t from) {
  const uint32_t seen = seen_of(x, from);
  float mine = -__builtin_inff();
#pragma nounroll
  for (uint32_t key = 0; key < SPLIT && from + key < x->high; key += PER_WAVE) {
    channels k[PER_WAVE];
    float scores[PER_WAVE];
    load_four(W, x->keys, from + key, 1, x->high, x->D, k);
    four_scores(W, q, k, x->D, scores);
    UNROLL(i, PER_WAVE)
      if (lane_id() == key + i && seen >> (key + i) & 1) mine = scores[i];
  }
  return mine;
}

// The average by one workgroup, channel by thread: first the maximum, then split after split. Or, where there are parts,
// splits first, first + step, ... to theirs.
INLINE float average(uint32_t W, const float GLOBAL *from, const visible *x, float GLOBAL *parts, uint32_t first, uint32_t step) {
  const uint32_t used = ceil_div(x->high, SPLIT);
  float q[PIECES], m, l, most = -__builtin_inff(), share = 0, y = 0;
  load_query(W, q, from, x->D);
  if (!parts) {
    for (uint32_t split = first + wave_id(); split < used; split += WAVES) {
      m = wave_max(wave_scores(W, q, x, split * SPLIT));
      most = m > most ? m : most;
    }
    most = group_most(most);
  }
  for (uint32_t split = first; split < used; split += step) {
    const float o = average_split(W, q, x, split * SPLIT, &m, &l);
    if (parts) {
      write_part(parts + (size_t)split * (x->D + 2), m, l, o, x->D);
      continue;
    }
    const float factor = exp_f(m - most);
    if (split % THREADS == thread_id()) share = share + factor * l;
    y = y + o * factor;
  }
  return parts ? 0 : y / group_sum(share);
}

// Workgroups of a token and head take its splits in turn, and the last of them merges; or, where that would be too many
// parts, one of them does all.
INLINE void attn_split(const gr_attend GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, all = ceil_div(a->C, SPLIT), most = MOST_PARTS / a->T, splits = all < most ? all : most;
  const uint32_t units = a->T * a->H, enough = units < ENOUGH ? ENOUGH / units : 1, sharers = all < enough ? all : enough;
  const uint32_t first = w.group % sharers, unit = w.group / sharers;
  if (unit >= units) return;
  const uint32_t t = unit / a->H, h = unit % a->H, count = (uint32_t)a->pos[0] + t + 1, used = ceil_div(count, SPLIT);
  const int alone = used > splits;
  if (first >= (alone ? 1 : used)) return;
  const rows keys = {a->kc, 0, !a->type_S, a->G * D, h / (a->H / a->G) * D, 0, 0, 0, 0};
  visible x = {keys, keys, 0, count, D};
  x.values.cache = a->vc;
  const float GLOBAL *from = ROW(ROW(a->q, a->q_row, t), a->q_col, h);
  float GLOBAL *parts = (float GLOBAL *)(w.scratch + COUNTERS) + (size_t)unit * splits * (D + 2);
#define AVERAGE(W) average(W, from, &x, alone ? 0 : parts, first, alone ? 1 : sharers)
  float y = BY_WIDTH(D, AVERAGE);
#undef AVERAGE
  if (!alone) {
    if (!last_group(w.scratch + unit, used < sharers ? used : sharers)) return;
    y = merge_splits(parts, D, used);
  }
  if (thread_id() < D) FINISH_HEAD(a, t, h, thread_id(), y);
}

// A workgroup for each token and head: the context's last positions, and then the block.
INLINE void attend_block(const gr_attend_block GR_CONSTANT *a, gr_work w) {
  const uint32_t D = a->D, t = w.group / a->H, h = w.group % a->H;
  if (t >= a->T) return;
  const uint32_t pos = (uint32_t)a->pos[0], window = (uint32_t)a->window, head = h / (a->H / a->G) * D;
  const uint32_t before = window && window < pos ? window : pos, first = pos - before, reach = before + t + 1;
  const rows keys = {a->kc, (const float GLOBAL *)a->k, !a->type_Z, a->G * D, head, first, a->S, before, a->k_row};
  const rows values = {a->vc, (const float GLOBAL *)a->v, !a->type_Z, a->G * D, head, first, a->S, before, a->v_row};
  const visible x = {keys, values, window && window < reach ? reach - window : 0, before + a->T, D};
  const float GLOBAL *from = ROW(ROW(a->q, a->q_row, t), a->q_col, h);
#define AVERAGE(W) average(W, from, &x, 0, x.low / SPLIT, 1)
  const float y = BY_WIDTH(D, AVERAGE);
#undef AVERAGE
  if (thread_id() >= D) return;
  if (a->y) ROW(ROW(a->y, a->y_row, t), a->y_col, h)[thread_id()] = y;
  if (a->quantize_out) quantise_block(y, ROW(a->quantize_out, a->quantize_out_row, t), a->H * D / 32, (h * D + thread_id()) / 32);
}
