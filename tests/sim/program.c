// SOPK, SOPP and what of SOP1 moves the program counter, waits, or talks to the world outside of the wave.
#include "registers.h"
#include "scalar.h"
#include "tables.h"

enum { HW_MODE = 1, HW_SCHED_MODE = 26, HW_CYCLES_LO = 29, HW_CYCLES_HI = 30, GET_REALTIME = 131, WORKGROUP_BARRIER = -1 };

static void set_mode(wave *w, const inst *i, u32 mask, u32 value) { // float rounding and denormals are fixed here
  w->s[MODE_REG] = (w->s[MODE_REG] & ~mask) | (value & mask);
  if ((w->s[MODE_REG] & 0xff) != MODE_AT_LAUNCH) fail(w, i, "float mode 0x%x is not modelled", w->s[MODE_REG] & 0xff);
}

static int hardware_register(wave *w, const inst *i) { // s_getreg, s_setreg: id, first bit and width in the constant
  const u32 id = i->imm & 63, first = i->imm >> 6 & 31, width = (i->imm >> 11 & 31) + 1;
  const u32 mask = (u32)((1ull << width) - 1);
  const u64 clock = sim.count.instructions;
  if (i->op == OP_s_getreg_b32) {
    if (id != HW_MODE && id != HW_CYCLES_LO && id != HW_CYCLES_HI) fail(w, i, "hardware register %u is not modelled", id);
    const u32 value = id == HW_MODE ? w->s[MODE_REG] : id == HW_CYCLES_LO ? (u32)clock : (u32)(clock >> 32);
    write_scalar(w, i->dst, value >> first & mask);
    return 1;
  }
  const u32 value = i->op == OP_s_setreg_b32 ? w->s[i->dst] : i->literal;
  if (id == HW_MODE) set_mode(w, i, mask << first, value << first);
  else if (id != HW_SCHED_MODE) fail(w, i, "hardware register %u is not modelled", id);
  return 1;
}

static int constant_operand(wave *w, const inst *i) { // SOPK
  const u32 old = w->s[i->dst];
  const int64_t sum = (int64_t)(int32_t)old + i->imm;
  switch (i->op) {
  case OP_s_movk_i32: write_scalar(w, i->dst, (u32)i->imm); return 1;
  case OP_s_cmovk_i32:
    if (get_scc(w)) write_scalar(w, i->dst, (u32)i->imm);
    return 1;
  case OP_s_addk_co_i32:
    write_scalar(w, i->dst, (u32)sum);
    set_scc(w, sum != (int32_t)sum);
    return 1;
  case OP_s_mulk_i32: write_scalar(w, i->dst, old * (u32)i->imm); return 1;
  case OP_s_version: return 1;
  case OP_s_getreg_b32: case OP_s_setreg_b32: case OP_s_setreg_imm32_b32: return hardware_register(w, i);
  case OP_s_call_b64:
    write_u64(w, i->dst, w->pc);
    w->pc += 4 * (int64_t)i->imm;
    return 1;
  default: return 0;
  }
}

static int jump(wave *w, const inst *i) { // SOP1
  const u64 target = i->op == OP_s_getpc_b64 ? 0 : read_u64(w, i->src[0]);
  switch (i->op) {
  case OP_s_getpc_b64: write_u64(w, i->dst, w->pc); return 1;
  case OP_s_setpc_b64: w->pc = target; return 1;
  case OP_s_swappc_b64:
    write_u64(w, i->dst, w->pc);
    w->pc = target;
    return 1;
  default: return 0;
  }
}

static int branch(wave *w, const inst *i) {
  int taken;
  switch (i->op) {
  case OP_s_branch: taken = 1; break;
  case OP_s_cbranch_scc0: taken = !get_scc(w); break;
  case OP_s_cbranch_scc1: taken = get_scc(w) != 0; break;
  case OP_s_cbranch_vccz: taken = w->s[VCC] == 0; break;
  case OP_s_cbranch_vccnz: taken = w->s[VCC] != 0; break;
  case OP_s_cbranch_execz: taken = w->exec == 0; break;
  case OP_s_cbranch_execnz: taken = w->exec != 0; break;
  default: return 0;
  }
  if (taken) w->pc += 4 * (int64_t)i->imm;
  return 1;
}

static int wait(wave *w, const inst *i) {
  const u32 left = (u32)i->imm & 63, other = (u32)i->imm >> 8 & 63;
  switch (i->op) {
  case OP_s_wait_loadcnt: wait_until(w, LOAD_COUNTER, left); return 1;
  case OP_s_wait_storecnt: wait_until(w, STORE_COUNTER, left); return 1;
  case OP_s_wait_dscnt: wait_until(w, DS_COUNTER, left); return 1;
  case OP_s_wait_kmcnt: wait_until(w, KM_COUNTER, left); return 1;
  case OP_s_wait_loadcnt_dscnt: wait_until(w, LOAD_COUNTER, other), wait_until(w, DS_COUNTER, left); return 1;
  case OP_s_wait_storecnt_dscnt: wait_until(w, STORE_COUNTER, other), wait_until(w, DS_COUNTER, left); return 1;
  case OP_s_wait_idle:
    for (int counter = LOAD_COUNTER; counter <= STORE_COUNTER; counter++) wait_until(w, counter, 0);
    return 1;
  default: return 0;
  }
}

static int barrier(wave *w, const inst *i) {
  const int number = i->format == SOP1 ? (int)w->s[i->src[0]] : i->imm;
  switch (i->op) {
  case OP_s_barrier_signal: barrier_signal(w, i, number); return 1;
  case OP_s_barrier_signal_isfirst: set_scc(w, barrier_signal(w, i, number)); return 1;
  case OP_s_barrier_wait: barrier_wait(w, i, number); return 1;
  default: return 0;
  }
}

static int message(wave *w, const inst *i) {
  const u64 clock = sim.count.instructions;
  switch (i->op) {
  case OP_s_sendmsg_rtn_b32: case OP_s_sendmsg_rtn_b64:
    if (i->src[0] != GET_REALTIME) fail(w, i, "message %u is not modelled", i->src[0]);
    write_scalar(w, i->dst, (u32)clock);
    if (i->op == OP_s_sendmsg_rtn_b64) write_scalar(w, i->dst + 1, (u32)(clock >> 32));
    scalar_load_issued(w, i, i->dst, i->op == OP_s_sendmsg_rtn_b64 ? 2 : 1);
    return 1;
  case OP_s_sleep: sleep_wave(w, (u32)i->imm & 127); return 1;
  case OP_s_sleep_var: sleep_wave(w, w->s[i->src[0]] & 127); return 1;
  case OP_s_endpgm: w->state = ENDED; return 1;
  case OP_s_denorm_mode: set_mode(w, i, 0xf0, (u32)i->imm << 4); return 1;
  case OP_s_round_mode: set_mode(w, i, 0x0f, (u32)i->imm); return 1;
  default: return 0;
  }
}

// Hints, and waits for counters that nothing here raises.
static int without_effect(const inst *i) {
  switch (i->op) {
  case OP_s_nop: case OP_s_delay_alu: case OP_s_wait_alu: case OP_s_clause: case OP_s_setprio: case OP_s_sendmsg: case OP_s_wakeup:
  case OP_s_icache_inv: case OP_s_wait_event: case OP_s_wait_samplecnt: case OP_s_wait_bvhcnt: case OP_s_wait_expcnt:
  case OP_s_incperflevel: case OP_s_decperflevel: case OP_s_ttracedata: case OP_s_ttracedata_imm: return 1;
  default: return 0;
  }
}

int run_program(wave *w, const inst *i) {
  if (i->format == SOPK) return constant_operand(w, i);
  if (i->format == SOP1) return jump(w, i) || barrier(w, i) || message(w, i);
  return without_effect(i) || branch(w, i) || wait(w, i) || barrier(w, i) || message(w, i);
}
