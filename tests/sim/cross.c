// Instructions that move data between lanes, or between lanes and scalars.
#include "lanes.h"

static void read_one_lane(wave *w, const inst *i, const vec *const s[3]) {
  u32 lane = w->exec ? (u32)__builtin_ctz(w->exec) : 0;
  if (i->op == OP_v_readlane_b32) lane = (*s[1])[0] & 31;
  write_scalar(w, i->dst, (*s[0])[lane]);
}

// Lane l of a row takes the lane of its row, or of the other row, that 4 bits of the selector name.
static void permute_rows(wave *w, const inst *i, const vec *from, int other_row, u64 selector, const vec *selectors) {
  const lanes a = {*from};
  const lanes chosen = {selectors ? *selectors : splat(0)};
  lanes r = {w->v[i->dst]};
  const u32 readable = i->opsel & 1 ? ~0u : w->exec; // op_sel[0]: fetch inactive lanes, op_sel[1]: bound_ctrl
  EACH_LANE {
    const u32 place = selectors ? chosen.u[l] & 15 : (u32)(selector >> 4 * (l & 15) & 15);
    const u32 lane = (u32)((l & ROW) ^ (other_row ? ROW : 0)) | place;
    if (readable >> lane & 1) r.u[l] = a.u[lane];
    else if (i->opsel & 2) r.u[l] = 0;
  }
  write_result(w, i->dst, &r.v);
}

static void swap(wave *w, const inst *i) {
  const vec a = w->v[i->dst], b = w->v[i->src[0] - 256];
  write_result(w, i->dst, &b);
  write_result(w, i->src[0] - 256, &a);
}
static void swap_halves(wave *w, const inst *i) {
  const u32 from = i->src[0] - 256u, to = i->dst, up_from = i->opsel & 1 ? 16 : 0, up_to = i->opsel & 8 ? 16 : 0;
  const vec a = w->v[to] >> up_to & 0xffff, b = w->v[from] >> up_from & 0xffff;
  const vec first = (w->v[to] & ~(0xffffu << up_to)) | b << up_to;
  write_result(w, to, &first);
  const vec second = (w->v[from] & ~(0xffffu << up_from)) | a << up_from;
  write_result(w, from, &second);
}

int run_cross_lane(wave *w, const inst *i, const vec *const s[3]) {
  switch (i->op) {
  case OP_v_readfirstlane_b32:
  case OP_v_readlane_b32: read_one_lane(w, i, s); return 1;
  case OP_v_writelane_b32: w->v[i->dst][(*s[1])[0] & 31] = (*s[0])[0]; return 1; // whatever EXEC is
  case OP_v_permlane16_b32:
  case OP_v_permlanex16_b32:
    permute_rows(w, i, s[0], i->op == OP_v_permlanex16_b32, join_u64((*s[1])[0], (*s[2])[0]), NULL);
    return 1;
  case OP_v_permlane16_var_b32:
  case OP_v_permlanex16_var_b32: permute_rows(w, i, s[0], i->op == OP_v_permlanex16_var_b32, 0, s[1]); return 1;
  case OP_v_swap_b32: swap(w, i); return 1;
  case OP_v_swap_b16: swap_halves(w, i); return 1;
  case OP_v_permlane64_b32: // exists for waves of 64 only
  case OP_v_nop: return 1;
  default: return 0;
  }
}
