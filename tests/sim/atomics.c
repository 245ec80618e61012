// The arithmetic of atomics on memory and LDS.
#include "memory.h"

static int64_t extended(u64 x, u32 bytes) { return bytes == 4 ? (int32_t)x : (int64_t)x; }

static double float_at(u64 x, u32 bytes) { return bytes == 4 ? as_float((u32)x) : as_double(x); }

// The lesser (or greater) of two numbers, the number of a number and a NaN; -0 is less than 0.
static u64 pick_float(u64 a, u64 b, u32 bytes, int greater) {
  const double x = float_at(a, bytes), y = float_at(b, bytes);
  if (isnan(x) || isnan(y)) return isnan(x) ? b : a;
  const int less = x < y || (x == y && signbit(x) && !signbit(y));
  return less != greater ? a : b;
}

static u64 float_result(u32 operation, u32 bytes, u64 old, u64 data) {
  if (operation != ADD_FLOAT) return pick_float(old, data, bytes, operation == MAX_FLOAT);
  return bytes == 4 ? as_u32(as_float((u32)old) + as_float((u32)data)) : as_u64(as_double(old) + as_double(data));
}

u64 atomic_result(u32 operation, u32 bytes, u64 old, u64 data, u64 extra) {
  const int64_t signed_old = extended(old, bytes), signed_data = extended(data, bytes);
  switch (operation) {
  case ADD: return old + data;
  case SUB: return old - data;
  case REVERSE_SUB: return data - old;
  case SWAP: return data;
  case AND: return old & data;
  case OR: return old | data;
  case XOR: return old ^ data;
  case MIN_SIGNED: return signed_old < signed_data ? old : data;
  case MIN: return old < data ? old : data;
  case MAX_SIGNED: return signed_old > signed_data ? old : data;
  case MAX: return old > data ? old : data;
  case INCREMENT: return old >= data ? 0 : old + 1;
  case DECREMENT: return old == 0 || old > data ? data : old - 1;
  case COMPARE_SWAP: return old == extra ? data : old;
  case MASKED_OR: return (old & ~data) | extra;
  case COND_SUB: return old >= data ? old - data : old;
  case SUB_CLAMP: return old >= data ? old - data : 0;
  default: return float_result(operation, bytes, old, data);
  }
}
