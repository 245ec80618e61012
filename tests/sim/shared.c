// DS: loads, stores and atomics of LDS, and permutes of lanes.
#include "memory.h"
#include "tables.h"

#define LOADS(name, ...) [OP_ds_load_##name] = {LOAD, __VA_ARGS__}
#define STORES(name, ...) [OP_ds_store_##name] = {STORE, __VA_ARGS__}
#define ATOMICS(name, type, bytes, what) \
  [OP_ds_##name##_##type] = {ATOMIC, bytes, 0, 0, what}, [OP_ds_##name##_rtn_##type] = {ATOMIC, bytes, 0, 0, what}
#define SIZES(name, letter, what) ATOMICS(name, letter##32, 4, what), ATOMICS(name, letter##64, 8, what)

static const access ACCESS[OP_COUNT] = { // of instructions with two addresses: each access
  LOADS(u8, 1), LOADS(i8, 1, 1), LOADS(u16, 2), LOADS(i16, 2, 1), LOADS(b32, 4), LOADS(b64, 8), LOADS(b96, 12), LOADS(b128, 16),
  LOADS(u8_d16, 1, 0, 1), LOADS(i8_d16, 1, 1, 1), LOADS(u16_d16, 2, 0, 1), LOADS(u8_d16_hi, 1, 0, 2), LOADS(i8_d16_hi, 1, 1, 2),
  LOADS(u16_d16_hi, 2, 0, 2), LOADS(addtid_b32, 4),
  LOADS(2addr_b32, 4), LOADS(2addr_b64, 8), LOADS(2addr_stride64_b32, 4), LOADS(2addr_stride64_b64, 8),
  STORES(b8, 1), STORES(b16, 2), STORES(b32, 4), STORES(b64, 8), STORES(b96, 12), STORES(b128, 16), STORES(b8_d16_hi, 1, 0, 2),
  STORES(b16_d16_hi, 2, 0, 2), STORES(addtid_b32, 4),
  STORES(2addr_b32, 4), STORES(2addr_b64, 8), STORES(2addr_stride64_b32, 4), STORES(2addr_stride64_b64, 8),
  SIZES(add, u, ADD), SIZES(sub, u, SUB), SIZES(rsub, u, REVERSE_SUB), SIZES(inc, u, INCREMENT), SIZES(dec, u, DECREMENT),
  SIZES(min, i, MIN_SIGNED), SIZES(max, i, MAX_SIGNED), SIZES(min, u, MIN), SIZES(max, u, MAX), SIZES(and, b, AND), SIZES(or, b, OR),
  SIZES(xor, b, XOR), SIZES(mskor, b, MASKED_OR), SIZES(cmpstore, b, COMPARE_SWAP),
  SIZES(min_num, f, MIN_FLOAT), SIZES(max_num, f, MAX_FLOAT), ATOMICS(add, f32, 4, ADD_FLOAT),
  ATOMICS(cond_sub, u32, 4, COND_SUB), ATOMICS(sub_clamp, u32, 4, SUB_CLAMP),
  [OP_ds_storexchg_rtn_b32] = {ATOMIC, 4, 0, 0, SWAP}, [OP_ds_storexchg_rtn_b64] = {ATOMIC, 8, 0, 0, SWAP},
  [OP_ds_storexchg_2addr_rtn_b32] = {ATOMIC, 4, 0, 0, SWAP}, [OP_ds_storexchg_2addr_rtn_b64] = {ATOMIC, 8, 0, 0, SWAP},
  [OP_ds_storexchg_2addr_stride64_rtn_b32] = {ATOMIC, 4, 0, 0, SWAP}, [OP_ds_storexchg_2addr_stride64_rtn_b64] = {ATOMIC, 8, 0, 0, SWAP},
};

// What the offsets of an instruction with two addresses count, in data sizes; 0: the instruction has one address, its offset counts bytes.
static u32 stride_of(u32 op) {
  switch (op) {
  case OP_ds_load_2addr_b32: case OP_ds_store_2addr_b32: case OP_ds_storexchg_2addr_rtn_b32: case OP_ds_load_2addr_b64:
  case OP_ds_store_2addr_b64: case OP_ds_storexchg_2addr_rtn_b64: return 1;
  case OP_ds_load_2addr_stride64_b32: case OP_ds_store_2addr_stride64_b32: case OP_ds_storexchg_2addr_stride64_rtn_b32:
  case OP_ds_load_2addr_stride64_b64: case OP_ds_store_2addr_stride64_b64: case OP_ds_storexchg_2addr_stride64_rtn_b64: return 64;
  default: return 0;
  }
}

static void list_addresses(wave *w, const inst *i, u32 *at) {
  const int by_lane = i->op == OP_ds_load_addtid_b32 || i->op == OP_ds_store_addtid_b32;
  for (u32 l = 0; l < LANES; l++) at[l] = by_lane ? (w->s[M0] & 0xffff) + 4 * l : *lane_of(w, i->src[0] - 256u, l);
}

static int needs_extra(const access *a) { return a->operation == COMPARE_SWAP || a->operation == MASKED_OR; }

// One access of a lane. `to` and `from` are the VGPRs of the result and of the data.
static int lane_access(wave *w, const inst *i, const access *a, u32 address, u32 lane, u32 to, u32 from) {
  uint8_t *const p = lds_place(w, i, address, a->bytes, a->kind);
  if (!p) return 0;
  if (a->kind == LOAD) {
    put_loaded(w, a, to, lane, p);
  } else if (a->kind == STORE) {
    take_stored(w, a, from, lane, p);
  } else {
    const u64 extra = needs_extra(a) ? take_value(w, a->bytes, i->src[2] - 256u, lane) : 0;
    if (address % a->bytes) {
      fail(w, i, "atomic at LDS+0x%x, which is no multiple of %u", address, a->bytes);
      return 0;
    }
    const u64 old = atomic_at(p, a, take_value(w, a->bytes, from, lane), extra);
    if (i->writes) put_value(w, a->bytes, to, lane, old);
  }
  return 1;
}

// Cycles beyond the first that lanes wait for a bank: of 64 banks of a dword, each serves one address at a time.
static u32 conflicts(const wave *w, const access *a, const u32 *at, u32 offset) {
  enum { BANKS = 64 };
  const u32 dwords = a->bytes < 4 ? 1 : a->bytes / 4u, together = dwords <= 2 ? LANES : LANES / 2;
  u32 extra = 0;
  for (u32 first = 0; first < LANES; first += together) {
    u32 address[BANKS][LANES], used[BANKS] = {0}, most = 1;
    for (u32 k = 0; k < together * dwords; k++) {
      const u32 lane = first + k / dwords, dword = (at[lane] + offset) / 4 + k % dwords, bank = dword % BANKS;
      if (!(w->exec >> lane & 1)) continue;
      u32 n = 0;
      while (n < used[bank] && address[bank][n] != dword) n++;
      if (n == used[bank]) address[bank][used[bank]++] = dword;
      if (used[bank] > most) most = used[bank];
    }
    extra += most - 1;
  }
  return extra;
}

static int run_access(wave *w, const inst *i) {
  const access *a = &ACCESS[i->op];
  if (a->kind == NO_ACCESS) return 0;
  const u32 stride = stride_of(i->op) * a->bytes, dwords = (a->bytes + 3u) / 4;
  const u32 offsets[2] = {stride ? i->offset0 * stride : (u32)i->imm, i->offset1 * stride};
  u32 at[LANES];
  list_addresses(w, i, at);
  for (int k = 0; k < (stride ? 2 : 1); k++) {
    const u32 to = i->dst + (u32)k * dwords, from = i->src[1 + k] - 256u;
    if (sim.options & COUNT) sim.count.bank_conflicts += conflicts(w, a, at, offsets[k]);
    FOR_LANES(lane, w->exec)
      if (!lane_access(w, i, a, at[lane] + offsets[k], lane, to, from)) return 1; // compilers rely on the sum's wrapping at 32 bits
  }
  load_issued(w, DS_COUNTER, i, i->dst, i->writes);
  return 1;
}

// The lane that ds_swizzle_b32 reads, by its offset; -1 if the mode is not modelled.
static int swizzle_lane(u32 offset, u32 lane) {
  if (offset >= 0xe000) return -1; // fast Fourier transform
  if (offset >= 0xc000) {
    const u32 fixed = offset & 31, by = offset >> 5 & 31;
    return (int)((lane & fixed) | ((offset >> 10 & 1 ? lane - by : lane + by) & ~fixed & 31));
  }
  if (offset & 0x8000) return (int)((lane & ~3u) | (offset >> 2 * (lane & 3) & 3));
  return (int)((((lane & offset) | offset >> 5) ^ offset >> 10) & 31);
}

static vec swizzle(wave *w, const inst *i) {
  const vec from = w->v[i->src[0] - 256];
  vec out = {0};
  for (u32 lane = 0; lane < LANES; lane++) {
    const int source = swizzle_lane((u32)i->imm, lane);
    if (source < 0) {
      fail(w, i, "mode 0x%x is not modelled", (u32)i->imm);
      return out;
    }
    out[lane] = w->exec >> source & 1 ? from[source] : 0;
  }
  return out;
}

static vec permute(const wave *w, const inst *i) { // each lane sends
  const vec address = w->v[i->src[0] - 256], from = w->v[i->src[1] - 256];
  vec out = {0};
  FOR_LANES(lane, w->exec) out[(address[lane] + (u32)i->imm) / 4 % LANES] = from[lane];
  return out;
}

static vec backward_permute(const wave *w, const inst *i) { // each lane fetches
  const vec address = w->v[i->src[0] - 256], from = w->v[i->src[1] - 256];
  const u32 readable = i->op == OP_ds_bpermute_fi_b32 ? ~0u : w->exec;
  vec out = {0};
  for (u32 lane = 0; lane < LANES; lane++) {
    const u32 source = (address[lane] + (u32)i->imm) / 4 % LANES;
    out[lane] = readable >> source & 1 ? from[source] : 0;
  }
  return out;
}

void run_shared(wave *w, const inst *i) {
  if (sim.options & COUNT) sim.count.lds++;
  switch (i->op) {
  case OP_ds_nop: return;
  case OP_ds_swizzle_b32: write_vec(w, i->dst, swizzle(w, i)); break;
  case OP_ds_permute_b32: write_vec(w, i->dst, permute(w, i)); break;
  case OP_ds_bpermute_b32: case OP_ds_bpermute_fi_b32: write_vec(w, i->dst, backward_permute(w, i)); break;
  default:
    if (!run_access(w, i)) fail(w, i, "is not modelled");
    return;
  }
  load_issued(w, DS_COUNTER, i, i->dst, 1);
}
