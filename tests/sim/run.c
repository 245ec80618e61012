// A launch: workgroups come onto the chip, and their waves take turns.
//
// An ordinary launch has one workgroup at a time, or, in random order, a few; a cooperative one all of them. In random order turns
// are short and of random length, and some waves let most of theirs pass for a while: no order is fair that a kernel may rely on.
#include "memory.h"
#include "run.h"
#include <stdlib.h>

enum { WHOLE_TURN = 1 << 24, TURN = 20000, RANDOM_TURN = 200, RANDOM_GROUPS = 8, TURNS = 1024, NEW_MOOD = 40, DRAIN_CHANCE = 64 };
enum { QUIET = 50000000 }; // instructions: of waves that only wait for each other, as no kernel computes so long without a store

typedef struct {
  const launch *launch;
  resident *groups;
  u64 total, started, ended, turn; // workgroups; instructions of a turn that is not random
  u64 stop;                        // the count of instructions at which the launch counts as hung
  u32 room;
} scheduler;

static u64 now;        // turns, from 1; 0: there is no launch
static u64 progressed; // the count of instructions at the last progress

u64 scheduler_now(void) { return now; }

void made_progress(void) { progressed = sim.count.instructions; }

static int lets_pass(u32 *reluctance) {
  static const u32 moods[4] = {0, 0, 700, 1000};
  if (!(sim.options & RANDOM_ORDER)) return 0;
  if (random_number() % NEW_MOOD == 0) *reluctance = moods[random_number() % 4];
  return random_number() % TURNS < *reluctance;
}

static void check_progress(const scheduler *s, wave *w) {
  if (sim.count.instructions >= s->stop)
    fail(w, next_instruction(w), "hangs: the launch has run %llu instructions", (unsigned long long)sim.limit);
  else if (sim.count.instructions - progressed > QUIET)
    fail(w, next_instruction(w), "deadlock: in %u instructions no wave has stored, met others or ended", QUIET);
}

// Can the wave still run? Its turn may have been let pass.
static int take_turn(const scheduler *s, resident *r, u32 number) {
  wave *const w = &r->g.waves[number];
  now++;
  if (sim.options & WEAK_MEMORY && random_number() % DRAIN_CHANCE == 0) drain_stores(w, 0);
  if (w->state == SLEEPING && now >= w->wake) w->state = RUNNING;
  if (w->state != RUNNING) return w->state == SLEEPING;
  if (lets_pass(&r->reluctance[number])) return 1;
  run_wave(w, sim.options & RANDOM_ORDER ? 1 + random_number() % RANDOM_TURN : s->turn);
  if (w->state == ENDED) leave_barriers(w), made_progress();
  else if (w->state != FAILED) check_progress(s, w);
  return 1;
}

// Is there a wave that can run?
static int take_turns(scheduler *s, resident *r) {
  const u32 count = r->g.count, first = sim.options & RANDOM_ORDER ? (u32)(random_number() % count) : 0;
  int runs = 0;
  for (u32 n = 0; n < count && !sim.error[0]; n++) runs |= take_turn(s, r, (first + n) % count);
  if (r->g.ended == count) {
    end_group(r);
    s->ended++;
    return 1;
  }
  return runs;
}

static void schedule(scheduler *s) {
  while (s->ended < s->total && !sim.error[0]) {
    int runs = 0;
    for (u32 n = 0; n < s->room && !sim.error[0]; n++) {
      resident *const r = &s->groups[n];
      if (!r->live && s->started < s->total) start_group(r, s->launch, s->started++);
      if (r->live) runs |= take_turns(s, r);
    }
    if (!runs) fail(0, 0, "deadlock: no wave can run");
  }
}

static int prepare(scheduler *s) {
  s->groups = calloc(s->room, sizeof *s->groups);
  for (u32 n = 0; s->groups && n < s->room; n++)
    if (!make_room(&s->groups[n], s->launch)) return 0;
  return s->groups != 0;
}

int run_launch(const launch *l) {
  const u64 total = (u64)l->grid[0] * l->grid[1] * l->grid[2], few = sim.options & RANDOM_ORDER ? RANDOM_GROUPS : 1;
  scheduler s = {.launch = l, .total = total, .turn = l->cooperative ? TURN : WHOLE_TURN, .stop = ~0ull};
  s.room = (u32)(l->cooperative || total < few ? total : few);
  if (sim.limit) s.stop = sim.count.instructions + sim.limit;
  if (s.turn > sim.limit && sim.limit) s.turn = sim.limit;
  sim.error[0] = 0;
  now = 1;
  made_progress();
  forget_stores();
  if (prepare(&s)) schedule(&s);
  else fail(0, 0, "no memory for %u workgroups", s.room);
  now = 0;
  for (u32 n = 0; s.groups && n < s.room; n++) give_room_back(&s.groups[n]);
  free(s.groups);
  return sim.error[0] ? -1 : 0;
}
