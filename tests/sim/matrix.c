// v_wmma_*: D = A B + C of 16 x 16 tiles, gfx12 layout for waves of 32.
//
// A: lane l holds row l % 16, B: column l % 16, of both the K values of half l / 16 of the lanes; C and D: element v of lane
// l is row 8 (l / 16) + v, column l % 16. Floats: the exact sum of all products and C is rounded once; the order that
// hardware adds in is unpublished.
#include "matrix.h"
#include "exact.h"

enum { N = 16, MOST_K = 32 };
typedef struct { uint8_t k, bits, result_bits, bfloat, is_float; } shape;

static shape shape_of(u32 op) {
  switch (op) {
  case OP_v_wmma_i32_16x16x16_iu8: return (shape){16, 8, 32, 0, 0};
  case OP_v_wmma_i32_16x16x16_iu4: return (shape){16, 4, 32, 0, 0};
  case OP_v_wmma_i32_16x16x32_iu4: return (shape){32, 4, 32, 0, 0};
  case OP_v_wmma_f32_16x16x16_f16: return (shape){16, 16, 32, 0, 1};
  case OP_v_wmma_f32_16x16x16_bf16: return (shape){16, 16, 32, 1, 1};
  case OP_v_wmma_f16_16x16x16_f16: return (shape){16, 16, 16, 0, 1};
  case OP_v_wmma_bf16_16x16x16_bf16: return (shape){16, 16, 16, 1, 1};
  default: return (shape){0, 0, 0, 0, 0};
  }
}

// Element e of lane l is K = (k / 2) * (l / 16) + e; any order that A and B share gives the same sums.
static int k_of(const shape *s, int lane, int e) { return s->k / 2 * (lane / N) + e; }
INLINE u32 raw_element(const wave *w, u32 vgpr, int bits, int lane, int e) {
  const u32 word = w->v[vgpr + (u32)(e * bits / 32)][lane];
  return word >> e * bits % 32 & (bits == 32 ? ~0u : (1u << bits) - 1);
}

// Integers: pairs of K as 16-bit numbers in a word, for the processor's multiply-add of pairs
typedef struct { u32 pair[MOST_K / 2][N]; } pairs;

static void load_bytes(const wave *w, u32 vgpr, int is_signed, pairs *out) { // bytes, 32 lanes at a time
  for (int word = 0; word < 2; word++) {
    for (int high = 0; high < 2; high++) {
      const vec x = w->v[vgpr + (u32)word] >> 16 * high;
      lanes r;
      if (is_signed) r.v = ((vec)((ivec)(x << 24) >> 24) & 0xffff) | ((vec)((ivec)(x << 16) >> 24) << 16);
      else r.v = (x & 0xff) | (x & 0xff00) << 8;
      const int p = 2 * word + high;
      memcpy(out->pair[p], &r.u[0], sizeof out->pair[p]);
      memcpy(out->pair[p + 4], &r.u[N], sizeof out->pair[p]);
    }
  }
}
static void load_nibbles(const wave *w, u32 vgpr, const shape *s, int is_signed, pairs *out) {
  memset(out, 0, sizeof *out);
  EACH_LANE {
    for (int e = 0; e < s->k / 2; e++) {
      const u32 x = raw_element(w, vgpr, 4, l, e), value = is_signed && x & 8 ? x | 0xfff0 : x;
      const int k = k_of(s, l, e);
      out->pair[k / 2][l % N] |= value << 16 * (k & 1);
    }
  }
}

static void read_accumulators(const wave *w, const inst *i, lanes c[8]) {
  for (int v = 0; v < 8; v++) c[v].v = i->src[2] >= 256 ? w->v[i->src[2] - 256 + v] : splat(w->s[i->src[2]]);
}
static void saturated_row(const pairs *a, const pairs *b, int count, int row, int32_t *out) {
  for (int n = 0; n < N; n++) {
    int64_t sum = out[n];
    for (int p = 0; p < count; p++)
      sum += (int16_t)a->pair[p][row] * (int16_t)b->pair[p][n] + (int16_t)(a->pair[p][row] >> 16) * (int16_t)(b->pair[p][n] >> 16);
    out[n] = clamp_i32(sum, INT32_MIN, INT32_MAX);
  }
}
static void integer_row(const pairs *a, const pairs *b, int count, int row, int32_t *out) {
  __m256i low = _mm256_loadu_si256((const __m256i *)out), high = _mm256_loadu_si256((const __m256i *)(out + 8));
  for (int p = 0; p < count; p++) {
    const __m256i x = _mm256_set1_epi32((int)a->pair[p][row]);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(x, _mm256_loadu_si256((const __m256i *)b->pair[p])));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(x, _mm256_loadu_si256((const __m256i *)(b->pair[p] + 8))));
  }
  _mm256_storeu_si256((__m256i *)out, low);
  _mm256_storeu_si256((__m256i *)(out + 8), high);
}
static void run_integers(wave *w, const inst *i, const shape *s) {
  pairs a, b;
  lanes c[8];
  read_accumulators(w, i, c);
  if (s->bits == 8) {
    load_bytes(w, i->src[0] - 256u, i->neg & 1, &a);
    load_bytes(w, i->src[1] - 256u, i->neg >> 1 & 1, &b);
  } else {
    load_nibbles(w, i->src[0] - 256u, s, i->neg & 1, &a);
    load_nibbles(w, i->src[1] - 256u, s, i->neg >> 1 & 1, &b);
  }
  for (int row = 0; row < N; row++) {
    int32_t *out = &c[row & 7].n[row / 8 * N];
    if (i->clamp) saturated_row(&a, &b, s->k / 2, row, out);
    else integer_row(&a, &b, s->k / 2, row, out);
  }
  for (int v = 0; v < 8; v++) w->v[i->dst + v] = c[v].v;
}

typedef struct { double x[N][N]; int top, bottom, finite; } tile; // x[k][row or column]; exponents of the first and last bits

static void load_floats(const wave *w, const inst *i, int n, const shape *s, tile *out) {
  const int digits = s->bfloat ? 8 : 11, least = s->bfloat ? 1 : 113; // biased exponent of the smallest normal number
  lanes top = {splat(0)}, bottom = {splat(4096)}, bits;
  for (int e = 0; e < 8; e++) {
    const vec word = w->v[i->src[n] - 256 + e / 2], h = e & 1 ? word >> 16 : word & 0xffff;
    const u32 flip = (e & 1 ? i->neg_hi : i->neg) >> n & 1 ? 0x80000000 : 0;
    bits.v = (s->bfloat ? h << 16 : (vec)floats_of_halves(h)) ^ flip;
    for (int l = 0; l < N; l++) out->x[e][l] = bits.x[l], out->x[e + 8][l] = bits.x[l + N];
    EACH_LANE {
      const int exponent = bits.n[l] >> 23 & 255, normal = exponent < least ? least : exponent;
      const int last = bits.u[l] << 1 ? normal - digits + 1 : 4096;
      top.n[l] = exponent > top.n[l] ? exponent : top.n[l];
      bottom.n[l] = last < bottom.n[l] ? last : bottom.n[l];
    }
  }
  out->top = -4096, out->bottom = 4096;
  EACH_LANE {
    if (top.n[l] > out->top) out->top = top.n[l];
    if (bottom.n[l] < out->bottom) out->bottom = bottom.n[l];
  }
  out->finite = out->top < 255;
  if (s->bfloat && out->top < 1) out->top = 1;
}
static void row_sums(const tile *a, const tile *b, int row, double sum[N]) {
  for (int n = 0; n < N; n++) sum[n] = 0;
  for (int k = 0; k < N; k++)
    for (int n = 0; n < N; n++) sum[n] = __builtin_fma(a->x[k][row], b->x[k][n], sum[n]); // products are exact
}
// Sums and the sums of what their roundings lost; those of halves fit a double, so that both together are exact.
static void long_row_sums(const tile *a, const tile *b, int row, double sum[N], double lost[N]) {
  for (int n = 0; n < N; n++) sum[n] = lost[n] = 0;
  for (int k = 0; k < N; k++)
    for (int n = 0; n < N; n++) {
      const double x = a->x[k][row] * b->x[k][n], total = sum[n] + x, virtual = total - sum[n];
      lost[n] += (sum[n] - (total - virtual)) + (x - virtual);
      sum[n] = total;
    }
}
static double any_sum(const tile *a, const tile *b, int row, int n, double c) {
  exact_sum s = {{0}, 0};
  for (int k = 0; k < N; k++) exact_add(&s, a->x[k][row] * b->x[k][n]);
  exact_add(&s, c);
  return exact_value(&s);
}
static double sum_of_three(double a, double b, double c) {
  exact_sum s = {{a}, 1};
  exact_add(&s, b);
  exact_add(&s, c);
  return exact_value(&s);
}
static void read_floats(const wave *w, const inst *i, const shape *s, double c[8][LANES]) { // C by element and lane
  for (int v = 0; v < 8; v++) {
    const u32 n = i->src[2];
    lanes x;
    if (s->result_bits == 32) x.v = read_vec(w, n >= 256 ? n + (u32)v : n);
    else if (n >= 256) x.v = v & 1 ? w->v[n - 256 + v / 2] >> 16 : w->v[n - 256 + v / 2] & 0xffff;
    else x.v = (s->bfloat ? read_bfloat_vec(w, n) : read_half_vec(w, n)) & 0xffff;
    if (s->result_bits == 16) x.v = s->bfloat ? x.v << 16 : (vec)floats_of_halves(x.v);
    if (i->neg_hi & 4) x.v &= splat(0x7fffffff);
    if (i->neg & 4) x.v ^= splat(0x80000000);
    EACH_LANE c[v][l] = x.x[l];
  }
}
static u32 result_of(const shape *s, double x) { // x is rounded to odd
  if (s->result_bits == 32) return as_u32((float)x);
  if (!s->bfloat) return double_to_half(x);
  return float_to_bfloat(float_to_odd(x));
}
static void run_floats(wave *w, const inst *i, const shape *s) {
  tile a, b;
  lanes d[8];
  memset(d, 0, sizeof d);
  double c[8][LANES];
  read_floats(w, i, s, c);
  load_floats(w, i, 0, s, &a);
  load_floats(w, i, 1, s, &b);
  const int short_sums = !a.finite || !b.finite || a.top + b.top + 6 - a.bottom - b.bottom <= 53; // exact in a double, or NaN
  for (int row = 0; row < N; row++) {
    double sum[N], lost[N] = {0};
    if (short_sums) row_sums(&a, &b, row, sum);
    else long_row_sums(&a, &b, row, sum, lost);
    const int v = row & 7, first = row / 8 * N;
    double total[N];
    for (int n = 0; n < N; n++) total[n] = sum_to_odd(sum[n], c[v][first + n]);
    for (int n = 0; n < N; n++) {
      if (lost[n] == 0 || !isfinite(c[v][first + n])) continue;
      total[n] = s->bfloat ? any_sum(&a, &b, row, n, c[v][first + n]) : sum_of_three(lost[n], sum[n], c[v][first + n]);
    }
    for (int n = 0; n < N; n++) d[v * s->result_bits / 32].u[first + n] |= result_of(s, total[n]) << v * s->result_bits % 32;
  }
  for (int v = 0; v < 8 * s->result_bits / 32; v++) w->v[i->dst + v] = d[v].v;
}

int run_wmma(wave *w, const inst *i) {
  const shape s = shape_of(i->op);
  if (!s.k) return 0;
  sim.count.wmma++;
  if (w->exec != ~0u) fail(w, i, "EXEC is 0x%08x; a matrix instruction needs all lanes", w->exec);
  else if (i->src[0] < 256 || i->src[1] < 256) fail(w, i, "the matrices of a matrix instruction must be VGPRs");
  else if (s.is_float) run_floats(w, i, &s);
  else run_integers(w, i, &s);
  return 1;
}
