// Loads and stores in flight: registers must not be used before the s_wait of the load that writes them.
//
// Loads of memory return in order, those of LDS too; scalar loads do not, so only a wait for all of them helps.
#include "memory.h"
#include "tables.h"
#include <stdlib.h>

enum { SGPRS = 128 };
enum { QUEUE = 64 }; // what a counter can count: the next instruction has to wait for the oldest

typedef struct { uint16_t vgpr; uint8_t count, store; } entry;
typedef struct { entry entries[QUEUE]; u32 first, length, stores; } queue;
typedef struct {
  queue of[2];            // LOAD_COUNTER, DS_COUNTER
  uint8_t vgpr[2][256];   // how many loads in flight write it
  u64 sgprs[2];           // a bit for each that a load in flight writes
  u32 vgprs;              // the sum of `vgpr`
} pending;

static pending *pending_of(wave *w) {
  if (!w->waits) w->waits = calloc(1, sizeof(pending));
  if (!w->waits) abort();
  return w->waits;
}

void forget_waits(wave *w) {
  pending *p = w->waits;
  if (!p) return;
  if (p->vgprs) memset(p->vgpr, 0, sizeof p->vgpr);
  for (int n = 0; n < 2; n++) p->of[n].first = p->of[n].length = p->of[n].stores = 0;
  p->sgprs[0] = p->sgprs[1] = p->vgprs = 0;
}

static void end_oldest(pending *p, int counter) {
  queue *q = &p->of[counter];
  const entry e = q->entries[q->first];
  for (u32 k = 0; k < e.count; k++) p->vgpr[counter][e.vgpr + k]--;
  q->stores -= e.store;
  q->first = (q->first + 1) % QUEUE;
  q->length--;
  p->vgprs -= e.count;
}

void load_issued(wave *w, int counter, const inst *i, u32 vgpr, u32 count) {
  u32 *const flight = counter == LOAD_COUNTER ? &w->flight.loads : &w->flight.ds;
  if (*flight < QUEUE) ++*flight;
  if (!(sim.options & CHECK_WAITS)) return;
  pending *p = pending_of(w);
  queue *q = &p->of[counter];
  if (q->length == QUEUE) end_oldest(p, counter);
  const int store = i->format == DS && count == 0;
  q->entries[(q->first + q->length++) % QUEUE] = (entry){(uint16_t)vgpr, (uint8_t)count, (uint8_t)store};
  q->stores += (u32)store;
  p->vgprs += count;
  for (u32 k = 0; k < count; k++) p->vgpr[counter][vgpr + k]++;
}

void scalar_load_issued(wave *w, const inst *i, u32 sgpr, u32 count) {
  (void)i;
  w->flight.km++;
  if (!(sim.options & CHECK_WAITS)) return;
  pending *p = pending_of(w);
  for (u32 n = sgpr; n < sgpr + count && n < SGPRS; n++) p->sgprs[n / 64] |= 1ull << n % 64;
}

void store_issued(wave *w, const inst *i) {
  (void)i;
  w->flight.stores++;
  if (sim.options & WEAK_MEMORY) end_store(w);
}

void wait_until(wave *w, int counter, u32 left) {
  u32 *const flight[] = {&w->flight.loads, &w->flight.ds, &w->flight.km, &w->flight.stores};
  if (*flight[counter] > left) *flight[counter] = left;
  if (counter == STORE_COUNTER && sim.options & WEAK_MEMORY) drain_stores(w, left);
  pending *p = w->waits;
  if (!p || counter == STORE_COUNTER) return;
  if (counter == KM_COUNTER) {
    if (!left) p->sgprs[0] = p->sgprs[1] = 0;
    return;
  }
  while (p->of[counter].length > left) end_oldest(p, counter);
}

INLINE int in_flight_vgpr(const pending *p, u32 vgpr) { return p->vgpr[0][vgpr] | p->vgpr[1][vgpr]; }

static int check_vgprs(wave *w, const inst *i, const pending *p, u32 vgpr, u32 count, const char *verb) {
  for (u32 n = vgpr; n < vgpr + count; n++) {
    if (!in_flight_vgpr(p, n)) continue;
    fail(w, i, "%s v%u before the s_wait for its load", verb, n);
    return 0;
  }
  return 1;
}

static int check_sgprs(wave *w, const inst *i, const pending *p, u32 sgpr, u32 count, const char *verb) {
  for (u32 n = sgpr; n < sgpr + count && n < SGPRS; n++) {
    if (!(p->sgprs[n / 64] >> n % 64 & 1)) continue;
    fail(w, i, "%s s%u before s_wait_kmcnt 0", verb, n);
    return 0;
  }
  return 1;
}

// Loads of one kind end in order: only those of the other kind are in the way of a later load.
static int check_load_target(wave *w, const inst *i, const pending *p) {
  if (i->format == VFLAT) return check_vgprs(w, i, p, i->dst, i->writes, "overwrites");
  const int other = i->format == DS ? LOAD_COUNTER : DS_COUNTER;
  for (u32 n = i->dst; n < i->dst + i->writes; n++) {
    if (!p->vgpr[other][n]) continue;
    fail(w, i, "overwrites v%u before the s_wait for its load", n);
    return 0;
  }
  return 1;
}

static int check_targets(wave *w, const inst *i, const pending *p) {
  if (i->format == DS || i->format >= VGLOBAL) return check_load_target(w, i, p);
  if (!check_vgprs(w, i, p, i->dst, i->writes, "overwrites")) return 0;
  if (i->format == VOPD && !check_vgprs(w, i, p, i->second.dst, 1, "overwrites")) return 0;
  return check_sgprs(w, i, p, i->sdst, i->scalar_writes, "overwrites");
}

void check_reads(wave *w, const inst *i) {
  const pending *p = w->waits;
  if (!(sim.options & CHECK_WAITS) || !p) return;
  if ((i->op == OP_s_barrier_signal || i->op == OP_s_barrier_signal_isfirst) && p->of[DS_COUNTER].stores) {
    fail(w, i, "signals a barrier before the s_wait for the wave's LDS stores");
    return;
  }
  if (!(p->vgprs | p->sgprs[0] | p->sgprs[1])) return;
  for (int k = 0; k < 6 && i->reads[k].count; k++)
    if (!check_vgprs(w, i, p, i->reads[k].reg, i->reads[k].count, "reads")) return;
  for (int k = 0; k < 6 && i->scalar_reads[k].count; k++)
    if (!check_sgprs(w, i, p, i->scalar_reads[k].reg, i->scalar_reads[k].count, "reads")) return;
  check_targets(w, i, p);
}
