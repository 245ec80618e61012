// What the files that run a launch tell each other.
#pragma once
#include "registers.h"

enum { VGPR_ROOM = 256 + 16 };          // the last registers may start a row of several
enum { BARRIER_REG = 257 };             // w->s[BARRIER_REG]: where the wave stands with its workgroup's barrier
enum { NO_SIGNAL, SIGNALLED, PASSED };

typedef struct { // a workgroup on the chip, and what the scheduler knows of its waves
  group g;       // first: a wave's group is one
  u32 wave_room;
  u32 *reluctance; // of each wave: of 1024 turns, how many it lets pass
  int live;
} resident;

// groups.c
int make_room(resident *r, const launch *l);          // for a workgroup; false without memory
void start_group(resident *r, const launch *l, u64 number);
void end_group(resident *r);                          // its stores reach memory
void give_room_back(resident *r);
// execute.c
void run_wave(wave *w, u64 instructions);             // until it waits, sleeps or ends, or has run so many
const inst *next_instruction(wave *w);                // 0 after `fail`: there is none
// run.c: turns that waves had in this launch
u64 scheduler_now(void);
// waits.c
void forget_waits(wave *w);                           // a new wave takes the place of an old one
// barrier.c
void leave_barriers(wave *w);                         // a wave has ended
