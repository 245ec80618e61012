// Memory between the workgroups of a launch: one may not use what another has stored until it acquires that.
//
// A workgroup acquires by global_inv of scope DEV or beyond. Atomics and accesses of such a scope are how workgroups meet, and pass.
#include "memory.h"
#include <stdlib.h>

enum { FIRST_ROOM = 1 << 12 };

typedef struct { u64 address, owner, when; u32 launch; } last_store; // of a byte

static last_store *table; // open addressing, by address
static u64 room, used, now;
static u32 launches;      // what older ones left counts as empty

void forget_stores(void) {
  launches++;
  used = 0;
}

void acquired(group *g) { g->acquired = ++now; }

static last_store *entry_of(u64 address) {
  u64 at = address * 0x9e3779b97f4a7c15 >> 20;
  for (;; at++) {
    last_store *const e = &table[at & (room - 1)];
    if (e->launch != launches || e->address == address) return e;
  }
}

static void grow(void) {
  last_store *const old = table;
  const u64 count = room;
  room = room ? 2 * room : FIRST_ROOM;
  table = calloc(room, sizeof *table);
  if (!table) abort();
  for (u64 n = 0; n < count; n++)
    if (old[n].launch == launches) *entry_of(old[n].address) = old[n];
  free(old);
}

static u64 owner_of(const group *g) { return (u64)g->id[2] << 48 | (u64)g->id[1] << 32 | g->id[0]; }

int check_between(wave *w, const inst *i, access_kind kind, u64 address, u32 bytes) {
  const u64 me = owner_of(w->group);
  if (kind == ATOMIC || i->scope >= SCOPE_DEV) return 1;
  if (2 * (used + bytes) >= room) grow();
  now++;
  for (u64 at = address; at < address + bytes; at++) {
    last_store *const e = entry_of(at);
    const int is_known = e->launch == launches;
    if (is_known && e->owner != me && e->when > w->group->acquired) {
      fail(w, i, "%s what workgroup (%u,%u,%u) stored, at 0x%llx, without acquiring it", kind == LOAD ? "reads" : "writes over",
           (u32)e->owner, (u32)(e->owner >> 32 & 0xffff), (u32)(e->owner >> 48), (unsigned long long)at);
      return 0;
    }
    if (kind == LOAD) continue;
    used += !is_known;
    *e = (last_store){at, me, now, launches};
  }
  return 1;
}
