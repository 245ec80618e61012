// The state of the simulator, error text, and counters by name.
#include "sim.h"
#include <stdarg.h>
#include <stdio.h>

simulator sim;

static const char *const COUNTERS[] = { // the members of `counters`, in order
  "instructions", "salu", "valu", "vopd", "trans", "dot4", "wmma", "smem", "vmem_load", "vmem_store", "atomics", "lds", "branches",
  "barriers", "waits", "lines", "needed_lines", "load_bytes", "store_bytes", "bank_conflicts", "stale_reads"};
enum { COUNTER_NAMES = sizeof COUNTERS / sizeof *COUNTERS };
_Static_assert(COUNTER_NAMES == sizeof(counters) / sizeof(u64), "a name for each counter");

API simulator *simulator_state(void) { return &sim; }

API const char *counter_name(u32 n) { return n < COUNTER_NAMES ? COUNTERS[n] : 0; }

static int write_place(char *text, size_t size, const wave *w, const inst *i) {
  const group *g = w ? w->group : 0;
  int n = 0;
  if (i) n = snprintf(text, size, "%s at code+0x%x", op_name(i->op), i->at);
  if (g) n += snprintf(text + n, size - (size_t)n, "%sworkgroup (%u,%u,%u) wave %u", n ? ", " : "", g->id[0], g->id[1], g->id[2], w->id);
  if (n) n += snprintf(text + n, size - (size_t)n, ": ");
  return n;
}

void fail(wave *w, const inst *i, const char *format, ...) {
  if (w) w->state = FAILED;
  if (sim.error[0]) return; // what fails later may follow from the first
  const int n = write_place(sim.error, sizeof sim.error, w, i);
  va_list a;
  va_start(a, format);
  vsnprintf(sim.error + n, sizeof sim.error - (size_t)n, format, a);
  va_end(a);
}
