// v_cmp_* and v_cmpx_*: a mask of lanes to VCC, an SGPR or EXEC.
#include "lanes.h"

typedef enum { NO_TYPE, F32, I32, U32, F16, I16, U16, F64, I64, U64, CLASS32, CLASS16, CLASS64 } compare_type;
// Relations as the set of outcomes that are true: less 1, equal 2, greater 4, unordered 8.
enum { LT = 1, EQ, LE, GT, NE, GE, ORDERED, UNORDERED, NGE, NLG, NGT, NLE, NEQ, NLT, LG = NE };
typedef struct { uint8_t type, relation, to_exec; } comparison;

#define BOTH(name, suffix, type, relation) \
  case OP_v_cmp_##name##_##suffix: return (comparison){type, relation, 0}; \
  case OP_v_cmpx_##name##_##suffix: return (comparison){type, relation, 1};
#define ORDER(suffix, type) \
  BOTH(lt, suffix, type, LT) BOTH(eq, suffix, type, EQ) BOTH(le, suffix, type, LE) BOTH(gt, suffix, type, GT) BOTH(ge, suffix, type, GE)
#define INTEGER(suffix, type) ORDER(suffix, type) BOTH(ne, suffix, type, NE)
#define FLOAT(suffix, type) \
  ORDER(suffix, type) BOTH(lg, suffix, type, LG) BOTH(o, suffix, type, ORDERED) BOTH(u, suffix, type, UNORDERED) \
  BOTH(nge, suffix, type, NGE) BOTH(nlg, suffix, type, NLG) BOTH(ngt, suffix, type, NGT) BOTH(nle, suffix, type, NLE) \
  BOTH(neq, suffix, type, NEQ) BOTH(nlt, suffix, type, NLT)

static comparison comparison_of(u32 op) {
  switch (op) {
    FLOAT(f32, F32) FLOAT(f16, F16) FLOAT(f64, F64)
    INTEGER(i32, I32) INTEGER(u32, U32) INTEGER(i16, I16) INTEGER(u16, U16) INTEGER(i64, I64) INTEGER(u64, U64)
    BOTH(class, f32, CLASS32, 0) BOTH(class, f16, CLASS16, 0) BOTH(class, f64, CLASS64, 0)
  default: return (comparison){NO_TYPE, 0, 0};
  }
}

#define RELATION(kind, a, b, relation) \
  ((relation & LT ? lane_mask((vec)((kind)(a) < (kind)(b))) : 0) | (relation & EQ ? lane_mask((vec)((kind)(a) == (kind)(b))) : 0) | \
   (relation & GT ? lane_mask((vec)((kind)(a) > (kind)(b))) : 0))
static u32 float_relation(vec a, vec b, u32 relation) {
  if (relation & UNORDERED) return ~RELATION(fvec, a, b, (15 - relation));
  return RELATION(fvec, a, b, relation);
}

static vec float_of_half(const wave *w, const inst *i, int k, const vec *first) {
  return modified_float(i, k, (vec)floats_of_halves(half_source(w, i, k, first)));
}
static vec signed_half(const wave *w, const inst *i, int k, const vec *first) {
  return (vec)((ivec)(half_source(w, i, k, first) << 16) >> 16);
}

static double modified_double(const inst *i, int k, u64 bits) {
  if (i->abs >> k & 1) bits &= ~0ull >> 1;
  if (i->neg >> k & 1) bits ^= 1ull << 63;
  return as_double(bits);
}
static u32 outcome(int less, int equal, int greater) { return less ? LT : equal ? EQ : greater ? GT : UNORDERED; }
static u32 wide_outcome(const wave *w, const inst *i, compare_type type, int l) {
  if (type == F64) {
    const double x = modified_double(i, 0, read_lane_f64(w, i->src[0], l)), y = modified_double(i, 1, read_lane_f64(w, i->src[1], l));
    return outcome(x < y, x == y, x > y);
  }
  if (type == U64) {
    const u64 x = read_lane_u64(w, i->src[0], l), y = read_lane_u64(w, i->src[1], l);
    return outcome(x < y, x == y, x > y);
  }
  const int64_t x = (int64_t)(i->src[0] == LITERAL ? read_i64(w, LITERAL) : read_lane_u64(w, i->src[0], l));
  const int64_t y = (int64_t)(i->src[1] == LITERAL ? read_i64(w, LITERAL) : read_lane_u64(w, i->src[1], l));
  return outcome(x < y, x == y, x > y);
}
static u32 wide_relation(const wave *w, const inst *i, comparison c) {
  u32 mask = 0;
  EACH_ACTIVE_LANE(w->exec) mask |= (u32)((wide_outcome(w, i, c.type, (int)l) & c.relation) != 0) << l;
  return mask;
}

static u32 class_relation(const wave *w, const inst *i, compare_type type, const vec *const s[3]) {
  lanes x = {type == CLASS32 ? modified_float(i, 0, *s[0]) : type == CLASS16 ? half_source(w, i, 0, s[0]) : splat(0)};
  const lanes wanted = {*s[1]};
  u32 mask = 0;
  EACH_ACTIVE_LANE(w->exec) {
    int bit = class_f32(x.u[l]);
    if (type == CLASS16) bit = class_f16(i->neg & 1 ? x.u[l] ^ 0x8000 : x.u[l]);
    if (type == CLASS64) bit = class_f64(as_u64(modified_double(i, 0, read_lane_f64(w, i->src[0], (int)l))));
    mask |= (wanted.u[l] >> bit & 1) << l;
  }
  return mask;
}

static u32 compared(const wave *w, const inst *i, comparison c, const vec *const s[3]) {
  const vec *a = s[0], *b = s[1];
  switch (c.type) {
  case F32: return float_relation(modified_float(i, 0, *a), modified_float(i, 1, *b), c.relation);
  case I32: return RELATION(ivec, *a, *b, c.relation);
  case U32: return RELATION(vec, *a, *b, c.relation);
  case F16: return float_relation(float_of_half(w, i, 0, a), float_of_half(w, i, 1, a), c.relation);
  case I16: return RELATION(ivec, signed_half(w, i, 0, a), signed_half(w, i, 1, a), c.relation);
  case U16: return RELATION(vec, half_source(w, i, 0, a), half_source(w, i, 1, a), c.relation);
  case F64: case I64: case U64: return wide_relation(w, i, c);
  default: return class_relation(w, i, c.type, s);
  }
}

int run_compare(wave *w, const inst *i, const vec *const s[3]) {
  const comparison c = comparison_of(i->op);
  if (c.type == NO_TYPE) return 0;
  const u32 mask = compared(w, i, c, s) & w->exec;
  if (c.to_exec) set_exec(w, mask);
  else write_scalar(w, i->sdst, mask);
  return 1;
}
