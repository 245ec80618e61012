// Launches that are right, unless asked not to be.
#include "kernel.h"

static const u32 first = 1000;
__attribute__((visibility("protected"))) const u32 *const where = &first;
__attribute__((visibility("default"))) const u32 second = 2000; // which another module might replace: by its symbol
__attribute__((visibility("protected"))) const u32 *const where_second = &second;
KERNEL void number(u32 GLOBAL *out, u32 start) { out[GROUP * 256 + THREAD] = start + GROUP * 1000 + THREAD; }
KERNEL void beyond(u32 GLOBAL *out, u32 words) { out[words + THREAD] = 1; }
KERNEL void reverse(u32 GLOBAL *out) {
  shared[THREAD] = THREAD;
  meet();
  out[THREAD] = shared[THREAD ^ 255];
}
KERNEL void racing(u32 GLOBAL *out) {
  shared[THREAD] = THREAD;
  out[THREAD] = shared[THREAD ^ 255];
}
// The first workgroup hands a row to the second. Unless careful, it only makes sure of its first wave's stores.
KERNEL void handover(u32 GLOBAL *data, u32 GLOBAL *flag, u32 GLOBAL *out, u32 careful) {
  if (GROUP == 0) {
    data[THREAD] = THREAD;
    if (careful) ORDER(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    if (THREAD == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE);
    return;
  }
  while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, DEVICE)) __builtin_amdgcn_s_sleep(1);
  out[THREAD] = data[THREAD];
}
KERNEL void spin(u32 GLOBAL *flag) {
  while (!peek(flag)) __builtin_amdgcn_s_sleep(1);
}
// A barrier of the whole grid, between sums of neighbours.
KERNEL void ring(u32 GLOBAL *tickets, u32 groups, u32 rounds) {
  u32 GLOBAL *const values = tickets + 64;
  for (u32 n = 0; n < rounds; n++) {
    u32 GLOBAL *const from = values + (n & 1) * groups, *const to = values + (~n & 1) * groups;
    if (THREAD == 0) to[GROUP] = from[GROUP] + from[(GROUP + 1) % groups];
    meet();
    if (THREAD == 0) {
      __scoped_atomic_fetch_add(tickets, 1, __ATOMIC_ACQ_REL, DEVICE);
      while (__scoped_atomic_load_n(tickets, __ATOMIC_ACQUIRE, DEVICE) < groups * (n + 1))
        __builtin_amdgcn_s_sleep(1);
    }
    meet();
    ORDER(__ATOMIC_ACQUIRE, "agent");
  }
}

KERNEL void spin_fast(u32 GLOBAL *flag) {
  while (!peek(flag)) {}
}
SHAPED void number_all(u32 GLOBAL *out) { // of a grid and a workgroup of three dimensions
  const u32 x = THREAD, y = __builtin_amdgcn_workitem_id_y(), z = __builtin_amdgcn_workitem_id_z();
  const u32 group = (__builtin_amdgcn_workgroup_id_z() * 3 + __builtin_amdgcn_workgroup_id_y()) * 2 + GROUP;
  out[group * 30 + (z * 3 + y) * 5 + x] = group << 16 | z << 8 | y << 4 | x;
}
KERNEL void in_scratch(u32 GLOBAL *out, u32 turn) { // a table of each thread, at places not known before
  volatile u32 table[16];
  for (u32 n = 0; n < 16; n++) table[(n * 5 + turn) % 16] = n * 1000 + THREAD;
  out[THREAD] = table[THREAD % 16];
}
KERNEL void mixed(unsigned char a, unsigned short b, double c, u32 GLOBAL *out, float d) {
  if (THREAD == 0) out[0] = a, out[1] = b, out[2] = (u32)c, out[3] = (u32)d;
}
static LDS __attribute__((loader_uninitialized)) u32 own[64];
KERNEL void own_and_shared(u32 GLOBAL *out) {
  if (THREAD < 64) own[THREAD] = THREAD;
  shared[THREAD] = 100 * THREAD;
  meet();
  out[THREAD] = own[THREAD % 64] + shared[255 - THREAD];
}
