// Bugs, one a kernel, that a card may hide; and what looks like one but is none.
#include "kernel.h"

#define WAIT_VECTOR "s_wait_loadcnt 0x0\n"

// Bounds.
KERNEL void fetch(const u32 GLOBAL *from, u32 GLOBAL *out) { out[THREAD] = from[THREAD]; }
KERNEL void fetch_wide(const u32 GLOBAL *from, u32 GLOBAL *out) {
  typedef u32 four __attribute__((ext_vector_type(4)));
  const four x = ((const four GLOBAL *)from)[THREAD];
  out[THREAD] = x[0] + x[1] + x[2] + x[3];
}
KERNEL void fetch_one(const u32 GLOBAL *from, u32 GLOBAL *out) { out[THREAD] = from[0]; }
KERNEL void put(u32 GLOBAL *to, u32 GLOBAL *out) { to[THREAD] = 1; }
KERNEL void tally(u32 GLOBAL *to, u32 GLOBAL *out) { __scoped_atomic_fetch_add(to + THREAD, 1, __ATOMIC_RELAXED, DEVICE); }
KERNEL void through_table(const u32 GLOBAL *const GLOBAL *table, u32 GLOBAL *out) { out[THREAD] = table[0][THREAD]; }

// Waits.
KERNEL void load_unwaited(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x, y;
  ASM("global_load_b32 %0, %2, off\nv_add_nc_u32 %1, 1, %0" : "=&v"(x), "=v"(y) : "v"(from + THREAD));
  out[THREAD] = y;
}
KERNEL void first_of_two(const u32 GLOBAL *from, u32 GLOBAL *out) { // waits for the first load only, and uses that: right
  u32 x, z, y;
  ASM("global_load_b32 %0, %3, off\nglobal_load_b32 %1, %3, off\ns_wait_loadcnt 0x1\nv_add_nc_u32 %2, 1, %0\n" WAIT_VECTOR
      : "=&v"(x), "=&v"(z), "=&v"(y) : "v"(from + THREAD));
  out[THREAD] = y;
}
KERNEL void second_of_two(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x, z, y;
  ASM("global_load_b32 %0, %3, off\nglobal_load_b32 %1, %3, off\ns_wait_loadcnt 0x1\nv_add_nc_u32 %2, 1, %1\n" WAIT_VECTOR
      : "=&v"(x), "=&v"(z), "=&v"(y) : "v"(from + THREAD));
  out[THREAD] = y;
}
KERNEL void overwritten_in_flight(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x;
  ASM("global_load_b32 %0, %1, off\nv_mov_b32 %0, 0\n" WAIT_VECTOR : "=&v"(x) : "v"(from + THREAD));
  out[THREAD] = x;
}
KERNEL void scalar_unwaited(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x, y;
  ASM("s_load_b32 %0, %2, 0x0\ns_add_co_i32 %1, %0, 1" : "=&s"(x), "=s"(y) : "s"(from) : "scc");
  out[THREAD] = y;
}
KERNEL void scalar_unwaited_by_vector(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x, y;
  ASM("s_load_b32 %0, %2, 0x0\nv_mov_b32 %1, %0" : "=&s"(x), "=v"(y) : "s"(from));
  out[THREAD] = y;
}
KERNEL void first_scalar_of_two(const u32 GLOBAL *from, u32 GLOBAL *out) { // scalar loads come in any order
  u32 x, z, y;
  ASM("s_load_b32 %0, %3, 0x0\ns_load_b32 %1, %3, 0x4\ns_wait_kmcnt 0x1\ns_add_co_i32 %2, %0, 1\ns_wait_kmcnt 0x0"
      : "=&s"(x), "=&s"(z), "=&s"(y) : "s"(from) : "scc");
  out[THREAD] = y;
}
KERNEL void ends_in_flight(const u32 GLOBAL *from, u32 GLOBAL *out) { // right: the next workgroup's registers are its own
  ASM("global_load_b32 v41, %0, off\nv_mov_b32 v40, 0\ns_mov_b32 s40, 0\n" WAIT_VECTOR
      "global_load_b32 v40, %0, off\ns_load_b32 s40, %1, 0x0" ::"v"(from + THREAD), "s"(from) : "v40", "v41", "s40");
}
KERNEL void lds_unwaited(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x, y;
  shared[THREAD] = from[THREAD];
  ASM("ds_load_b32 %0, %2\nv_add_nc_u32 %1, 1, %0" : "=&v"(x), "=v"(y) : "v"(4 * THREAD) : "memory");
  out[THREAD] = y;
}
KERNEL void store_unwaited_at_barrier(const u32 GLOBAL *from, u32 GLOBAL *out) {
  u32 x;
  ASM("ds_store_b32 %1, %2\ns_barrier_signal -1\ns_barrier_wait -1\nds_load_b32 %0, %1\ns_wait_dscnt 0x0"
      : "=&v"(x) : "v"(4 * THREAD), "v"(from[THREAD]) : "memory");
  out[THREAD] = x;
}

// LDS, without a barrier too many.
KERNEL void read_too_early(const u32 GLOBAL *from, u32 GLOBAL *out) {
  shared[THREAD] = from[THREAD];
  meet();
  shared[THREAD] = from[THREAD] + 1;
  out[THREAD] = shared[255 - THREAD];
}
KERNEL void overwritten_too_early(const u32 GLOBAL *from, u32 GLOBAL *out) {
  shared[THREAD] = from[THREAD];
  meet();
  if (THREAD >= 128) out[THREAD] = shared[255 - THREAD];
  else shared[THREAD] = 0;
}
KERNEL void same_place(const u32 GLOBAL *from, u32 GLOBAL *out) { shared[THREAD % 32] = from[THREAD]; }
KERNEL void half_written(const u32 GLOBAL *from, u32 GLOBAL *out) {
  if (THREAD < 128) shared[THREAD] = from[THREAD];
  meet();
  out[THREAD] = shared[THREAD];
}
KERNEL void atomic_and_store(const u32 GLOBAL *from, u32 GLOBAL *out) {
  if (THREAD == 0) shared[0] = 0;
  meet();
  if (THREAD < 224) __scoped_atomic_fetch_add(shared, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  else shared[0] = 1;
}
KERNEL void atomics_alone(const u32 GLOBAL *from, u32 GLOBAL *out) { // right
  if (THREAD == 0) shared[0] = 0;
  meet();
  __scoped_atomic_fetch_add(shared, from[THREAD], __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  meet();
  out[THREAD] = shared[0];
}

// Barriers.
KERNEL void waits_without_signal(const u32 GLOBAL *from, u32 GLOBAL *out) { ASM("s_barrier_wait -1" ::: "memory"); }
KERNEL void signals_twice(const u32 GLOBAL *from, u32 GLOBAL *out) {
  ASM("s_barrier_signal -1\ns_barrier_signal -1\ns_barrier_wait -1" ::: "memory");
}
KERNEL void some_leave_first(const u32 GLOBAL *from, u32 GLOBAL *out) { // right: waves that have ended are not waited for
  if (THREAD >= 64) return;
  shared[THREAD] = from[THREAD];
  meet();
  out[THREAD] = shared[63 - THREAD];
}

// The second workgroup has read a row before the first one hands over a new one, and may still hold the old one.
KERNEL void stale(u32 GLOBAL *row, u32 GLOBAL *flag, u32 GLOBAL *out, u32 careful) {
  if (GROUP == 0) {
    for (u32 n = 0; n < 40; n++) __builtin_amdgcn_s_sleep(1);
    row[THREAD] = THREAD;
    meet();
    ORDER(__ATOMIC_RELEASE, "agent");
    if (THREAD == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE);
    return;
  }
  out[THREAD] = row[THREAD];
  while (!peek(flag)) __builtin_amdgcn_s_sleep(1);
  if (careful) ORDER(__ATOMIC_ACQUIRE, "agent");
  ASM("" ::: "memory");
  out[THREAD] = row[THREAD];
}

// Accesses that are right, but take longer than they must.
KERNEL void far_apart(u32 GLOBAL *out) { out[THREAD * 32] = THREAD; }
KERNEL void one_bank(u32 GLOBAL *out) {
  shared[THREAD * 64] = THREAD;
  out[THREAD] = shared[(THREAD ^ 1) * 64];
}
// One wait of each kind that a compiler writes.
KERNEL void all_waits(const u32 GLOBAL *from, u32 GLOBAL *out) {
  const u32 factor = from[0];
  shared[THREAD] = from[THREAD] * factor;
  meet();
  out[THREAD] = shared[255 - THREAD] + factor;
}
