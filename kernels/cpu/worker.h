// What a kernel is given besides its record, and how work is divided.
#pragma once
#include "../ops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// One thread of a pool: it computes its share of every record.
typedef struct {
  uint32_t thread, threads;
  int failed; // memory ran out
  void *scratch;
  size_t room;
} gr_worker;

typedef void gr_kernel(const void *record, gr_worker *worker);

typedef struct {
  const char *name;
  uint32_t layout; // checksum of the op's struct
  gr_kernel *run;
} gr_entry;

typedef struct {
  uint32_t begin, end;
} gr_range;

// The share of `n` equal pieces of work that is this thread's.
INLINE gr_range gr_share(uint32_t n, const gr_worker *w) {
  return (gr_range){(uint32_t)((uint64_t)n * w->thread / w->threads), (uint32_t)((uint64_t)n * (w->thread + 1) / w->threads)};
}

// 64-aligned memory of this thread, valid until it asks again; null where memory ran out.
static inline void *gr_scratch(gr_worker *w, size_t bytes) {
  if (bytes > w->room) {
    free(w->scratch);
    w->room = (bytes + 4095) & ~(size_t)4095;
    w->scratch = aligned_alloc(64, w->room);
    if (!w->scratch) w->room = 0, w->failed = 1;
  }
  return w->scratch;
}

#define AT(type, base, offset) ((type *)((char *)(base) + (size_t)(offset)))
INLINE float *gr_row(float *base, uint32_t stride, uint32_t row) { return AT(float, base, (size_t)stride * row); }
INLINE uint32_t gr_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
INLINE uint32_t gr_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
