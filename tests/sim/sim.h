// gfx1201 machine code on a processor: what the parts of the simulator share.
//
//   decode.c    a dword stream as `inst`            (tables.h: opcodes by format, read off a disassembler)
//   scalar.c    SOP1, SOP2, SOPC, SOPK, SOPP, VINTERP-free scalar float
//   vector.c    VOP1, VOP2, VOPC, VOP3, VOP3SD, VOPD, DPP, with float modifiers
//   matrix.c    VOP3P: packed arithmetic, dot products, WMMA
//   memory.c    VGLOBAL, VFLAT, VSCRATCH, SMEM, atomics, through `view` of the allocation table
//   shared.c    DS: LDS loads, stores, permutes, race and initialisation checks
//   waits.c     counters of loads in flight, and registers that are not there yet
//   weak.c      store buffers and stale caches
//   between.c   stores of a workgroup that others use too early
//   run.c       waves, workgroups, barriers, the scheduler, a launch
//   hip.c       the functions of libamdhip64 that the package hip-python calls
//   report.c    error text, counters
#pragma once
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default"))) // for Python; the rest is hidden

enum { LANES = 32, ROW = 16 };
typedef uint32_t u32;
typedef uint64_t u64;
typedef u32 vec __attribute__((vector_size(128)));       // a VGPR
typedef int32_t ivec __attribute__((vector_size(128)));
typedef float fvec __attribute__((vector_size(128)));

typedef enum {
  FMT_NONE, SOP1, SOP2, SOPC, SOPK, SOPP, SMEM, VOP1, VOP2, VOPC, VOP3, VOP3SD, VOP3P, VOPD, DS, VGLOBAL, VFLAT, VSCRATCH
} format;

// Operands are numbered as in the encoding: 0..105 SGPRs, 106 VCC, 124 null, 125 M0, 126 EXEC, 128.. inline constants,
// 253 SCC, 255 a literal, 256 + n VGPR n. A vector destination `dst` is n itself. Sources that an opcode has not are 128 (0).
typedef struct {
  uint16_t op, dst, sdst; // sdst: second (scalar) destination; of memory instructions the scalar address
  uint16_t src[3];
  uint8_t format, words;  // size in dwords
  uint8_t neg, abs, opsel, opsel_hi, neg_hi, omod, clamp;
  uint8_t dpp;            // 0 none, 1 DPP16, 2 DPP8, 3 DPP8 with FI
  uint8_t scope, th, offset0, offset1, dwords, scaled; // memory: dwords of data, vaddr of scratch is used
  u32 literal, dpp_word;
  int32_t imm;            // SOPK, SOPP, and memory offsets
  u32 at;                 // byte offset in the code
  struct { uint16_t op, dst, src[2]; } second; // of VOPD
  // Registers for the check of waits, count 0 ends a list. VGPRs are numbered from 0 here.
  struct { uint16_t reg; uint8_t count; } reads[6], scalar_reads[6];
  uint8_t writes;         // VGPRs from dst on; 0 if the destination is scalar (then sdst names it, of SOP* too)
  uint8_t scalar_writes;  // SGPRs from sdst on
} inst;

typedef struct code { // a loaded code object
  const uint8_t *image;
  u64 base, size, text_begin, text_end; // in bytes; base is where the image's byte 0 stands in device addresses
  inst *decoded;          // one for each dword of .text, filled on demand (words == 0: not yet)
  void *metadata;         // hip.c's
} code;

typedef enum { RUNNING, AT_BARRIER, SLEEPING, ENDED, FAILED } wave_state;

typedef struct { u32 loads, ds, km, stores; } in_flight; // what the s_wait_* counters count
struct group;
typedef struct wave {     // aligned as a vec is: malloc does not do that
  vec exec_lanes;         // all ones where EXEC is set
  vec *v;                 // VGPRs
  u32 exec, s[512];       // s[128..248] hold the inline constants, s[253] SCC, s[255] the literal of the instruction
  u64 pc;                 // device address; while an instruction runs, of the next one
  const code *code;
  struct group *group;
  wave_state state;
  uint16_t id, vgprs;
  uint8_t *scratch;
  u32 scratch_bytes;      // a lane
  u64 wake;               // scheduler tick at which a sleeper runs on
  in_flight flight;
  void *waits, *stores;   // waits.c's, weak.c's
} wave;

typedef struct group {
  wave *waves;
  uint16_t count, arrived, ended;
  uint8_t *lds;
  u32 lds_bytes, epoch, id[3];
  u64 acquired;           // between.c's: when it last acquired what others stored
  void *lds_shadow, *caches; // shared.c's, weak.c's
} group;

typedef struct {
  const code *code;
  u64 entry;              // byte offset of the first instruction
  u32 grid[3], block[3];  // workgroups, threads
  const void *arguments;
  u32 argument_bytes, lds_bytes, scratch_bytes, vgprs, rsrc2, properties;
  int cooperative;        // all workgroups are resident at once
} launch;

typedef enum {
  CHECK_BOUNDS = 1, CHECK_WAITS = 2, CHECK_LDS = 4, COUNT = 8, RANDOM_ORDER = 16, WEAK_MEMORY = 32, PERTURB = 64, POISON = 128,
  CHECK_GROUPS = 256
} option;

// One line for each of COUNTERS in report.c; u64 members only.
typedef struct {
  u64 instructions, salu, valu, vopd, trans, dot4, wmma, smem, vmem_load, vmem_store, atomics, lds, branches, barriers, waits;
  u64 lines, needed_lines; // 128-byte lines touched by vector memory, and the fewest that hold as many bytes
  u64 load_bytes, store_bytes, bank_conflicts, stale_reads;
} counters;

typedef struct {
  u32 options;
  u64 seed;
  u64 limit;              // wave instructions of a launch before it counts as hung; 0: none
  counters count;
  char error[2048];       // of the first failure, "" if none
} simulator;
extern simulator sim;

// decode.c
void decode(const code *c, u64 offset, inst *out); // words == 0 if it is no instruction
API const char *op_name(u32 op);
int disassemble(const inst *i, char *text, size_t size); // as LLVM prints it, without comments

// each format's instructions; they advance nothing (the caller has set w->pc to the next one) and fail by `fail`
void run_scalar(wave *w, const inst *i);   // branches set w->pc to the target
void run_vector(wave *w, const inst *i);
void run_matrix(wave *w, const inst *i);
void run_memory(wave *w, const inst *i);
void run_scalar_memory(wave *w, const inst *i);
void run_shared(wave *w, const inst *i);

// registers, in registers.h: read_vec(w, operand), write_vec(w, dst, value), read_u64, write_scalar, set_exec ...

// memory.c: device memory is host memory at the same address, if an allocation covers it
int allocated(u64 address, u64 bytes);
API void allocation_add(u64 begin, u64 end);
API int allocation_remove(u64 begin);

// waits.c
enum { LOAD_COUNTER, DS_COUNTER, KM_COUNTER, STORE_COUNTER }; // `counter` below
void load_issued(wave *w, int counter, const inst *i, u32 vgpr, u32 count);
void scalar_load_issued(wave *w, const inst *i, u32 sgpr, u32 count);
void store_issued(wave *w, const inst *i);
void wait_until(wave *w, int counter, u32 left); // s_wait_*
void check_reads(wave *w, const inst *i);         // before the instruction runs

// shared.c
void lds_epoch(group *g);                         // a workgroup barrier was passed
// weak.c
void weak_store(wave *w, u64 address, const void *data, u32 bytes);
void weak_load(wave *w, u64 address, void *data, u32 bytes, u32 scope);
void drain_stores(wave *w, u32 left);
void invalidate(wave *w, u32 scope);
u64 random_number(void);

// run.c
int run_launch(const launch *l);                  // 0, or -1 with sim.error set
void made_progress(void);                         // memory has changed, waves have met, or one has ended
int barrier_signal(wave *w, const inst *i, int barrier); // of scalar.c's s_barrier_signal; true if it is the first to arrive
void barrier_wait(wave *w, const inst *i, int barrier);
void sleep_wave(wave *w, u32 ticks);              // s_sleep: the state, and when to wake
// report.c
void fail(wave *w, const inst *i, const char *format, ...) __attribute__((format(printf, 3, 4)));
