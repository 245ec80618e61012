// VGLOBAL, VFLAT, VSCRATCH and SMEM.
#include "memory.h"
#include "tables.h"

#define ALL(name, ...) [OP_global_##name] = {__VA_ARGS__}, [OP_flat_##name] = {__VA_ARGS__}, [OP_scratch_##name] = {__VA_ARGS__}
#define BOTH(name, bytes, what) \
  [OP_global_atomic_##name] = {ATOMIC, bytes, 0, 0, what}, [OP_flat_atomic_##name] = {ATOMIC, bytes, 0, 0, what}
#define SIZES(name, what) BOTH(name##32, 4, what), BOTH(name##64, 8, what)

static const access ACCESS[OP_COUNT] = {
  ALL(load_u8, LOAD, 1), ALL(load_i8, LOAD, 1, 1), ALL(load_u16, LOAD, 2), ALL(load_i16, LOAD, 2, 1),
  ALL(load_b32, LOAD, 4), ALL(load_b64, LOAD, 8), ALL(load_b96, LOAD, 12), ALL(load_b128, LOAD, 16),
  ALL(load_d16_u8, LOAD, 1, 0, 1), ALL(load_d16_i8, LOAD, 1, 1, 1), ALL(load_d16_b16, LOAD, 2, 0, 1),
  ALL(load_d16_hi_u8, LOAD, 1, 0, 2), ALL(load_d16_hi_i8, LOAD, 1, 1, 2), ALL(load_d16_hi_b16, LOAD, 2, 0, 2),
  ALL(store_b8, STORE, 1), ALL(store_b16, STORE, 2), ALL(store_b32, STORE, 4), ALL(store_b64, STORE, 8),
  ALL(store_b96, STORE, 12), ALL(store_b128, STORE, 16), ALL(store_d16_hi_b8, STORE, 1, 0, 2), ALL(store_d16_hi_b16, STORE, 2, 0, 2),
  SIZES(add_u, ADD), SIZES(sub_u, SUB), SIZES(swap_b, SWAP), SIZES(and_b, AND), SIZES(or_b, OR), SIZES(xor_b, XOR),
  SIZES(min_i, MIN_SIGNED), SIZES(min_u, MIN), SIZES(max_i, MAX_SIGNED), SIZES(max_u, MAX),
  SIZES(inc_u, INCREMENT), SIZES(dec_u, DECREMENT), SIZES(cmpswap_b, COMPARE_SWAP),
  BOTH(cond_sub_u32, 4, COND_SUB), BOTH(sub_clamp_u32, 4, SUB_CLAMP),
  BOTH(add_f32, 4, ADD_FLOAT), BOTH(min_num_f32, 4, MIN_FLOAT), BOTH(max_num_f32, 4, MAX_FLOAT),
};

static int in_bounds(wave *w, const inst *i, u64 address, u32 bytes) {
  if (!(sim.options & CHECK_BOUNDS) || allocated(address, bytes)) return 1;
  fail(w, i, "access of %u bytes at 0x%llx is outside every allocation", bytes, (unsigned long long)address);
  return 0;
}

static void list_addresses(wave *w, const inst *i, u64 *at) {
  const u64 offset = (u64)(int64_t)i->imm;
  const u32 vgpr = i->src[0] - 256u, scratch = i->format == VSCRATCH;
  if (scratch) {
    const u32 base = (u32)offset + (i->sdst == NULL_REG ? 0 : w->s[i->sdst]);
    for (u32 l = 0; l < LANES; l++) at[l] = base + (i->scaled ? *lane_of(w, vgpr, l) : 0);
  } else if (i->sdst != NULL_REG) {
    const u64 base = read_u64(w, i->sdst) + offset;
    for (u32 l = 0; l < LANES; l++) at[l] = base + *lane_of(w, vgpr, l);
  } else {
    for (u32 l = 0; l < LANES; l++) at[l] = join_u64(*lane_of(w, vgpr, l), *lane_of(w, vgpr + 1, l)) + offset;
  }
}

static uint8_t *scratch_place(wave *w, const inst *i, u64 address, u32 lane, u32 bytes) {
  const u32 offset = (u32)address;
  if (offset <= w->scratch_bytes && bytes <= w->scratch_bytes - offset) return w->scratch + (u64)lane * w->scratch_bytes + offset;
  fail(w, i, "access of %u bytes at 0x%x of scratch, which has 0x%x bytes", bytes, offset, w->scratch_bytes);
  return 0;
}

// Where a lane's data stand, 0 after `fail`. `device`: is it device memory?
static uint8_t *place(wave *w, const inst *i, const access *a, u64 address, u32 lane, int *device) {
  const u32 high = (u32)(address >> 32);
  *device = 0;
  if (i->format == VSCRATCH || (i->format == VFLAT && high == PRIVATE_APERTURE)) return scratch_place(w, i, address, lane, a->bytes);
  if (i->format == VFLAT && high == SHARED_APERTURE) return lds_place(w, i, (u32)address, a->bytes, a->kind);
  *device = 1;
  return in_bounds(w, i, address, a->bytes) ? (uint8_t *)address : 0;
}

static void load_lane(wave *w, const inst *i, const access *a, uint8_t *from, u32 lane, int device) {
  uint8_t data[16];
  if (!device || !(sim.options & WEAK_MEMORY)) {
    put_loaded(w, a, i->dst, lane, from);
    return;
  }
  weak_load(w, (u64)from, data, a->bytes, i->scope);
  put_loaded(w, a, i->dst, lane, data);
}

static void store_lane(wave *w, const inst *i, const access *a, uint8_t *to, u32 lane, int device) {
  uint8_t data[16];
  if (!device || !(sim.options & WEAK_MEMORY)) {
    take_stored(w, a, i->src[1] - 256u, lane, to);
    return;
  }
  take_stored(w, a, i->src[1] - 256u, lane, data);
  weak_store(w, (u64)to, data, a->bytes);
}

static void atomic_lane(wave *w, const inst *i, const access *a, uint8_t *at, u32 lane, int device) {
  const u32 data = i->src[1] - 256u;
  if ((u64)at % a->bytes) {
    fail(w, i, "atomic at 0x%llx, which is no multiple of %u", (unsigned long long)(u64)at, a->bytes);
    return;
  }
  if (device && sim.options & WEAK_MEMORY) weak_atomic(w, (u64)at, a->bytes);
  const u64 extra = a->operation == COMPARE_SWAP ? take_value(w, a->bytes, data + a->bytes / 4, lane) : 0;
  const u64 old = atomic_at(at, a, take_value(w, a->bytes, data, lane), extra);
  if (memcmp(&old, at, a->bytes)) made_progress();
  if (i->th & 1) put_value(w, a->bytes, i->dst, lane, old);
}

// Whether one allocation covers what all lanes access, and all between.
static int in_one_allocation(const wave *w, const access *a, const u64 *at) {
  u64 low = ~0ull, high = 0;
  FOR_LANES(lane, w->exec) {
    low = at[lane] < low ? at[lane] : low;
    high = at[lane] > high ? at[lane] : high;
  }
  return low <= high && allocated(low, high - low + a->bytes);
}

INLINE void move_words(wave *w, const inst *i, int load, u32 words, const u64 *at) {
  const u32 vgpr = load ? i->dst : i->src[1] - 256u;
  FOR_LANES(lane, w->exec) {
    for (u32 k = 0; k < words; k++) {
      if (load) memcpy(lane_of(w, vgpr + k, lane), (const u32 *)at[lane] + k, 4);
      else memcpy((u32 *)at[lane] + k, lane_of(w, vgpr + k, lane), 4);
    }
  }
}

// Loads and stores of dwords, all in one allocation: most of them. What it leaves undone goes lane by lane.
static int run_plain(wave *w, const inst *i, const access *a, const u64 *at) {
  if (i->format != VGLOBAL || a->kind == ATOMIC || a->bytes < 4 || sim.options & (WEAK_MEMORY | CHECK_GROUPS)) return 0;
  if (sim.options & CHECK_BOUNDS && !in_one_allocation(w, a, at)) return 0;
  switch (a->bytes) {
  case 4: move_words(w, i, a->kind == LOAD, 1, at); break;
  case 8: move_words(w, i, a->kind == LOAD, 2, at); break;
  case 12: move_words(w, i, a->kind == LOAD, 3, at); break;
  default: move_words(w, i, a->kind == LOAD, 4, at);
  }
  return 1;
}

static void count_lines(const wave *w, const access *a, const u64 *at) {
  enum { LINE = 128 };
  u64 seen[2 * LANES];
  u32 n = 0;
  FOR_LANES(lane, w->exec) {
    for (u64 line = at[lane] / LINE; line <= (at[lane] + a->bytes - 1) / LINE; line++) {
      u32 k = n;
      while (k && seen[k - 1] != line) k--;
      if (!k) seen[n++] = line;
    }
  }
  sim.count.lines += n;
  sim.count.needed_lines += ((u32)__builtin_popcount(w->exec) * a->bytes + LINE - 1) / LINE;
}

static u32 places(const wave *w, const u64 *at) { // lanes with the same one get the same bytes
  u64 seen[LANES];
  u32 n = 0;
  FOR_LANES(lane, w->exec) {
    u32 k = n;
    while (k && seen[k - 1] != at[lane]) k--;
    if (!k) seen[n++] = at[lane];
  }
  return n;
}

static void count_access(const wave *w, const inst *i, const access *a, const u64 *at) {
  const u32 bytes = (u32)__builtin_popcount(w->exec) * a->bytes;
  if (a->kind == LOAD) sim.count.vmem_load++, sim.count.load_bytes += places(w, at) * a->bytes;
  else if (a->kind == STORE) sim.count.vmem_store++, sim.count.store_bytes += bytes;
  else sim.count.atomics++;
  if (i->format == VGLOBAL) count_lines(w, a, at);
}

static void issue(wave *w, const inst *i, const access *a) {
  if (a->kind == STORE) made_progress();
  const int flat = i->format == VFLAT;
  if (a->kind == LOAD || (a->kind == ATOMIC && i->th & 1)) {
    load_issued(w, LOAD_COUNTER, i, i->dst, i->writes);
    if (flat) load_issued(w, DS_COUNTER, i, i->dst, i->writes);
    return;
  }
  store_issued(w, i);
  if (flat) load_issued(w, DS_COUNTER, i, 0, 0);
}

static int cache_control(wave *w, const inst *i) {
  if (i->op != OP_global_inv && i->op != OP_global_wb && i->op != OP_global_wbinv) return 0;
  if (i->op != OP_global_wb && sim.options & WEAK_MEMORY) invalidate(w, i->scope);
  if (i->op != OP_global_wb && i->scope >= SCOPE_DEV) acquired(w->group);
  if (i->op == OP_global_inv) load_issued(w, LOAD_COUNTER, i, 0, 0);
  else store_issued(w, i);
  return 1;
}

void run_memory(wave *w, const inst *i) {
  const access *a = &ACCESS[i->op];
  u64 at[LANES];
  if (cache_control(w, i)) return;
  if (a->kind == NO_ACCESS) {
    fail(w, i, "is not modelled");
    return;
  }
  list_addresses(w, i, at);
  if (sim.options & COUNT) count_access(w, i, a, at);
  if (run_plain(w, i, a, at)) {
    issue(w, i, a);
    return;
  }
  FOR_LANES(lane, w->exec) {
    int device;
    uint8_t *const p = place(w, i, a, at[lane], lane, &device);
    if (!p || (device && sim.options & CHECK_GROUPS && !check_between(w, i, a->kind, (u64)p, a->bytes))) return;
    if (a->kind == LOAD) load_lane(w, i, a, p, lane, device);
    else if (a->kind == STORE) store_lane(w, i, a, p, lane, device);
    else atomic_lane(w, i, a, p, lane, device);
  }
  issue(w, i, a);
}

// Bytes of a scalar load; negative: extended by the sign; 0: it loads nothing.
static int scalar_bytes(const inst *i) {
  switch (i->op) {
  case OP_s_load_u8: return 1;
  case OP_s_load_i8: return -1;
  case OP_s_load_u16: return 2;
  case OP_s_load_i16: return -2;
  case OP_s_load_b32: case OP_s_load_b64: case OP_s_load_b96: case OP_s_load_b128: case OP_s_load_b256: case OP_s_load_b512:
    return 4 * i->dwords;
  default: return 0;
  }
}

static int is_hint(u32 op) {
  return op == OP_s_dcache_inv || op == OP_s_prefetch_inst || op == OP_s_prefetch_data || op == OP_s_prefetch_inst_pc_rel ||
         op == OP_s_prefetch_data_pc_rel;
}

static u32 narrow(const uint8_t *p, int bytes) { // of 1 or 2 bytes
  const u32 value = bytes == 1 || bytes == -1 ? *p : *p | (u32)p[1] << 8;
  return bytes == -1 ? (u32)(int8_t)value : bytes == -2 ? (u32)(int16_t)value : value;
}

void run_scalar_memory(wave *w, const inst *i) {
  const int bytes = scalar_bytes(i), size = bytes < 0 ? -bytes : bytes;
  if (is_hint(i->op)) return;
  if (!bytes) {
    fail(w, i, "is not modelled");
    return;
  }
  if (sim.options & COUNT) sim.count.smem++;
  u64 address = read_u64(w, i->src[0]) + (u64)(int64_t)i->imm + (i->src[1] == NULL_REG ? 0 : read_scalar(w, i->src[1]));
  if (size >= 4) address &= ~3ull;
  if (!in_bounds(w, i, address, (u32)size) || i->dst == NULL_REG) return;
  u32 data[16];
  if (size < 4) data[0] = narrow((const uint8_t *)address, bytes);
  else memcpy(data, (const void *)address, (size_t)size);
  const u32 count = size < 4 ? 1 : (u32)size / 4;
  for (u32 k = 0; k < count; k++) write_scalar(w, i->dst + k, data[k]);
  scalar_load_issued(w, i, i->dst, count);
}
