// The steps of IEEE division: v_div_scale, v_div_fmas, v_div_fixup.
//
// A quotient is computed on scaled operands so that no step meets a subnormal; VCC says that v_div_fmas has to scale back.
#include "lanes.h"

// The manual prints a scale of +64 (+128) for the denominator when both 1/d and n/d are subnormal; that would overflow, so
// it is taken as -64. Its overflow clause of v_div_fixup asks for an infinite denominator; the quotient must be meant. It
// also prints 2^32 (2^64) as the factor of v_div_fmas; only 2^+-64 (2^+-128) undoes these scales.
typedef struct { int exponent_bits, scale, near_overflow, tiny; double smallest; } range;
static const range SINGLE = {8, 64, 96, 23, 0x1p-126}, DOUBLE = {11, 128, 768, 53, 0x1p-1022};

static int biased(double x, const range *of) { // exponent field of x in its format
  if (x == 0) return 0;
  if (!isfinite(x)) return (1 << of->exponent_bits) - 1;
  const int e = ilogb(x) + (1 << (of->exponent_bits - 1)) - 1;
  return e < 0 ? 0 : fabs(x) < of->smallest ? 0 : e;
}
static int subnormal(double x, const range *of) { return x != 0 && fabs(x) < of->smallest; }

// Power of two for x, one of denominator and numerator; *scaled: the quotient has to be scaled back.
static int scale_of(double x, double denominator, double numerator, const range *of, int *scaled) {
  const int tiny_inverse = subnormal(1 / denominator, of) || (of == &DOUBLE && fabs(denominator) > 0x1p1022);
  const int tiny_quotient = subnormal(numerator / denominator, of);
  *scaled = 0;
  if (biased(numerator, of) - biased(denominator, of) >= of->near_overflow) {
    *scaled = 1;
    return x == denominator ? of->scale : 0;
  }
  if (subnormal(denominator, of)) return of->scale;
  if (tiny_inverse && tiny_quotient) {
    *scaled = 1;
    return x == denominator ? -of->scale : 0;
  }
  if (tiny_inverse) return -of->scale;
  if (tiny_quotient) {
    *scaled = 1;
    return x == numerator ? of->scale : 0;
  }
  return biased(numerator, of) <= of->tiny ? of->scale : 0;
}

static double fixed_up(double quotient, double d, double n, const range *of) {
  const double sign = signbit(d) != signbit(n) ? -1 : 1;
  if (n != n) return n;
  if (d != d) return d;
  if ((d == 0 && n == 0) || (isinf(d) && isinf(n))) return -NAN;
  if (d == 0 || isinf(n)) return sign * INFINITY;
  if (isinf(d) || n == 0) return sign * 0.0;
  const int difference = biased(n, of) - biased(d, of);
  if (difference < (of == &SINGLE ? -150 : -1075)) return sign * 0.0;
  if (difference > (1 << (of->exponent_bits - 1))) return sign * INFINITY; // the steps before have overflowed to NaN
  return copysign(quotient, sign);
}

typedef struct { double x[3]; } triple;
static triple sources(const wave *w, const inst *i, const vec *const s[3], int wide, int l) {
  triple t;
  for (int k = 0; k < 3; k++) {
    double x = wide ? as_double(read_lane_f64(w, i->src[k], l)) : (double)as_float((*s[k])[l]);
    if (i->abs >> k & 1) x = fabs(x);
    t.x[k] = i->neg >> k & 1 ? -x : x;
  }
  return t;
}
static void write_lane_float(wave *w, const inst *i, int wide, int l, double x) {
  if (wide) write_lane_u64(w, i->dst, l, as_u64(finished_double(i, x)));
  else write_lane(w, i->dst, l, as_u32(finished_scalar(i, (float)x)));
}

static void run_scale(wave *w, const inst *i, const vec *const s[3], int wide) {
  const range *of = wide ? &DOUBLE : &SINGLE;
  u32 mask = 0;
  EACH_ACTIVE_LANE(w->exec) {
    const triple t = sources(w, i, s, wide, (int)l);
    int scaled = 0;
    double r = NAN;
    if (t.x[1] != 0 && t.x[2] != 0) r = ldexp(t.x[0], scale_of(t.x[0], t.x[1], t.x[2], of, &scaled));
    mask |= (u32)scaled << l;
    write_lane_float(w, i, wide, (int)l, r);
  }
  write_scalar(w, i->sdst, mask);
}
static void run_fmas(wave *w, const inst *i, const vec *const s[3], int wide) {
  EACH_ACTIVE_LANE(w->exec) {
    const triple t = sources(w, i, s, wide, (int)l);
    double r = wide ? fma(t.x[0], t.x[1], t.x[2]) : (double)fmaf((float)t.x[0], (float)t.x[1], (float)t.x[2]);
    const int up = fabs(t.x[2]) >= 2;
    if (w->s[VCC] >> l & 1) r = ldexp(fma(t.x[0], t.x[1], t.x[2]), (up ? 1 : -1) * (wide ? 128 : 64)); // f32: rounded once
    write_lane_float(w, i, wide, (int)l, r);
  }
}
static void run_fixup(wave *w, const inst *i, const vec *const s[3], int wide) {
  EACH_ACTIVE_LANE(w->exec) {
    const triple t = sources(w, i, s, wide, (int)l);
    write_lane_float(w, i, wide, (int)l, fixed_up(t.x[0], t.x[1], t.x[2], wide ? &DOUBLE : &SINGLE));
  }
}
static void run_half_fixup(wave *w, const inst *i, const vec *const s[3]) {
  lanes r = {splat(0)};
  double x[3];
  vec h[3];
  for (int k = 0; k < 3; k++) h[k] = half_source(w, i, k, s[0]);
  EACH_ACTIVE_LANE(w->exec) {
    for (int k = 0; k < 3; k++) {
      const double value = half_to_float(h[k][l]), size = i->abs >> k & 1 ? fabs(value) : value;
      x[k] = i->neg >> k & 1 ? -size : size;
    }
    r.u[l] = float_to_half(finished_scalar(i, (float)fixed_up(x[0], x[1], x[2], &DOUBLE)));
  }
  write_half(w, i, r.v);
}

int run_division(wave *w, const inst *i, const vec *const s[3]) {
  switch (i->op) {
  case OP_v_div_scale_f32: run_scale(w, i, s, 0); return 1;
  case OP_v_div_scale_f64: run_scale(w, i, s, 1); return 1;
  case OP_v_div_fmas_f32: run_fmas(w, i, s, 0); return 1;
  case OP_v_div_fmas_f64: run_fmas(w, i, s, 1); return 1;
  case OP_v_div_fixup_f32: run_fixup(w, i, s, 0); return 1;
  case OP_v_div_fixup_f64: run_fixup(w, i, s, 1); return 1;
  case OP_v_div_fixup_f16: run_half_fixup(w, i, s); return 1;
  default: return 0;
  }
}
