// Accesses of LDS that are wrong: out of bounds, before the first store, or racing with another wave's since the last barrier.
#include "memory.h"
#include <stdlib.h>

// Who last wrote and read each dword: the epoch, whether by an atomic, and the wave + 1 (SEVERAL: of more than one wave).
enum { SEVERAL = 255, ATOMIC_BIT = 256, EPOCH_SHIFT = 9 };
typedef struct { u32 writer, reader; } mark;

void lds_epoch(group *g) { g->epoch++; }

static mark *marks_of(group *g) {
  if (!g->lds_shadow) g->lds_shadow = calloc((g->lds_bytes + 3) / 4, sizeof(mark));
  if (!g->lds_shadow) abort();
  return g->lds_shadow;
}

// Is it a mark of another wave, made since the last barrier?
INLINE int by_other(u32 mark, u32 me) { return mark && mark >> EPOCH_SHIFT == me >> EPOCH_SHIFT && (mark & 255) != (me & 255); }

static const char *conflict(const mark *m, u32 me, access_kind kind) {
  const int both_atomic = kind == ATOMIC && m->writer & ATOMIC_BIT;
  if (kind != STORE && !m->writer) return "reads LDS that nothing has written";
  if (by_other(m->writer, me) && !both_atomic)
    return kind == LOAD ? "reads what another wave wrote since the last barrier" : "writes what another wave wrote since the last barrier";
  if (kind != LOAD && by_other(m->reader, me)) return "writes over what another wave read since the last barrier";
  return 0;
}

static u32 merge(u32 old, u32 me) { return by_other(old, me) ? me | SEVERAL : me; }

static u32 atomic_mark(u32 old, u32 me) { // a plain store before it stays one
  const int plain = old && old >> EPOCH_SHIFT == me >> EPOCH_SHIFT && !(old & ATOMIC_BIT);
  return merge(old, me) | (plain ? 0 : ATOMIC_BIT);
}

static int check_race(wave *w, const inst *i, u32 address, u32 bytes, access_kind kind) {
  mark *const marks = marks_of(w->group);
  const u32 me = w->group->epoch << EPOCH_SHIFT | (w->id + 1u);
  for (u32 n = address / 4; n <= (address + bytes - 1) / 4; n++) {
    mark *const m = &marks[n];
    const char *const text = conflict(m, me, kind);
    if (text) {
      const u32 other = by_other(m->writer, me) ? m->writer : m->reader;
      if (by_other(other, me) && (other & 255) != SEVERAL) fail(w, i, "%s, at LDS+0x%x (wave %u)", text, 4 * n, (other & 255) - 1);
      else fail(w, i, "%s, at LDS+0x%x", text, 4 * n);
      return 0;
    }
    if (kind == LOAD) m->reader = merge(m->reader, me);
    else if (kind == STORE) m->writer = me;
    else m->writer = atomic_mark(m->writer, me);
  }
  return 1;
}

uint8_t *lds_place(wave *w, const inst *i, u64 address, u32 bytes, access_kind kind) {
  const group *g = w->group;
  if (address > g->lds_bytes || bytes > g->lds_bytes - address) {
    fail(w, i, "access of %u bytes at LDS+0x%llx, which has 0x%x bytes", bytes, (unsigned long long)address, g->lds_bytes);
    return 0;
  }
  if (sim.options & CHECK_LDS && !check_race(w, i, (u32)address, bytes, kind)) return 0;
  return g->lds + address;
}
