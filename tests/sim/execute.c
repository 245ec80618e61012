// Runs a wave: fetches instructions from the cache of decoded ones and hands them to their format's file.
#include "run.h"
#include "tables.h"

const inst *next_instruction(wave *w) {
  const code *c = w->code;
  const u64 offset = w->pc - c->base;
  if (offset < c->text_begin || offset >= c->text_end || offset % 4) {
    fail(w, 0, "the program counter 0x%llx is not in the code", (unsigned long long)w->pc);
    return 0;
  }
  inst *const i = &c->decoded[(offset - c->text_begin) / 4];
  if (i->words) return i;
  decode(c, offset, i);
  if (i->words) return i;
  fail(w, 0, "code+0x%llx is no instruction of gfx1201", (unsigned long long)offset);
  return 0;
}

INLINE void execute(wave *w, const inst *i) {
  switch (i->format) {
  case SOP1: case SOP2: case SOPC: case SOPK: case SOPP: run_scalar(w, i); break;
  case SMEM: run_scalar_memory(w, i); break;
  case VOP3P: run_matrix(w, i); break;
  case DS: run_shared(w, i); break;
  case VGLOBAL: case VFLAT: case VSCRATCH: run_memory(w, i); break;
  default: run_vector(w, i);
  }
}

// Of when the hardware may issue what; a quarter of all code.
INLINE int is_hint(u32 op) { return op == OP_s_delay_alu || op == OP_s_wait_alu || op == OP_s_clause || op == OP_s_nop; }

static void count_program(u32 op) { // SOPP
  switch (op) {
  case OP_s_branch: case OP_s_cbranch_scc0: case OP_s_cbranch_scc1: case OP_s_cbranch_vccz: case OP_s_cbranch_vccnz:
  case OP_s_cbranch_execz: case OP_s_cbranch_execnz: sim.count.branches++; break;
  case OP_s_wait_loadcnt: case OP_s_wait_storecnt: case OP_s_wait_dscnt: case OP_s_wait_kmcnt: case OP_s_wait_loadcnt_dscnt:
  case OP_s_wait_storecnt_dscnt: case OP_s_wait_idle: sim.count.waits++; break;
  }
}

static void count(const inst *i) { // memory, matrix and barrier instructions are counted where they run
  switch (i->format) {
  case SOP1: case SOP2: case SOPC: case SOPK: sim.count.salu++; break;
  case SOPP: count_program(i->op); break;
  case SMEM: case DS: case VGLOBAL: case VFLAT: case VSCRATCH: break;
  default: sim.count.valu++;
  }
}

void run_wave(wave *w, u64 instructions) {
  for (u64 n = 0; n < instructions && w->state == RUNNING; n++) {
    const inst *i = next_instruction(w);
    if (!i) return;
    w->pc += 4 * (u64)i->words;
    sim.count.instructions++;
    if (i->format == SOPP && is_hint(i->op)) continue;
    if (sim.options & CHECK_WAITS) check_reads(w, i);
    if (w->state == FAILED) return;
    begin_instruction(w, i);
    execute(w, i);
    if (sim.options & COUNT) count(i);
  }
}
