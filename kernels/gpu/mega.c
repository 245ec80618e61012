// A whole step in one launch: blocks that stay run the calls of a program, with a barrier of all blocks after each segment.
//
// A barrier is in two halves. Between arriving and waiting a block reads the next call and the first weights it needs,
// which depend on nothing that was computed. A wait that takes too long ends the launch and says where.
#include "attention.c"
#include "delta_rule.c"
#include "dense.c"
#include "dflash.c"
#include "late.h"
#include "rope.c"
#include "rows.c"
#include "sample.c"

#ifdef GR_FEW
enum { GROUP_LDS = 16384 }; // bytes of shared memory of a workgroup
#else
enum { GROUP_LDS = COLUMNS_LDS };
#endif
enum { ENDS = 1, WAITS = 2, PRODUCT = 4, LATE = 8 }; // last and first call of a segment; rows by waves; finished by products
enum { KEPT, PLAIN, NORMED, GATED, SIGMOID, ROUNDED, MERGED, DELTA }; // activations: still there, copied, made from `maker`
enum { ARRIVED = 0, FAILED = 64, WHERE = 65, ABSENT = 66, REACHED = 128 }; // words of the state, as backends/mega.py says

// A call as it is run: backends/mega.py packs these.
typedef struct {
  uint16_t kernel, flags;
  uint32_t groups;      // workgroups, or rows that a wave has at a time
  uint32_t first;       // the workgroup (of a product the wave) that begins with number 0
  uint32_t before;      // of a product: what makes its activations
  uint64_t words, scales;
  uint32_t rows, nb;
  uint32_t barriers;    // passed before this call
  uint32_t zero;
  gr_record call, maker;
} gr_stage;
enum { STAGE_WORDS = sizeof(gr_stage) / 4 };

// What all of a block's threads know.
typedef struct {
  const gr_stage GLOBAL *table;
  uint32_t GLOBAL *scratch, *state;
  uint64_t GLOBAL *trace;
  uint32_t calls, blocks, base, polls; // base: arrivals before this launch
  uint32_t block, absent, pos;
} resident;

// Functions that are called keep their registers apart, and find what they need in shared memory; where everything is
// one function, it lies in registers. Calls come through shared memory where records lie there, two of them at a time.
#if defined(__NVPTX__)
typedef const resident LDS *here;
typedef const gr_stage LDS *stage;
enum { STAGES = 2 * STAGE_WORDS, HERE = sizeof(resident) / 4 };
#else
typedef const resident *here;
typedef const gr_stage GR_CONSTANT *stage;
enum { STAGES = 0, HERE = 0 };
#endif
enum { FRONT = (STAGES + HERE + 4) / 4 * 4 }; // words before the workgroups' shared memory; the last: whether to go on
#define GO_ON gr_block_lds[FRONT - 1]
INLINE LDS uint32_t *group_lds(void) { return gr_block_lds + FRONT + block_thread() / THREADS * (GROUP_LDS / 4); }
INLINE LDS uint8_t *activations(void) { return (LDS uint8_t *)(gr_block_lds + FRONT + BESIDE * (GROUP_LDS / 4)); }
#if defined(__NVPTX__)
INLINE stage stage_of(here r, uint32_t call) { return (stage)(gr_block_lds + call % 2 * STAGE_WORDS); }
INLINE uint32_t fetch_stage(here r, uint32_t call) {
  const uint32_t i = block_thread();
  return i < STAGE_WORDS && call < r->calls ? ((const uint32_t GLOBAL *)(r->table + call))[i] : 0;
}
INLINE void put_stage(uint32_t call, uint32_t word) {
  if (block_thread() < STAGE_WORDS) gr_block_lds[call % 2 * STAGE_WORDS + block_thread()] = word;
}
INLINE here settle(const resident *r) {
  resident LDS *shared = (resident LDS *)(gr_block_lds + STAGES);
  if (block_thread() == 0) *shared = *r;
  block_barrier();
  return shared;
}
#else
INLINE stage stage_of(here r, uint32_t call) { return (stage)(uintptr_t)(r->table + call); }
INLINE uint32_t fetch_stage(here r, uint32_t call) { return 0; }
INLINE void put_stage(uint32_t call, uint32_t word) {}
INLINE here settle(const resident *r) { return r; }
#endif

INLINE void give_up(here r, uint32_t call, uint32_t barriers) {
  if (count_up(r->state + FAILED) == 0) poke(r->state + WHERE, call);
  poke(r->state + REACHED + r->block, barriers);
}
// Whether all blocks have arrived at the last barrier. Memory that they wrote is seen then.
INLINE int wait_for_all(here r, uint32_t call, uint32_t barriers) {
  if (block_thread() == 0) {
    const uint32_t wanted = r->base + r->blocks * barriers;
    uint32_t left = r->polls;
    while ((int32_t)(peek(r->state + ARRIVED) - wanted) < 0 && left) {
      pause_polling();
      left--;
    }
    acquire_first(r->state + ARRIVED);
    if (!left) give_up(r, call, barriers);
    GO_ON = left != 0;
  }
  block_barrier();
  const int go_on = first_lane(GO_ON) != 0;
  acquire_all();
  return go_on;
}
INLINE void note(here r, uint32_t call, uint32_t which) {
  if (r->trace && block_thread() == 0) r->trace[2 * ((size_t)r->block * r->calls + call) + which] = clock_now();
}
// Before a call reads what calls before it wrote: 0 to end the launch.
INLINE int begin(here r, uint32_t call, stage s) {
  if (s->flags & WAITS && !wait_for_all(r, call, s->barriers)) return 0;
  note(r, call, 0);
  return 1;
}
INLINE void end(here r, uint32_t call, stage s) {
  note(r, call, 1);
  if (!(s->flags & ENDS)) block_barrier();
  else arrive(r->state + ARRIVED);
}

INLINE void make_activations(here r, stage s) {
  LDS uint8_t *x = activations();
  const uint32_t nb = s->nb;
  switch (s->before) {
  case KEPT: return;
  case NORMED: norm_line(x, (const gr_rms_norm GR_CONSTANT *)&s->maker, nb); break;
  case GATED: gated_line(x, (const gr_swiglu GR_CONSTANT *)&s->maker, nb); break;
  case SIGMOID: sigmoid_line(x, (const gr_sigmoid_gate GR_CONSTANT *)&s->maker, nb); break;
  case MERGED: {
    const gr_attend GR_CONSTANT *a = (const gr_attend GR_CONSTANT *)&s->maker;
    if (splits_of(r->pos) <= LATE_SPLITS) merge_line(x, a, r->scratch, splits_of(r->pos), nb);
    else copy_line(x, ((const gr_gemv GR_CONSTANT *)&s->call)->x, nb);
    break;
  }
  case DELTA:
    delta_line(x, (const gr_delta_layer GR_CONSTANT *)&s->maker, r->scratch, (LDS float *)(gr_block_lds + FRONT), nb);
    break;
  case ROUNDED: rounded_line(x, (const gr_quantize GR_CONSTANT *)&s->maker, nb); break;
  default: copy_line(x, ((const gr_gemv GR_CONSTANT *)&s->call)->x, nb);
  }
  block_barrier();
}
// Layouts with the rows that a wave has at a time; kernels of products are numbered as twice the layout, and 1 more for
// that many rows instead of one.
#define FOR_LAYOUTS(X)                                                                                                 \
  X(2 * GR_Q4_0, GR_Q4_0, 1) X(2 * GR_Q4_0 + 1, GR_Q4_0, 4) X(2 * GR_Q4_1, GR_Q4_1, 1) X(2 * GR_Q4_1 + 1, GR_Q4_1, 4)  \
  X(2 * GR_Q4_K, GR_Q4_K, 1) X(2 * GR_Q4_K + 1, GR_Q4_K, 4) X(2 * GR_Q8_0, GR_Q8_0, 1) X(2 * GR_Q8_0 + 1, GR_Q8_0, 2)  \
  X(2 * GR_Q6_K, GR_Q6_K, 1) X(2 * GR_Q6_K + 1, GR_Q6_K, 2) X(2 * GR_I8_A, GR_I8_A, 1) X(2 * GR_I8_A + 1, GR_I8_A, 2)

// Waves take rows in turn, those of different blocks first, so that all blocks have as many.
APART int run_product(here r, uint32_t call, stage s) {
  const weights m = {(const uint8_t GLOBAL *)s->words, (const uint8_t GLOBAL *)s->scales, (size_t)s->rows * s->nb, s->rows, s->nb};
  const uint32_t waves = r->blocks * (BLOCK / LANES), wave = block_thread() / LANES * r->blocks + r->block, first = s->first;
  const uint32_t number = first_lane(wave >= first ? wave - first : wave + waves - first), kernel = s->kernel;
  const gr_gemv GR_CONSTANT *a = (const gr_gemv GR_CONSTANT *)&s->call;
  walk far = {0, 0, 0};
  switch (kernel) {
#define FETCH(at, layout, R) case at: far = fetch_first(layout, R, &m, (walk){R * number, 0, R * waves}); break;
    FOR_LAYOUTS(FETCH)
  }
  if (s->before == NORMED) fetch_ahead(((const gr_rms_norm GR_CONSTANT *)&s->maker)->w + 4 * block_thread());
  if (!begin(r, call, s)) return 0;
  make_activations(r, s);
  switch (kernel) {
#define MULTIPLY(at, layout, R)                                                                                        \
  case at: multiply_rows(layout, R, a, &m, activations(), (walk){R * number, 0, R * waves}, far); break;
    FOR_LAYOUTS(MULTIPLY)
  }
  return 1;
}

// Workgroups in turn, from the one that the call before left.
INLINE uint32_t first_group(here r, uint32_t first) {
  const uint32_t groups = BESIDE * r->blocks, group = block_thread() / THREADS * r->blocks + r->block;
  return first_lane(group >= first ? group - first : group + groups - first);
}
#define RUN(name, op, body)                                                                                            \
  APART void run_##name(here r, stage s, uint32_t first) {                                                          \
    for (uint32_t g = first; g < s->groups; g += BESIDE * r->blocks) {                                                 \
      barrier();                                                                                                       \
      body((const gr_##op GR_CONSTANT *)&s->call, (gr_work){g, r->scratch});                                           \
    }                                                                                                                  \
  }
#define CASE(name) case KERNEL_##name: run_##name(r, s, first_group(r, s->first)); break;
#define RUN_ONE RUN
#define CASE_ONE CASE
#ifdef GR_FEW
#define RUN_FEW RUN
#define CASE_FEW CASE
#else
#define RUN_FEW(name, op, body)
#define CASE_FEW(name)
#endif
#define RUN_LINE(name, op, body)
#define CASE_LINE(name)
#define RUN_MANY(name, op, body)
#define CASE_MANY(name)
#define KERNEL(name, op, body, lds, when) RUN_##when(name, op, body)
#include "table.h"
#undef KERNEL
#define KERNEL(name, op, body, lds, when) KERNEL_##name,
enum {
#include "table.h"
};
#undef KERNEL
INLINE void run_groups(here r, stage s) {
  switch (s->kernel) {
#define KERNEL(name, op, body, lds, when) CASE_##when(name)
#include "table.h"
#undef KERNEL
  default: break; // nothing but its barrier
  }
}

#ifndef GR_FEW
APART void run_parts(here r, stage s, uint32_t first) {
  const gr_attend GR_CONSTANT *a = (const gr_attend GR_CONSTANT *)&s->call;
  for (uint32_t g = first; g < a->H * splits_of(r->pos); g += BESIDE * r->blocks) {
    barrier();
    part_of_split(a, (gr_work){g, r->scratch}, r->pos);
  }
}
APART void run_columns(here r, stage s, uint32_t first) {
  const gr_delta_layer GR_CONSTANT *a = (const gr_delta_layer GR_CONSTANT *)&s->call;
  for (uint32_t g = first; g < a->U * (a->D / LANES); g += BESIDE * r->blocks) {
    barrier();
    delta_columns(a, (gr_work){g, r->scratch});
  }
}
// Calls that products finish; 0 for a long context, whose attention has its own end.
INLINE int run_late(here r, stage s) {
  const uint32_t first = first_group(r, s->first);
  if (s->kernel == KERNEL_delta_layer) run_columns(r, s, first);
  else if (splits_of(r->pos) > LATE_SPLITS) return 0;
  else run_parts(r, s, first);
  return 1;
}
#endif
INLINE int run(here r, uint32_t call, stage s) {
#ifndef GR_FEW
  if (s->flags & PRODUCT) return run_product(r, call, s);
#endif
#ifndef GR_FEW
  if (s->flags & LATE && s->kernel == KERNEL_delta_layer) fetch_columns((const gr_delta_layer GR_CONSTANT *)&s->call, first_group(r, s->first));
#endif
  if (!begin(r, call, s)) return 0;
#ifndef GR_FEW
  if (s->flags & LATE && run_late(r, s)) return 1;
#endif
  run_groups(r, s);
  return 1;
}

// `sizes`: calls, blocks; `limits`: arrivals before this launch, polls of a wait at most; `pos`: of the step's first token.
GR_ENTRY mega(const gr_stage GLOBAL *table, uint32_t GLOBAL *scratch, uint32_t GLOBAL *state, uint64_t GLOBAL *trace, uint64_t sizes, uint64_t limits, uint64_t pos) {
  resident all = {table, scratch, state, trace, (uint32_t)sizes, (uint32_t)(sizes >> 32), (uint32_t)limits, (uint32_t)(limits >> 32), group_id(), 0, (uint32_t)pos};
  all.absent = first_lane(peek(state + ABSENT)) == all.block + 1;
  const here r = settle(&all);
  put_stage(0, fetch_stage(r, 0));
  block_barrier();
  const uint32_t calls = r->calls;
  for (uint32_t call = 0; call < calls; call++) {
    const stage s = stage_of(r, call);
    const uint32_t next = fetch_stage(r, call + 1);
    if (!run(r, call, s)) return;
    put_stage(call + 1, next);
    if (r->absent) return;
    end(r, call, s);
  }
}

GR_CONSTANTS uint32_t GR_GLOBAL mega_sizes[] = {BLOCK, 4 * FRONT + BESIDE * GROUP_LDS, sizeof(gr_stage), BLOCK / LANES};
enum { WHEN_ONE, WHEN_FEW, WHEN_LINE, WHEN_MANY };
#define KERNEL(name, op, body, lds, when) {#name, GR_LAYOUT_##op, WHEN_##when},
GR_CONSTANTS gr_entry GR_GLOBAL mega_table[] = {
#include "table.h"
    {"", 0, 0}};
