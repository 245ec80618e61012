// The text of an instruction, for errors and instruction mixes.
#include "registers.h"
#include "tables.h"
#include <stdarg.h>
#include <stdio.h>

typedef struct { char *text; size_t size, length; } writer;

static void put(writer *out, const char *format, ...) {
  va_list a;
  va_start(a, format);
  int n = vsnprintf(out->text + out->length, out->size - out->length, format, a);
  va_end(a);
  size_t left = out->size - out->length - 1;
  out->length += (size_t)n < left ? (size_t)n : left;
}

static void put_group(writer *out, char kind, u32 first, u32 count) { // v3, s[4:7]
  if (count <= 1) put(out, "%c%u", kind, first);
  else put(out, "%c[%u:%u]", kind, first, first + count - 1);
}

static void put_operand(writer *out, const inst *i, u32 n, u32 count) {
  static const char *const floats[9] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"};
  static const char *const special[] = {"src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit"};
  if (n >= 256) put_group(out, 'v', n - 256, count);
  else if (n < VCC) put_group(out, 's', n, count);
  else if (n == VCC) put(out, count > 1 ? "vcc" : "vcc_lo");
  else if (n == VCC + 1) put(out, "vcc_hi");
  else if (n < 124) put(out, count > 1 ? "ttmp[%u:%u]" : "ttmp%u", n - 108, n - 108 + count - 1);
  else if (n == NULL_REG) put(out, "null");
  else if (n == M0) put(out, "m0");
  else if (n == EXEC) put(out, count > 1 ? "exec" : "exec_lo");
  else if (n == EXEC + 1) put(out, "exec_hi");
  else if (n <= 192) put(out, "%u", n - 128);
  else if (n <= 208) put(out, "-%u", n - 192);
  else if (n >= SHARED_BASE && n <= PRIVATE_LIMIT) put(out, "%s", special[n - SHARED_BASE]);
  else if (is_float_constant(n)) put(out, "%s", floats[n - 240]);
  else if (n == LITERAL) put(out, "0x%x", i->literal);
  else put(out, n == SCC ? "src_scc" : "src%u", n);
}

static u32 dwords_at(u32 halves) { return (halves + 1) / 2; }

static void put_source(writer *out, const inst *i, int k) {
  const u32 count = dwords_at(OPS[i->op].src[k]);
  const int packed = i->format == VOP3P;
  const int negative = !packed && i->neg >> k & 1, absolute = !packed && i->abs >> k & 1;
  put(out, "%s%s", negative ? "-" : "", absolute ? "|" : "");
  put_operand(out, i, i->src[k], k == 2 && i->src[k] == VCC ? 1 : count);
  if (absolute) put(out, "|");
}

static void put_modifiers(writer *out, const inst *i) {
  static const char *const output[4] = {"", " mul:2", " mul:4", " div:2"};
  if (i->format == VOP3P && (i->opsel | i->neg | i->neg_hi || (i->opsel_hi & 7) != 7))
    put(out, " op_sel:%u op_sel_hi:%u neg_lo:%u neg_hi:%u", i->opsel, i->opsel_hi, i->neg, i->neg_hi);
  else if (i->opsel) put(out, " op_sel:%u", i->opsel);
  put(out, "%s%s", i->clamp ? " clamp" : "", output[i->omod & 3]);
  if (i->dpp) put(out, " dpp%d:0x%x", i->dpp == 1 ? 16 : 8, i->dpp_word >> 8);
}

static void put_scalar(writer *out, const inst *i) {
  const op_description *op = &OPS[i->op];
  const char *comma = " ";
  if (i->format != SOPC && i->format != SOPP && op->dst) {
    put(out, " ");
    put_operand(out, i, i->dst, dwords_at(op->dst));
    comma = ", ";
  }
  for (int k = 0; k < 3 && i->format != SOPK && i->format != SOPP; k++) {
    if (!op->src[k]) continue;
    put(out, "%s", comma);
    put_source(out, i, k);
    comma = ", ";
  }
  if (i->format == SOPK || (i->format == SOPP && i->imm)) put(out, "%s%d", comma, i->imm);
  if (i->op == OP_s_fmaak_f32 || i->op == OP_s_fmamk_f32 || i->op == OP_s_setreg_imm32_b32) put(out, ", 0x%x", i->literal);
}

static void put_vector(writer *out, const inst *i) {
  const op_description *op = &OPS[i->op];
  const char *comma = " ";
  if (op->scalar_dst || i->format == VOPC) {
    put(out, " ");
    put_operand(out, i, i->sdst, 1);
    comma = ", ";
  } else if (op->dst) {
    put(out, " ");
    put_group(out, 'v', i->dst, dwords_at(op->dst));
    comma = ", ";
  }
  if (i->format == VOP3SD || (i->format == VOP2 && i->src[2] == VCC && i->op != OP_v_cndmask_b32)) {
    put(out, "%s", comma);
    put_operand(out, i, i->sdst, 1);
  }
  for (int k = 0; k < 3; k++) {
    if (!op->src[k]) continue;
    put(out, "%s", comma);
    put_source(out, i, k);
    comma = ", ";
  }
  if (i->op == OP_v_fmaak_f32 || i->op == OP_v_fmamk_f32 || i->op == OP_v_fmaak_f16 || i->op == OP_v_fmamk_f16) put(out, ", 0x%x", i->literal);
  put_modifiers(out, i);
}

static void put_half_pair(writer *out, const inst *i, u32 op, u32 dst, const uint16_t *src) {
  put(out, "v_dual_%s v%u, ", OPS[op].name + 2, dst);
  put_operand(out, i, src[0], 1);
  if (!OPS[op].src[1] || op == OP_v_mov_b32) return;
  put(out, ", ");
  put_operand(out, i, src[1], 1);
  if (op == OP_v_fmaak_f32 || op == OP_v_fmamk_f32) put(out, ", 0x%x", i->literal);
}

static void put_memory(writer *out, const inst *i) {
  const op_description *op = &OPS[i->op];
  const char *comma = " ";
  if (i->writes) {
    put(out, " ");
    put_group(out, 'v', i->dst, i->writes);
    comma = ", ";
  }
  for (int k = 0; k < 3; k++) {
    if (!op->src[k]) continue;
    const int short_address = k == 0 && i->format != DS && i->sdst != NULL_REG;
    put(out, "%s", comma);
    if (i->format == VSCRATCH && k == 0 && !i->scaled) put(out, "off");
    else put_group(out, 'v', i->src[k] - 256u, short_address ? 1 : dwords_at(op->src[k]));
    comma = ", ";
  }
  if (i->format != DS && op->src[0]) {
    put(out, "%s", comma);
    if (i->sdst == NULL_REG) put(out, "off");
    else put_operand(out, i, i->sdst, i->format == VSCRATCH ? 1 : 2);
  }
  if (i->format == DS && strstr(op->name, "2addr")) put(out, " offset0:%u offset1:%u", i->offset0, i->offset1);
  else if (i->imm) put(out, " offset:%d", i->imm);
  if (i->th) put(out, " th:%u", i->th);
  if (i->scope) put(out, " scope:%u", i->scope);
}

static void put_scalar_memory(writer *out, const inst *i) {
  const op_description *op = &OPS[i->op];
  if (op->dst) {
    put(out, " ");
    put_operand(out, i, i->dst, dwords_at(op->dst));
    put(out, ",");
  }
  if (!op->src[0]) return;
  put(out, " ");
  put_operand(out, i, i->src[0], dwords_at(op->src[0]));
  put(out, ", ");
  if (i->src[1] != NULL_REG) put_operand(out, i, i->src[1], 1), put(out, " offset:");
  put(out, "0x%x", (u32)i->imm);
}

int disassemble(const inst *i, char *text, size_t size) {
  writer out = {text, size, 0};
  if (!size) return 0;
  text[0] = 0;
  if (i->format == VOPD) {
    put_half_pair(&out, i, i->op, i->dst, i->src);
    put(&out, " :: ");
    put_half_pair(&out, i, i->second.op, i->second.dst, i->second.src);
    return (int)out.length;
  }
  put(&out, "%s", op_name(i->op));
  if (i->format <= SOPP) put_scalar(&out, i);
  else if (i->format == SMEM) put_scalar_memory(&out, i);
  else if (i->format == DS || i->format >= VGLOBAL) put_memory(&out, i);
  else put_vector(&out, i);
  return (int)out.length;
}
