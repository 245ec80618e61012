// VOP1, VOP2, VOPC, VOP3, VOP3SD and VOPD: sources, DPP, then the family that knows the opcode.
#include "lanes.h"

// Where source n stands: the VGPR itself, or a scalar spread over `room`.
INLINE const vec *operand(const wave *w, u32 n, vec *room) {
  if (n >= 256) return &w->v[n - 256];
  *room = splat(w->s[n]);
  return room;
}

// The third source of instructions that do not encode it, and the place of the literal.
INLINE void fix_sources(const wave *w, u32 op, u32 dst, u32 literal, const vec *s[3], vec room[3]) {
  switch (op) {
  case OP_v_fmac_f32: s[2] = &w->v[dst]; break;
  case OP_v_fmaak_f32: room[2] = splat(literal), s[2] = &room[2]; break;
  case OP_v_fmamk_f32: s[2] = s[1], room[1] = splat(literal), s[1] = &room[1]; break;
  default: break;
  }
}

static int run_rare(wave *w, const inst *i, const vec *const s[3]) {
  return run_cross_lane(w, i, s) || run_compare(w, i, s) || run_carry(w, i, s) || run_transcendental(w, i, s) ||
         run_division(w, i, s) || run_conversion(w, i, s) || run_wide(w, i, s) || run_half(w, i, s);
}

static int run_modified(wave *w, const inst *i, const vec *const s[3]) { // by lane, with modifiers
  vec r, x[3];
  for (int k = 0; k < 3; k++) x[k] = modified_float(i, k, *s[k]);
  if (i->op == OP_v_cndmask_b32) x[2] = *s[2];
  if (float_result(i->op, &x[0], &x[1], &x[2], &r)) r = i->op == OP_v_cndmask_b32 ? r : finished_float(i, r);
  else if (!i->clamp && !integer_result(i->op, s[0], s[1], s[2], &r)) return 0;
  else if (i->clamp && !saturated_result(i->op, s[0], s[1], s[2], &r)) return 0;
  write_result(w, i->dst, &r);
  return 1;
}

static void run_operands(wave *w, const inst *i, const vec *const s[3]) {
  vec r;
  if (i->neg | i->abs | i->omod | i->clamp) {
    if (run_modified(w, i, s)) return;
  } else if (float_result(i->op, s[0], s[1], s[2], &r) || integer_result(i->op, s[0], s[1], s[2], &r)) {
    write_result(w, i->dst, &r);
    return;
  }
  if (!run_rare(w, i, s)) fail(w, i, "the simulator does not know this vector instruction");
}

static void run_with_dpp(wave *w, const inst *i, const vec *s[3]) {
  const u32 exec = w->exec;
  u32 written;
  if (OPS[i->op].src[0] > 2) {
    fail(w, i, "DPP of 64-bit sources does not exist");
    return;
  }
  const vec first = dpp_source(w, i, &written);
  s[0] = &first;
  set_exec(w, exec & written);
  const u32 narrowed = w->exec;
  run_operands(w, i, s);
  if (w->exec == narrowed && i->sdst != EXEC) set_exec(w, exec); // v_cmpx has set its own
}

static vec dual_result(wave *w, const inst *i, u32 op, u32 dst, const uint16_t src[2]) {
  vec room[3] = {{0}}, r = {0};
  const vec *s[3] = {operand(w, src[0], &room[0]), operand(w, src[1], &room[1]), &room[2]};
  fix_sources(w, op, dst, i->literal, s, room);
  if (op == OP_v_cndmask_b32) room[2] = lanes_of(w->s[VCC]);
  if (op == OP_v_dot2acc_f32_f16 || op == OP_v_dot2acc_f32_bf16) return dot2_lanes(op == OP_v_dot2acc_f32_bf16, *s[0], *s[1], w->v[dst]);
  if (!float_result(op, s[0], s[1], s[2], &r) && !integer_result(op, s[0], s[1], s[2], &r))
    fail(w, i, "the simulator does not know %s in a pair", op_name(op));
  return r;
}
static void run_pair(wave *w, const inst *i) { // both read before either writes
  sim.count.vopd++;
  const vec first = dual_result(w, i, i->op, i->dst, i->src);
  const vec second = dual_result(w, i, i->second.op, i->second.dst, i->second.src);
  write_result(w, i->dst, &first);
  write_result(w, i->second.dst, &second);
}

void run_vector(wave *w, const inst *i) {
  if (i->format == VOPD) {
    run_pair(w, i);
    return;
  }
  vec room[3];
  const vec *s[3] = {operand(w, i->src[0], &room[0]), operand(w, i->src[1], &room[1]), operand(w, i->src[2], &room[2])};
  fix_sources(w, i->op, i->dst, i->literal, s, room);
  if (i->op == OP_v_cndmask_b32) room[2] = lanes_of(w->s[i->src[2]]), s[2] = &room[2];
  if (i->dpp) run_with_dpp(w, i, s);
  else run_operands(w, i, s);
}
