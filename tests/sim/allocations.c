// The allocation table: device memory is host memory at the same address.
#include "memory.h"
#include <stdlib.h>

typedef struct { u64 begin, end; } range;

static range *ranges; // sorted, disjoint
static u32 used, room;
static range hot;     // the last hit

INLINE int covers(range r, u64 address, u64 bytes) {
  return address >= r.begin && address <= r.end && bytes <= r.end - address && r.end;
}

static u32 ranges_until(u64 address) { // how many begin at or before it
  u32 low = 0, high = used;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (ranges[middle].begin <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

int allocated(u64 address, u64 bytes) {
  if (covers(hot, address, bytes)) return 1;
  const u32 n = ranges_until(address);
  if (!n || !covers(ranges[n - 1], address, bytes)) return 0;
  hot = ranges[n - 1];
  return 1;
}

int allocation_around(u64 address, u64 *begin, u64 *end) {
  if (!allocated(address, 1)) return 0;
  *begin = hot.begin, *end = hot.end;
  return 1;
}

void allocation_add(u64 begin, u64 end) {
  const u32 at = ranges_until(begin);
  if (used == room) {
    room = room ? 2 * room : 64;
    ranges = realloc(ranges, room * sizeof *ranges);
    if (!ranges) abort();
  }
  memmove(ranges + at + 1, ranges + at, (used - at) * sizeof *ranges);
  ranges[at] = (range){begin, end};
  used++;
}

int allocation_remove(u64 begin) {
  const u32 n = ranges_until(begin);
  if (!n || ranges[n - 1].begin != begin) return 0;
  memmove(ranges + n - 1, ranges + n, (used - n) * sizeof *ranges);
  used--;
  hot = (range){0, 0};
  return 1;
}
