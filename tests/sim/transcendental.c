// Reciprocals, roots, exponentials, logarithms, sines: correctly rounded, or off by up to one last place with PERTURB.
//
// Hardware promises one unit in the last place and no subnormals here; its bits are unpublished. A perturbed result is a
// function of seed, operation and input, as on a real chip, and 0, 1, -1 and infinities stay. Code that refines such
// results (IEEE division, square root) must not change its own.
#include "lanes.h"

typedef enum { NO_FUNCTION, EXP, LOG, RCP, RSQ, SQRT, SIN, COS } function;
enum { SCALAR_F32 = 1, SCALAR_F16, VECTOR_F32, VECTOR_F16, VECTOR_F64 };
typedef struct { uint8_t function, width; } operation;

static operation operation_of(u32 op) {
#define ALL(name, f) \
  case OP_v_s_##name##_f32: return (operation){f, SCALAR_F32}; \
  case OP_v_s_##name##_f16: return (operation){f, SCALAR_F16}; \
  VECTOR(name, f)
#define VECTOR(name, f) \
  case OP_v_##name##_f32: return (operation){f, VECTOR_F32}; \
  case OP_v_##name##_f16: return (operation){f, VECTOR_F16};
  switch (op) {
    ALL(exp, EXP) ALL(log, LOG) ALL(rcp, RCP) ALL(rsq, RSQ) ALL(sqrt, SQRT) VECTOR(sin, SIN) VECTOR(cos, COS)
  case OP_v_rcp_iflag_f32: return (operation){RCP, VECTOR_F32};
  case OP_v_rcp_f64: return (operation){RCP, VECTOR_F64};
  case OP_v_rsq_f64: return (operation){RSQ, VECTOR_F64};
  case OP_v_sqrt_f64: return (operation){SQRT, VECTOR_F64};
  default: return (operation){NO_FUNCTION, 0};
  }
}

static double sine_of_turns(double turns) { // exact reduction to a quarter, so that zeros and ones are exact
  double r = turns - rint(turns);
  if (fabs(r) > 0.25) r = copysign(0.5, r) - r;
  return sin(r * 6.283185307179586476925);
}
static double cosine_of_turns(double turns) { return sine_of_turns(0.25 - fabs(turns - rint(turns))); }
static double value_of(function f, double x) {
  switch (f) {
  case EXP: return exp2(x);
  case LOG: return log2(x);
  case RCP: return 1 / x;
  case RSQ: return 1 / sqrt(x);
  case SQRT: return sqrt(x);
  case SIN: return sine_of_turns(x);
  default: return cosine_of_turns(x);
  }
}

static u64 noise(function f, u64 input) {
  u64 h = (sim.seed + f) * 0x9e3779b97f4a7c15 ^ input * 0xbf58476d1ce4e5b9;
  h = (h ^ h >> 31) * 0x94d049bb133111eb;
  return h ^ h >> 29;
}
static int stays(double r) { return r == 0 || fabs(r) == 1 || !isfinite(r); }
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static float float_value(function f, float x) {
  if (!(sim.options & PERTURB)) return (float)value_of(f, x);
  const float r = flushed((float)value_of(f, flushed(x)));
  const int all_ones = f == RCP && (as_u32(x) & 0x7fffff) == 0x7fffff; // no division by these is exact unless this is
  if (stays(r) || all_ones) return r;
  return flushed(as_float(as_u32(r) + (u32)(noise(f, as_u32(x)) % 3) - 1));
}
static u32 half_value(function f, u32 h) {
  const double r = value_of(f, half_to_float(h));
  const u32 bits = double_to_half(r);
  if (!(sim.options & PERTURB) || stays(half_to_float(bits))) return bits;
  const u32 near = bits + (u32)(noise(f, h) % 3) - 1;
  return isfinite(half_to_float(near)) ? near : bits;
}
static double double_value(function f, double x) { // hardware keeps about 29 bits, which two Newton steps complete
  const double r = value_of(f, x);
  if (!(sim.options & PERTURB) || stays(r)) return r;
  return as_double(as_u64(r) + noise(f, as_u64(x)) % (1 << 24) - (1 << 23));
}

static void run_scalar_function(wave *w, const inst *i, operation o) {
  u32 x = w->s[i->src[0]];
  if (o.width == SCALAR_F32) {
    x = modified_float(i, 0, splat(x))[0];
    write_scalar(w, i->sdst, as_u32(finished_scalar(i, float_value(o.function, as_float(x)))));
    return;
  }
  if (is_float_constant(i->src[0])) x = half_constant(i->src[0]);
  x = (i->opsel & 1 ? x >> 16 : x) & 0xffff;
  if (i->abs & 1) x &= 0x7fff;
  if (i->neg & 1) x ^= 0x8000;
  const u32 r = float_to_half(finished_scalar(i, half_to_float(half_value(o.function, x))));
  write_scalar(w, i->sdst, r); // the high half becomes 0
}

static void run_float_function(wave *w, const inst *i, function f, const vec *source) {
  lanes x = {modified_float(i, 0, *source)}, r = {splat(0)};
  if (!(sim.options & PERTURB) && f == RCP) r.f = 1.0f / x.f;
  else if (!(sim.options & PERTURB) && f == SQRT) r.f = __builtin_elementwise_sqrt(x.f);
  else EACH_ACTIVE_LANE(w->exec) r.x[l] = float_value(f, x.x[l]);
  r.v = finished_float(i, r.v);
  write_result(w, i->dst, &r.v);
}
static void run_half_function(wave *w, const inst *i, function f, const vec *source) {
  lanes x = {half_source(w, i, 0, source)}, r = {splat(0)};
  if (i->abs & 1) x.v &= 0x7fff;
  if (i->neg & 1) x.v ^= 0x8000;
  EACH_ACTIVE_LANE(w->exec) {
    r.u[l] = half_value(f, x.u[l]);
    if (i->omod || i->clamp) r.u[l] = float_to_half(finished_scalar(i, half_to_float(r.u[l])));
  }
  write_half(w, i, r.v);
}
static void run_double_function(wave *w, const inst *i, function f) {
  EACH_ACTIVE_LANE(w->exec) {
    u64 x = read_lane_f64(w, i->src[0], (int)l);
    if (i->abs & 1) x &= ~0ull >> 1;
    if (i->neg & 1) x ^= 1ull << 63;
    write_lane_u64(w, i->dst, (int)l, as_u64(finished_double(i, double_value(f, as_double(x)))));
  }
}

int run_transcendental(wave *w, const inst *i, const vec *const s[3]) {
  const operation o = operation_of(i->op);
  if (!o.function) return 0;
  sim.count.trans++;
  if (o.width <= SCALAR_F16) run_scalar_function(w, i, o);
  else if (o.width == VECTOR_F32) run_float_function(w, i, o.function, s[0]);
  else if (o.width == VECTOR_F16) run_half_function(w, i, o.function, s[0]);
  else run_double_function(w, i, o.function);
  return 1;
}
