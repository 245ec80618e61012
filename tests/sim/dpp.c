// Data-parallel primitives: source 0 comes from another lane of the row.
#include "lanes.h"

enum {
  ROW_SHL = 0x100, ROW_SHR = 0x110, ROW_ROR = 0x120, ROW_MIRROR = 0x140, ROW_HALF_MIRROR = 0x141, ROW_SHARE = 0x150, ROW_XMASK = 0x160
};

// Lane that each lane reads; negative: outside its row.
static vec dpp16_lanes(u32 control) {
  const vec lane = LANE_NUMBERS, row = lane & ROW, place = lane & 15;
  const u32 n = control & 15;
  if (control < 0x100) return (lane & ~3u) | (splat(control) >> 2 * (lane & 3) & 3); // quad_perm
  switch (control & 0x1f0) {
  case ROW_SHL: return choose((vec)(place + n < ROW), lane + n, splat(~0u));
  case ROW_SHR: return choose((vec)(place >= n), lane - n, splat(~0u));
  case ROW_ROR: return row | (place - n & 15);
  case ROW_MIRROR: return control == ROW_MIRROR ? lane ^ 15 : lane ^ 7;
  case ROW_SHARE: return row | n;
  default: return lane ^ n; // ROW_XMASK
  }
}
static vec dpp8_lanes(u32 word) {
  const vec lane = LANE_NUMBERS;
  return (lane & ~7u) | (splat(word >> 8) >> 3 * (lane & 7) & 7);
}
static u32 masked_lanes(u32 rows, u32 banks) { // of the rows of 16 and banks of 4 that are enabled
  u32 mask = 0;
  for (int l = 0; l < LANES; l += 4) mask |= (rows >> (l >> 4) & banks >> (l >> 2 & 3) & 1) * 15u << l;
  return mask;
}

vec dpp_source(const wave *w, const inst *i, u32 *written) {
  const int eight = i->dpp >= 2; // DPP8 writes all lanes
  const u32 word = i->dpp_word;
  const int inactive_too = eight ? i->dpp == 3 : word >> 18 & 1, zero_outside = eight || word >> 19 & 1;
  const lanes lane = {eight ? dpp8_lanes(word) : dpp16_lanes(word >> 8 & 511)};
  const vec readable = splat(inactive_too ? ~0u : w->exec) >> (lane.v & 31) & ~(lane.v >> 31) & 1, valid = -readable;
  const lanes *from = (const lanes *)&w->v[i->src[0] - 256];
  lanes r;
  EACH_LANE r.u[l] = from->u[lane.u[l] & 31];
  *written = (zero_outside ? ~0u : lane_mask(valid)) & (eight ? ~0u : masked_lanes(word >> 28, word >> 24 & 15));
  return r.v & valid;
}
