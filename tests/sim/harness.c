// Runs a few instructions on given registers, for tests that compare them with a model.
#include "registers.h"
#include "tables.h"
#include <stdlib.h>

enum { STEPS = 100000 };

// The state before and after. simulator.py has the same as a ctypes structure.
typedef struct {
  u32 s[256];          // by operand number: 106 VCC, 125 M0, 126 EXEC, 253 SCC; constants are put in
  u32 v[256][LANES];
  uint8_t lds[65536];
  u32 lds_bytes, mode, scratch_bytes, steps;
  char error[2048];
} machine;

static void execute(wave *w, const inst *i) {
  switch (i->format) {
  case SOP1: case SOP2: case SOPC: case SOPK: case SOPP: run_scalar(w, i); break;
  case SMEM: run_scalar_memory(w, i); break;
  case VOP3P: run_matrix(w, i); break;
  case DS: run_shared(w, i); break;
  case VGLOBAL: case VFLAT: case VSCRATCH: run_memory(w, i); break;
  default: run_vector(w, i);
  }
}

static void load_state(wave *w, const machine *m) {
  init_scalars(w);
  for (int n = 0; n < 128; n++) w->s[n] = n == NULL_REG ? 0 : m->s[n];
  w->s[SCC] = m->s[SCC] != 0;
  w->s[MODE_REG] = m->mode ? m->mode : MODE_AT_LAUNCH;
  set_exec(w, m->s[EXEC]);
  memcpy(w->v, m->v, sizeof m->v);
}

static void store_state(const wave *w, machine *m) {
  memcpy(m->s, w->s, 128 * sizeof *m->s);
  m->s[SCC] = w->s[SCC];
  m->mode = w->s[MODE_REG];
  memcpy(m->v, w->v, sizeof m->v);
}

// Runs `size` bytes of code until it ends or s_endpgm; 0, or -1 with m->error set.
API int run_one(const void *text, u64 size, machine *m) {
  code c = {.image = text, .base = (u64)text, .size = size, .text_end = size};
  wave *w = memset(aligned_alloc(sizeof(vec), sizeof *w), 0, sizeof *w);
  group g = {.waves = w, .count = 1, .lds = m->lds, .lds_bytes = m->lds_bytes};
  w->v = aligned_alloc(sizeof(vec), 256 * sizeof(vec));
  w->code = &c, w->group = &g, w->vgprs = 256;
  w->scratch_bytes = m->scratch_bytes, w->scratch = calloc(LANES, m->scratch_bytes + 1);
  sim.error[0] = 0;
  load_state(w, m);
  w->pc = c.base;
  for (m->steps = 0; m->steps < STEPS && w->state == RUNNING && w->pc >= c.base && w->pc < c.base + size && !sim.error[0]; m->steps++) {
    inst i;
    decode(&c, w->pc - c.base, &i);
    if (!i.words) {
      fail(w, &i, "no instruction of gfx1201");
      break;
    }
    w->pc += 4 * i.words;
    begin_instruction(w, &i);
    execute(w, &i);
  }
  store_state(w, m);
  memcpy(m->error, sim.error, sizeof m->error);
  free(w->scratch), free(w->v), free(w);
  return m->error[0] ? -1 : 0;
}

// Decodes the instruction at `offset` and prints it; its size in bytes, 0 if it is none.
API int decode_text(const void *text, u64 size, u64 offset, inst *i, char *line, u64 line_size) {
  code c = {.image = text, .base = (u64)text, .size = size, .text_end = size};
  decode(&c, offset, i);
  line[0] = 0;
  if (i->words) disassemble(i, line, line_size);
  return 4 * i->words;
}
