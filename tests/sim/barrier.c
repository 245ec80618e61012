// The barrier of a workgroup, and sleep.
#include "run.h"

enum { WORKGROUP = -1 };

static int known(wave *w, const inst *i, int barrier) {
  if (barrier != WORKGROUP) fail(w, i, "barrier %d is not modelled", barrier);
  return barrier == WORKGROUP;
}

static void complete(group *g) { // if all waves that have not ended have signalled
  if (!g->arrived || g->arrived + g->ended < g->count) return;
  g->arrived = 0;
  made_progress();
  lds_epoch(g);
  for (u32 n = 0; n < g->count; n++) {
    wave *const w = &g->waves[n];
    if (w->s[BARRIER_REG] != SIGNALLED) continue;
    w->s[BARRIER_REG] = w->state == AT_BARRIER ? NO_SIGNAL : PASSED;
    if (w->state == AT_BARRIER) w->state = RUNNING;
  }
}

int barrier_signal(wave *w, const inst *i, int barrier) {
  group *const g = w->group;
  if (!known(w, i, barrier)) return 0;
  if (w->s[BARRIER_REG] != NO_SIGNAL) {
    fail(w, i, "signals the barrier again without a wait for it");
    return 0;
  }
  const int first = g->arrived == 0;
  w->s[BARRIER_REG] = SIGNALLED;
  g->arrived++;
  complete(g);
  return first;
}

void barrier_wait(wave *w, const inst *i, int barrier) {
  if (!known(w, i, barrier)) return;
  if (sim.options & COUNT) sim.count.barriers++;
  switch (w->s[BARRIER_REG]) {
  case SIGNALLED: w->state = AT_BARRIER; break;
  case PASSED: w->s[BARRIER_REG] = NO_SIGNAL; break;
  default: // outside of a launch nobody has signalled, and nobody waits
    if (scheduler_now()) fail(w, i, "waits for a barrier that the wave has not signalled");
  }
}

void leave_barriers(wave *w) {
  group *const g = w->group;
  if (w->s[BARRIER_REG] == SIGNALLED) g->arrived--;
  w->s[BARRIER_REG] = NO_SIGNAL;
  g->ended++;
  complete(g);
}

void sleep_wave(wave *w, u32 ticks) {
  w->wake = scheduler_now() + ticks;
  if (ticks && scheduler_now()) w->state = SLEEPING; // outside of a launch nobody would wake it
}
