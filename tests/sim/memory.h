// What memory instructions do, and what memory.c, shared.c, waits.c and weak.c tell each other.
#pragma once
#include "registers.h"
#include <math.h>

enum { SCOPE_CU, SCOPE_SE, SCOPE_DEV, SCOPE_SYS };
typedef enum { NO_ACCESS, LOAD, STORE, ATOMIC } access_kind;
typedef enum {
  ADD, SUB, REVERSE_SUB, SWAP, AND, OR, XOR, MIN_SIGNED, MIN, MAX_SIGNED, MAX, INCREMENT, DECREMENT, COMPARE_SWAP, MASKED_OR, COND_SUB,
  SUB_CLAMP, ADD_FLOAT, MIN_FLOAT, MAX_FLOAT
} operation;
// half: 0, or which half of the VGPR is loaded (the other one stays) or stored: 1 low, 2 high.
typedef struct { uint8_t kind, bytes, is_signed, half, operation; } access;

#define FOR_LANES(lane, mask) for (u32 left_ = (mask), lane; left_ && (lane = (u32)__builtin_ctz(left_), 1); left_ &= left_ - 1)

INLINE u32 *lane_of(wave *w, u32 vgpr, u32 lane) { return (u32 *)&w->v[vgpr] + lane; }

INLINE void put_loaded(wave *w, const access *a, u32 vgpr, u32 lane, const void *data) {
  if (a->bytes >= 4) {
    for (u32 k = 0; k < a->bytes / 4u; k++) memcpy(lane_of(w, vgpr + k, lane), (const uint8_t *)data + 4 * k, 4);
    return;
  }
  u32 value = *(const uint8_t *)data;
  if (a->bytes == 2) value |= (u32)((const uint8_t *)data)[1] << 8;
  if (a->is_signed) value = a->bytes == 1 ? (u32)(int8_t)value : (u32)(int16_t)value;
  u32 *to = lane_of(w, vgpr, lane);
  if (a->half) value = a->half == 1 ? (*to & 0xffff0000) | (value & 0xffff) : (*to & 0xffff) | value << 16;
  *to = value;
}

INLINE void take_stored(wave *w, const access *a, u32 vgpr, u32 lane, void *data) {
  if (a->bytes >= 4) {
    for (u32 k = 0; k < a->bytes / 4u; k++) memcpy((uint8_t *)data + 4 * k, lane_of(w, vgpr + k, lane), 4);
    return;
  }
  const u32 value = a->half == 2 ? *lane_of(w, vgpr, lane) >> 16 : *lane_of(w, vgpr, lane);
  memcpy(data, &value, a->bytes);
}

// What an atomic leaves in memory: `extra` is the value to compare with, or the bits of MASKED_OR.
u64 atomic_result(u32 operation, u32 bytes, u64 old, u64 data, u64 extra);
// The old value at `place`, which the result replaces.
INLINE u64 atomic_at(void *place, const access *a, u64 data, u64 extra) {
  u64 old = 0;
  memcpy(&old, place, a->bytes);
  const u64 result = atomic_result(a->operation, a->bytes, old, data, extra);
  memcpy(place, &result, a->bytes);
  return old;
}
INLINE u64 take_value(wave *w, u32 bytes, u32 vgpr, u32 lane) {
  return join_u64(*lane_of(w, vgpr, lane), bytes == 8 ? *lane_of(w, vgpr + 1, lane) : 0);
}
INLINE void put_value(wave *w, u32 bytes, u32 vgpr, u32 lane, u64 value) {
  *lane_of(w, vgpr, lane) = (u32)value;
  if (bytes == 8) *lane_of(w, vgpr + 1, lane) = (u32)(value >> 32);
}

// memory.c: the allocation around an address; false if there is none
int allocation_around(u64 address, u64 *begin, u64 *end);
// shared.c: bytes of LDS for an access, checked; 0 after `fail`
uint8_t *lds_place(wave *w, const inst *i, u64 address, u32 bytes, access_kind kind);
// between.c
void forget_stores(void);                               // a launch begins
void acquired(group *g);                                // what other workgroups have stored so far
int check_between(wave *w, const inst *i, access_kind kind, u64 address, u32 bytes); // of device memory; false after `fail`
// weak.c
void end_store(wave *w);                                // the stores since the last call were one instruction's
void weak_atomic(wave *w, u64 address, u32 bytes);      // before an atomic on device memory
