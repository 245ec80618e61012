// A workgroup: 256 threads in 8 waves of 32 lanes. The only file that knows the target.
//
// GR_RESIDENT compiles the kernel that stays for a whole step (mega.c): its blocks have BESIDE workgroups side by side,
// each with its own barriers and shared memory.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define GR_GLOBAL __attribute__((address_space(1)))
#define GLOBAL GR_GLOBAL
#define LDS __attribute__((address_space(3)))
#define INLINE static inline __attribute__((always_inline))
#if defined(__AMDGCN__)
#define GR_CONSTANT __attribute__((address_space(4)))
#define GR_MATRIX GR_CONSTANT
#define GR_ENTRY __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(256, 256), visibility("protected"))) void
#elif defined(__NVPTX__)
#define GR_MATRIX GR_GLOBAL
#ifdef GR_RESIDENT
#define GR_CONSTANT LDS // records are copied there ahead of their turn
#else
#define GR_CONSTANT GR_GLOBAL
#endif
#define GR_ENTRY __attribute__((nvptx_kernel)) void
#else
#error "kernels/gpu is compiled for gfx1201 or sm_90"
#endif
#include "../ops.h"
#pragma STDC FP_CONTRACT OFF

enum { LANES = 32, WAVES = 8, THREADS = 256, SPLIT = 32 };

typedef _Float16 half;
typedef uint32_t u32x2 __attribute__((ext_vector_type(2)));
typedef uint32_t u32x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef int32_t i32x8 __attribute__((ext_vector_type(8)));
typedef u32x4 u32x4_of_8 __attribute__((aligned(8))); // at addresses that are multiples of 8

// What a virtual workgroup knows besides its record. `scratch` starts with counters that are 0 between calls.
typedef struct {
  uint32_t group;
  uint32_t GLOBAL *scratch;
} gr_work;
enum { COUNTERS = 1 << 14 }; // words of them

// What the host reads of a kernel: the checksum of its struct; `lds` is its bytes of shared memory, or which builds of
// the resident kernel have it.
typedef struct {
  char name[40];
  uint32_t layout, lds;
} gr_entry;
#define GR_CONSTANTS __attribute__((used, visibility("protected"))) const

// In the resident kernel, functions that are called keep their registers and instructions apart.
#if defined(GR_RESIDENT) && defined(__NVPTX__)
#define APART static __attribute__((noinline))
enum { BESIDE = 2 };
#else
#define APART INLINE
enum { BESIDE = 1 };
#endif
enum { BLOCK = BESIDE * THREADS };

// Shared memory of a workgroup, as large as the kernel's entry in table.h says.
#ifdef GR_RESIDENT
extern LDS uint32_t gr_block_lds[] __attribute__((aligned(16)));
INLINE LDS uint32_t *group_lds(void);
#define gr_lds group_lds()
#else
extern LDS uint32_t gr_lds[];
#endif

#if defined(__AMDGCN__)
INLINE uint32_t thread_id(void) { return __builtin_amdgcn_workitem_id_x(); }
INLINE uint32_t group_id(void) { return __builtin_amdgcn_workgroup_id_x(); }
INLINE void barrier(void) { // everything that threads wrote before is seen by all threads after
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
INLINE uint32_t block_thread(void) { return thread_id(); }
INLINE void block_barrier(void) { barrier(); }
INLINE uint32_t lane_xor(uint32_t x, int mask) { // the value of lane `lane ^ mask`, mask 1, 2, 4, 8 or 16
  switch (mask) {
  case 16: return (uint32_t)__builtin_amdgcn_permlanex16((int)x, (int)x, 0x76543210, (int)0xfedcba98, 0, 0);
  case 8: return (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, 0x168, 15, 15, 1);
  case 4: return (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, 0x164, 15, 15, 1);
  case 2: return (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, 0x162, 15, 15, 1);
  default: return (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, 0x161, 15, 15, 1);
  }
}
INLINE uint32_t of_lane(uint32_t x, uint32_t lane) { return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(4 * lane), (int)x); }
INLINE uint32_t first_lane(uint32_t x) { return (uint32_t)__builtin_amdgcn_readfirstlane((int)x); } // equal in all lanes: say so
INLINE float settled(float x) { // computed here, not later, when what it is made of would lie in registers until then
  __asm__ volatile("" : "+v"(x)::"memory");
  return x;
}
INLINE uint32_t anew(uint32_t x) { // the same in all lanes; what depends on it is computed here, not kept from before a loop
  __asm__ volatile("" : "+s"(x));
  return x;
}
INLINE int32_t dot4(int32_t sum, uint32_t a, uint32_t b) { return __builtin_amdgcn_sudot4(1, (int)a, 1, (int)b, sum, 0); } // int8 x int8
INLINE int32_t dot4_us(int32_t sum, uint32_t u, uint32_t b) { return __builtin_amdgcn_sudot4(0, (int)u, 1, (int)b, sum, 0); } // uint8 x int8
INLINE void release_device(void) { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
INLINE void acquire_device(void) { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
#define DEVICE_SCOPE __MEMORY_SCOPE_DEVICE
INLINE uint32_t count_up(uint32_t GLOBAL *p) { return __scoped_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, DEVICE_SCOPE); }
INLINE uint32_t peek(uint32_t GLOBAL *p) { return __scoped_atomic_load_n(p, __ATOMIC_RELAXED, DEVICE_SCOPE); }
INLINE void poke(uint32_t GLOBAL *p, uint32_t v) { __scoped_atomic_store_n(p, v, __ATOMIC_RELAXED, DEVICE_SCOPE); }
// Barriers of all blocks: `arrive` after every wave has made its writes visible, `acquire_block` after the wait.
INLINE void arrive(uint32_t GLOBAL *p) {
  release_device();
  barrier();
  if (thread_id() == 0) __scoped_atomic_fetch_add(p, 1u, __ATOMIC_RELAXED, DEVICE_SCOPE);
}
INLINE void acquire_first(uint32_t GLOBAL *p) {}
INLINE void acquire_all(void) { acquire_device(); }
INLINE void pause_polling(void) { __builtin_amdgcn_s_sleep(1); }
INLINE uint64_t clock_now(void) { return __builtin_readsteadycounter(); } // 100 MHz
INLINE void fetch_ahead(const void GLOBAL *p) {}
INLINE u32x4 load16_once(const void GLOBAL *p) { return *(const u32x4 GLOBAL *)p; }
// A tile is a product of 16 rows and 16 tokens over half a block, 16 columns. Lanes hold two words of it, four columns
// each: word j is number tile_word(j) of line (row or token) tile_line(j). They hold 8 elements of the result, and of
// lines what they scale: `rows` and `tokens` that of line scale_row(i) and scale_token(i), for which of_row and
// of_token find the one of element e.
enum { ROW_SCALES = 1, TOKEN_SCALES = 1 };
INLINE uint32_t tile_line(int j) { return thread_id() % 16; }
INLINE uint32_t tile_word(int j) { return thread_id() / 16 % 2 * 2 + (uint32_t)j; }
INLINE uint32_t tile_row(int e) { return thread_id() / 16 % 2 * 8 + (uint32_t)e; }
INLINE uint32_t tile_token(int e) { return thread_id() % 16; }
INLINE uint32_t scale_row(int i) { return thread_id() / 16 % 2 * 8 + thread_id() % 8; }
INLINE uint32_t scale_token(int i) { return thread_id() % 16; }
#define SHARE(e) __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, *rows), 0x150 + e, 15, 15, 1)
INLINE float of_row(const float *rows, int e) { // lanes 0 .. 7 of each half of the wave hold its 8 rows
  switch (e) {
  case 0: return __builtin_bit_cast(float, SHARE(0));
  case 1: return __builtin_bit_cast(float, SHARE(1));
  case 2: return __builtin_bit_cast(float, SHARE(2));
  case 3: return __builtin_bit_cast(float, SHARE(3));
  case 4: return __builtin_bit_cast(float, SHARE(4));
  case 5: return __builtin_bit_cast(float, SHARE(5));
  case 6: return __builtin_bit_cast(float, SHARE(6));
  default: return __builtin_bit_cast(float, SHARE(7));
  }
}
INLINE int of_token(int e) { return 0; }
INLINE int element_of(int i) { return 0; } // an element of that token
INLINE i32x8 wmma_iu8(i32x8 sum, int is_signed, u32x2 w, u32x2 x) { // int8 activations, and int8 or uint8 weights
  typedef int i32x2 __attribute__((ext_vector_type(2)));
  const i32x2 a = __builtin_bit_cast(i32x2, w), b = __builtin_bit_cast(i32x2, x);
  return is_signed ? __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1, a, 1, b, sum, 0)
                   : __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(0, a, 1, b, sum, 0);
}
#else
INLINE uint32_t block_thread(void) { return (uint32_t)__nvvm_read_ptx_sreg_tid_x(); }
INLINE uint32_t thread_id(void) { return block_thread() % THREADS; }
INLINE uint32_t group_id(void) { return (uint32_t)__nvvm_read_ptx_sreg_ctaid_x(); }
INLINE void block_barrier(void) { __asm__ volatile("bar.sync 0;" ::: "memory"); }
#ifdef GR_RESIDENT
INLINE void barrier(void) { __asm__ volatile("bar.sync %0, 256;" ::"r"(1 + block_thread() / THREADS) : "memory"); }
#else
INLINE void barrier(void) { block_barrier(); }
#endif
INLINE uint32_t lane_xor(uint32_t x, int mask) { return (uint32_t)__nvvm_shfl_sync_bfly_i32(-1u, (int)x, mask, 31); }
INLINE uint32_t of_lane(uint32_t x, uint32_t lane) { return (uint32_t)__nvvm_shfl_sync_idx_i32(-1u, (int)x, (int)lane, 31); }
INLINE uint32_t first_lane(uint32_t x) { return x; }
INLINE float settled(float x) {
  __asm__ volatile("" : "+f"(x)::"memory");
  return x;
}
INLINE uint32_t anew(uint32_t x) {
  __asm__ volatile("" : "+r"(x));
  return x;
}
INLINE int32_t dot4(int32_t sum, uint32_t a, uint32_t b) {
  __asm__("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}
INLINE int32_t dot4_us(int32_t sum, uint32_t u, uint32_t b) {
  __asm__("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(u), "r"(b));
  return sum;
}
INLINE void release_device(void) { __asm__ volatile("fence.acq_rel.gpu;" ::: "memory"); }
INLINE void acquire_device(void) { __asm__ volatile("fence.acq_rel.gpu;" ::: "memory"); }
INLINE uint32_t count_up(uint32_t GLOBAL *p) {
  uint32_t old;
  __asm__ volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(p) : "memory");
  return old;
}
INLINE uint32_t peek(uint32_t GLOBAL *p) {
  uint32_t v;
  __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
INLINE void poke(uint32_t GLOBAL *p, uint32_t v) { __asm__ volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
INLINE void arrive(uint32_t GLOBAL *p) { // what the block wrote before the barrier is released with it
  block_barrier();
  if (block_thread() == 0) __asm__ volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}
INLINE void acquire_first(uint32_t GLOBAL *p) { // by the thread that polled, before the block goes on
  uint32_t v;
  __asm__ volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
}
INLINE void acquire_all(void) {}
INLINE void pause_polling(void) {}
INLINE uint64_t clock_now(void) { // nanoseconds
  uint64_t v;
  __asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
  return v;
}
INLINE void fetch_ahead(const void GLOBAL *p) { __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
INLINE u32x4 load16_once(const void GLOBAL *p) { // of what is read once: it does not stay in the first cache
  u32x4 v;
  __asm__("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(p));
  return v;
}
// Tiles as above, two products of 16 rows and 8 tokens each.
enum { ROW_SCALES = 2, TOKEN_SCALES = 4 };
INLINE uint32_t tile_line(int j) { return thread_id() % 32 / 4 + 8 * (uint32_t)j; }
INLINE uint32_t tile_word(int j) { return thread_id() % 4; }
INLINE uint32_t tile_row(int e) { return thread_id() % 32 / 4 + 8 * (uint32_t)(e / 2 % 2); }
INLINE uint32_t tile_token(int e) { return 8 * (uint32_t)(e / 4) + thread_id() % 4 * 2 + (uint32_t)(e % 2); }
INLINE uint32_t scale_row(int i) { return thread_id() % 32 / 4 + 8 * (uint32_t)i; }
INLINE uint32_t scale_token(int i) { return 8 * (uint32_t)(i / 2) + thread_id() % 4 * 2 + (uint32_t)(i % 2); }
INLINE float of_row(const float *rows, int e) { return rows[e / 2 % 2]; }
INLINE int of_token(int e) { return e / 4 * 2 + e % 2; }
INLINE int element_of(int i) { return i / 2 * 4 + i % 2; }
#define MMA(types, at, word)                                                                                           \
  __asm__("mma.sync.aligned.m16n8k16.row.col.s32." types ".s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"           \
          : "+r"(sum[at]), "+r"(sum[at + 1]), "+r"(sum[at + 2]), "+r"(sum[at + 3])                                     \
          : "r"(w[0]), "r"(w[1]), "r"(word))
INLINE i32x8 wmma_iu8(i32x8 total, int is_signed, u32x2 w, u32x2 x) {
  int32_t sum[8];
  for (int e = 0; e < 8; e++) sum[e] = total[e];
  if (is_signed) {
    MMA("s8.s8", 0, x[0]);
    MMA("s8.s8", 4, x[1]);
  } else {
    MMA("u8.s8", 0, x[0]);
    MMA("u8.s8", 4, x[1]);
  }
  for (int e = 0; e < 8; e++) total[e] = sum[e];
  return total;
}
#endif

INLINE uint32_t lane_id(void) { return thread_id() % LANES; }
INLINE uint32_t wave_id(void) { return first_lane(thread_id() / LANES); }
INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
INLINE float float_of(uint32_t x) { return __builtin_bit_cast(float, x); }
INLINE float half_of(uint32_t bits) { return (float)__builtin_bit_cast(half, (uint16_t)bits); }
INLINE uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Rows of a tensor over tokens; strides are in bytes.
#define ROW(p, stride, i) ((__typeof__(p))((uint8_t GLOBAL *)(p) + (size_t)(stride) * (i)))
INLINE u32x4 load16(const void GLOBAL *p) { return *(const u32x4 GLOBAL *)p; }
INLINE u32x2 load8(const void GLOBAL *p) { return *(const u32x2 GLOBAL *)p; }
INLINE uint32_t load4(const void GLOBAL *p) { return *(const uint32_t GLOBAL *)p; }
INLINE uint32_t load2(const void GLOBAL *p) { return *(const uint16_t GLOBAL *)p; }

// Sums of core/order.py, in all lanes: adding in pairs is commutative, so every lane has the bits of lane 0.
INLINE float wave_sum(float x) {
  for (int mask = 16; mask; mask /= 2) x = x + float_of(lane_xor(bits_of(x), mask));
  return x + 0.0f;
}
INLINE float wave_max(float x) {
  for (int mask = 16; mask; mask /= 2) {
    const float other = float_of(lane_xor(bits_of(x), mask));
    x = other > x ? other : x;
  }
  return x;
}
// Each wave's tree, then waves in order from 0, in all threads. Uses the first 8 words of shared memory.
INLINE float group_sum(float x) {
  LDS float *part = (LDS float *)gr_lds;
  x = wave_sum(x);
  barrier();
  if (lane_id() == 0) part[wave_id()] = x;
  barrier();
  float total = 0;
  for (int w = 0; w < WAVES; w++) total = total + part[w];
  return total;
}
// Whether this workgroup is the last of `total` to come here; then everything the others wrote before is seen.
INLINE int last_group(uint32_t GLOBAL *counter, uint32_t total) {
  release_device();
  barrier();
  if (thread_id() == 0) gr_lds[0] = count_up(counter);
  barrier();
  if (gr_lds[0] + 1 != total) return 0;
  acquire_device();
  if (thread_id() == 0) poke(counter, 0);
  return 1;
}

// 1 / sqrt(n) as the nearest f32: one step of Newton's from what f32 gives, right for all n up to 65536.
INLINE float inverse_root(uint32_t n) {
  const float x = (float)n, r = 1.0f / __builtin_sqrtf(x), p = x * r, rest = __builtin_fmaf(x, r, -p);
  return __builtin_fmaf(0.5f * r, __builtin_fmaf(-p, r, 1.0f) - rest * r, r);
}

#define FM_F float
#define FM_I int32_t
#define FM_ALL(x) (x)
#define FM_ALLI(x) (x)
#define FM_BITS(x) ((int32_t)bits_of(x))
#define FM_FLOAT(i) float_of((uint32_t)(i))
#define FM_PICK(condition, a, b) ((condition) ? (a) : (b))
#define FM_NAME(function) function##_f
#define FM_INLINE INLINE
#include "../fmath.h"
