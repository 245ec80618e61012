// Memory as weak as the hardware allows: stores that other waves do not see yet, and caches that hold old data.
//
// A wave's stores wait in its buffer until s_wait_storecnt asks for them, or some random moment. The two L0 of a workgroup (its waves
// run on two compute units) and an L1 keep lines until global_inv; scope DEV and beyond reads memory itself.
#include "memory.h"
#include <stdlib.h>

enum { STORES = 1024, LINE = 128, LINES = 1024, L0S = 2, DRAIN_CHANCE = 64 };

typedef struct { u64 address; u32 batch; uint8_t bytes, chosen, data[16]; } store; // batch: which of the wave's store instructions
typedef struct { store stores[STORES]; u32 count, batch; u64 low, high; } buffer; // low, high: bounds of their addresses
typedef struct { u64 tag[LINES]; uint8_t line[LINES][LINE]; } cache;     // tag: number of the line, plus 1
typedef struct { cache l0[L0S], l1; } caches;

u64 random_number(void) { // splitmix64
  u64 x = sim.seed += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

static void *state(void **at, size_t size) {
  if (!*at) *at = calloc(1, size);
  if (!*at) abort();
  return *at;
}
static buffer *buffer_of(wave *w) { return state(&w->stores, sizeof(buffer)); }
static caches *caches_of(group *g) { return state(&g->caches, sizeof(caches)); }
static cache *l0_of(wave *w) { return &caches_of(w->group)->l0[w->id % L0S]; }

static uint8_t *cached(cache *c, u64 address) { // 0 if it is not
  const u64 number = address / LINE;
  return c->tag[number % LINES] == number + 1 ? c->line[number % LINES] + address % LINE : 0;
}

static void update(cache *c, u64 address, uint8_t byte) {
  uint8_t *const p = cached(c, address);
  if (p) *p = byte;
}

static void evict(cache *c, u64 address) {
  const u64 number = address / LINE;
  if (c->tag[number % LINES] == number + 1) c->tag[number % LINES] = 0;
}

static void write_through(wave *w, const store *s) {
  memcpy((void *)s->address, s->data, s->bytes);
  if (!w->group->caches) return;
  for (u32 k = 0; k < s->bytes; k++) {
    update(l0_of(w), s->address + k, s->data[k]);
    update(&caches_of(w->group)->l1, s->address + k, s->data[k]);
  }
}

INLINE int overlap(const store *s, u64 address, u32 bytes) { return s->address < address + bytes && address < s->address + s->bytes; }

// Writes those of the first `until` stores that overlap a place, and the earlier ones that overlap these, in order.
static void write_overlapping(wave *w, u64 address, u32 bytes, u32 until) {
  buffer *b = w->stores;
  u64 low = address, high = address + bytes;
  u32 kept = 0, chosen = 0;
  if (!b || !b->count || high <= b->low || low >= b->high) return;
  for (u32 k = until < b->count ? until : b->count; k-- > 0;) {
    store *const s = &b->stores[k];
    if (!overlap(s, low, (u32)(high - low))) continue;
    s->chosen = 1, chosen++;
    if (s->address < low) low = s->address;
    if (s->address + s->bytes > high) high = s->address + s->bytes;
  }
  for (u32 k = 0; k < b->count && chosen; k++) {
    if (b->stores[k].chosen) write_through(w, &b->stores[k]);
    else b->stores[kept] = b->stores[k], kept++;
  }
  if (chosen) b->count = kept;
}

void drain_stores(wave *w, u32 left) {
  buffer *b = w->stores;
  u32 kept = 0;
  if (!b) return;
  for (u32 k = 0; k < b->count; k++) {
    if (b->stores[k].batch + left < b->batch || !left) write_through(w, &b->stores[k]);
    else b->stores[kept++] = b->stores[k];
  }
  b->count = kept;
}

static void drain_random(wave *w) { // one store, after the earlier ones to the same place
  buffer *b = w->stores;
  if (!b || !b->count || random_number() % DRAIN_CHANCE) return;
  const u32 k = (u32)(random_number() % b->count);
  const store chosen = b->stores[k];
  write_overlapping(w, chosen.address, chosen.bytes, k + 1);
}

void end_store(wave *w) { buffer_of(w)->batch++; }

void weak_store(wave *w, u64 address, const void *data, u32 bytes) {
  buffer *b = buffer_of(w);
  if (b->count == STORES) {
    for (u32 k = 0; k < STORES; k++) write_through(w, &b->stores[k]);
    b->count = 0;
  }
  if (!b->count) b->low = address, b->high = address + bytes;
  if (address < b->low) b->low = address;
  if (address + bytes > b->high) b->high = address + bytes;
  store *const s = &b->stores[b->count++];
  *s = (store){.address = address, .batch = b->batch, .bytes = (uint8_t)bytes};
  memcpy(s->data, data, bytes);
  drain_random(w);
}

static void fill(cache *c, u64 number, const uint8_t *line) {
  c->tag[number % LINES] = number + 1;
  memcpy(c->line[number % LINES], line, LINE);
}

static int shares_line(u64 low, u64 begin, u64 end) { // with another allocation than begin..end
  for (u64 at = low; at < low + LINE; at++)
    if ((at < begin || at >= end) && allocated(at, 1)) return 1;
  return 0;
}

// An address in its line of L1; 0 if the line is not one allocation's alone.
static uint8_t *place_in_l1(caches *all, u64 address) {
  uint8_t *const have = cached(&all->l1, address), line[LINE] = {0};
  const u64 low = address / LINE * LINE, high = low + LINE;
  u64 begin, end;
  if (have) return have;
  if (!allocation_around(address, &begin, &end) || shares_line(low, begin, end)) return 0;
  if (begin < low) begin = low;
  if (end > high) end = high;
  memcpy(line + (begin - low), (const void *)begin, end - begin);
  fill(&all->l1, address / LINE, line);
  return cached(&all->l1, address);
}

static const uint8_t *place_seen(wave *w, u64 address, u32 scope) {
  cache *const l0 = l0_of(w);
  const uint8_t *const near = scope < SCOPE_SE ? cached(l0, address) : 0;
  if (near) return near;
  const uint8_t *const far = place_in_l1(caches_of(w->group), address);
  if (!far) return (const uint8_t *)address;
  fill(l0, address / LINE, far - address % LINE);
  return far;
}

void weak_load(wave *w, u64 address, void *data, u32 bytes, u32 scope) {
  drain_random(w);
  write_overlapping(w, address, bytes, STORES);
  if (scope >= SCOPE_DEV) {
    memcpy(data, (const void *)address, bytes);
    return;
  }
  const u32 left = LINE - (u32)(address % LINE), first = bytes < left ? bytes : left;
  memcpy(data, place_seen(w, address, scope), first);
  if (first < bytes) memcpy((uint8_t *)data + first, place_seen(w, address + first, scope), bytes - first);
  sim.count.stale_reads += memcmp(data, (const void *)address, bytes) != 0;
}

void weak_atomic(wave *w, u64 address, u32 bytes) {
  drain_random(w);
  write_overlapping(w, address, bytes, STORES);
  if (!w->group->caches) return;
  evict(l0_of(w), address);
  evict(&caches_of(w->group)->l1, address);
}

void invalidate(wave *w, u32 scope) { // the other compute unit's L0 is for its own waves to invalidate
  caches *const all = w->group->caches;
  if (!all || scope < SCOPE_SE) return;
  memset(l0_of(w)->tag, 0, sizeof l0_of(w)->tag);
  if (scope >= SCOPE_DEV) memset(all->l1.tag, 0, sizeof all->l1.tag);
}
