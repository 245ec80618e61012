// Stand-ins for parts that are not written yet.
#include "sim.h"
#include <stdarg.h>
#include <stdio.h>
#define WEAK __attribute__((weak))
WEAK simulator sim;
WEAK void fail(wave *w, const inst *i, const char *format, ...) {
  if (w) w->state = FAILED;
  va_list a;
  va_start(a, format);
  int n = snprintf(sim.error, sizeof sim.error, "%s: ", op_name(i->op));
  vsnprintf(sim.error + n, sizeof sim.error - n, format, a);
  va_end(a);
}
WEAK void run_vector(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void run_matrix(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void run_memory(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void run_scalar_memory(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void run_shared(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void run_scalar(wave *w, const inst *i) { fail(w, i, "stub"); }
WEAK void wait_until(wave *w, int counter, u32 left) { (void)w, (void)counter, (void)left; }
WEAK void load_issued(wave *w, int counter, const inst *i, u32 vgpr, u32 count) { (void)w, (void)counter, (void)i, (void)vgpr, (void)count; }
WEAK void scalar_load_issued(wave *w, const inst *i, u32 sgpr, u32 count) { (void)w, (void)i, (void)sgpr, (void)count; }
WEAK void store_issued(wave *w, const inst *i) { (void)w, (void)i; }
WEAK void check_reads(wave *w, const inst *i) { (void)w, (void)i; }
WEAK void lds_epoch(group *g) { (void)g; }
WEAK int allocated(u64 address, u64 bytes) { (void)address, (void)bytes; return 1; }
WEAK u64 random_number(void) { static u64 x = 88172645463325252ull; x ^= x << 13, x ^= x >> 7, x ^= x << 17; return x; }
WEAK int barrier_signal(wave *w, const inst *i, int barrier) { (void)w, (void)i, (void)barrier; return 1; }
WEAK void barrier_wait(wave *w, const inst *i, int barrier) { (void)w, (void)i, (void)barrier; }
WEAK void sleep_wave(wave *w, u32 ticks) { (void)w, (void)ticks; }
