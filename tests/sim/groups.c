// Workgroups and waves as they are when a kernel begins.
#include "run.h"
#include <stdlib.h>

enum { POISONED_FLOAT = 0xffc0dead, POISONED_BYTE = 0xcd, SGPRS = 106, LDS_SLACK = 16 };
// Bits of the kernel's properties: what stands in its first SGPRs, in this order, and how many each takes.
enum { PRIVATE_BUFFER, DISPATCH_POINTER, QUEUE_POINTER, ARGUMENTS, DISPATCH_NUMBER, FLAT_SCRATCH, PRIVATE_SIZE, USER_SGPR_KINDS };
static const uint8_t USER_SGPRS[USER_SGPR_KINDS] = {4, 2, 2, 2, 2, 2, 1};

static u32 threads_of(const launch *l) { return l->block[0] * l->block[1] * l->block[2]; }

int make_room(resident *r, const launch *l) {
  const u32 count = (threads_of(l) + LANES - 1) / LANES;
  r->g.waves = aligned_alloc(sizeof(vec), count * sizeof(wave));
  r->reluctance = calloc(count, sizeof *r->reluctance);
  r->g.lds = malloc(l->lds_bytes + LDS_SLACK);
  r->g.lds_bytes = l->lds_bytes;
  if (!r->g.waves || !r->reluctance || !r->g.lds) return 0;
  memset(r->g.waves, 0, count * sizeof(wave));
  r->g.count = (uint16_t)count;
  for (u32 n = 0; n < count; n++) {
    wave *const w = &r->g.waves[n];
    r->wave_room = n + 1;
    w->v = aligned_alloc(sizeof(vec), VGPR_ROOM * sizeof(vec));
    w->scratch = malloc((u64)LANES * l->scratch_bytes + 1);
    if (!w->v || !w->scratch) return 0;
    memset(w->v, 0, VGPR_ROOM * sizeof(vec));
  }
  return 1;
}

void give_room_back(resident *r) {
  for (u32 n = 0; n < r->wave_room; n++) {
    free(r->g.waves[n].v), free(r->g.waves[n].scratch);
    free(r->g.waves[n].waits), free(r->g.waves[n].stores);
  }
  free(r->g.waves), free(r->reluctance), free(r->g.lds), free(r->g.lds_shadow), free(r->g.caches);
}

static void set_user_sgprs(wave *w, const launch *l) {
  const u64 arguments = (u64)l->arguments;
  u32 n = 0;
  for (u32 kind = 0; kind < USER_SGPR_KINDS; kind++) {
    if (!(l->properties >> kind & 1)) continue;
    if (kind == ARGUMENTS) w->s[n] = (u32)arguments, w->s[n + 1] = (u32)(arguments >> 32);
    else if (kind == PRIVATE_SIZE) w->s[n] = l->scratch_bytes;
    else if (kind == DISPATCH_POINTER || kind == QUEUE_POINTER) fail(w, 0, "the kernel reads its dispatch packet or queue, which is not modelled");
    n += USER_SGPRS[kind];
  }
}

static void set_registers(wave *w, const launch *l) {
  const u32 poisoned = sim.options & POISON, fill = poisoned ? POISONED_FLOAT : 0;
  init_scalars(w);
  for (u32 n = 0; n < SGPRS && poisoned; n++) w->s[n] = fill;
  set_user_sgprs(w, l);
  w->s[TTMP9] = w->group->id[0];
  w->s[TTMP7] = w->group->id[1] | w->group->id[2] << 16;
  for (u32 n = 0; n < l->vgprs; n++) w->v[n] = splat(fill);
  u32 *const ids = (u32 *)&w->v[0];
  for (u32 lane = 0; lane < LANES; lane++) {
    const u32 thread = w->id * LANES + lane, row = thread / l->block[0];
    ids[lane] = thread % l->block[0] | row % l->block[1] << 10 | row / l->block[1] << 20;
  }
  const u32 left = threads_of(l) - w->id * LANES;
  set_exec(w, left >= LANES ? ~0u : (1u << left) - 1);
}

static void start_wave(wave *w, group *g, u32 id, const launch *l) {
  w->code = l->code;
  w->group = g;
  w->id = (uint16_t)id;
  w->vgprs = (uint16_t)l->vgprs;
  w->pc = l->code->base + l->entry;
  w->scratch_bytes = l->scratch_bytes;
  w->state = RUNNING;
  w->wake = 0;
  w->flight = (in_flight){0};
  free(w->stores);
  w->stores = 0;
  forget_waits(w);
  memset(w->scratch, sim.options & POISON ? POISONED_BYTE : 0, (u64)LANES * l->scratch_bytes);
  set_registers(w, l);
}

void start_group(resident *r, const launch *l, u64 number) {
  group *const g = &r->g;
  g->id[0] = (u32)(number % l->grid[0]);
  g->id[1] = (u32)(number / l->grid[0] % l->grid[1]);
  g->id[2] = (u32)(number / l->grid[0] / l->grid[1]);
  g->arrived = g->ended = 0;
  g->epoch = 0;
  g->acquired = 0;
  free(g->lds_shadow), free(g->caches);
  g->lds_shadow = g->caches = 0;
  memset(g->lds, sim.options & POISON ? POISONED_BYTE : 0, g->lds_bytes);
  for (u32 n = 0; n < g->count; n++) start_wave(&g->waves[n], g, n, l);
  r->live = 1;
}

void end_group(resident *r) {
  for (u32 n = 0; n < r->g.count; n++)
    if (sim.options & WEAK_MEMORY) drain_stores(&r->g.waves[n], 0);
  r->live = 0;
}
