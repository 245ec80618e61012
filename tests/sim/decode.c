// A dword stream as `inst`: fields of the formats, literals, and the registers that an instruction touches.
#include "registers.h"
#include "tables.h"
#include <string.h>

#define LOOKUP(form, code) ((code) < sizeof form##_OPS / sizeof *form##_OPS ? form##_OPS[code] : OP_NONE)
enum { ZERO = 128, DPP8 = 233, DPP8_FI = 234, DPP16 = 250 };

INLINE u32 bits(u32 word, int high, int low) { return word >> low & (u32)((2ull << (high - low)) - 1); }
INLINE u32 dwords_of(u32 halves) { return (halves + 1) / 2; }

static int has_literal_always(u32 op) {
  return op == OP_v_fmaak_f32 || op == OP_v_fmamk_f32 || op == OP_v_fmaak_f16 || op == OP_v_fmamk_f16 || op == OP_s_fmaak_f32 ||
         op == OP_s_fmamk_f32 || op == OP_s_setreg_imm32_b32;
}

// True if the instruction reads its destination as well.
static int reads_destination(u32 op) {
  switch (op) {
  case OP_v_fmac_f32: case OP_v_fmac_f16: case OP_v_dot2acc_f32_f16: case OP_v_dot2acc_f32_bf16: case OP_v_writelane_b32: case OP_v_swap_b32:
  case OP_v_swap_b16: case OP_v_swaprel_b32: case OP_s_fmac_f32: case OP_s_fmac_f16: case OP_s_addk_co_i32: case OP_s_mulk_i32:
  case OP_s_cmovk_i32: case OP_s_cmov_b32: case OP_s_cmov_b64: case OP_s_setreg_b32: case OP_s_bitset0_b32: case OP_s_bitset1_b32:
  case OP_s_bitset0_b64: case OP_s_bitset1_b64: return 1;
  default: return strstr(OPS[op].name, "_d16") != 0 || strncmp(OPS[op].name, "v_swmmac", 8) == 0;
  }
}

static int implicit_vcc(u32 op) { // 32-bit encodings and VOPD halves that read VCC
  return op == OP_v_cndmask_b32 || op == OP_v_add_co_ci_u32 || op == OP_v_sub_co_ci_u32 || op == OP_v_subrev_co_ci_u32;
}

// The constant after an instruction of n dwords, if a source or the opcode asks for it.
static void take_literal(inst *i, const u32 *w, int n) {
  i->words = (uint8_t)n;
  if (i->src[0] != LITERAL && i->src[1] != LITERAL && i->src[2] != LITERAL && !has_literal_always(i->op)) return;
  i->literal = w[n];
  i->words++;
}

// DPP control words stand where a literal would.
static void take_dpp_or_literal(inst *i, const u32 *w, int n) {
  u32 first = i->src[0];
  if (first != DPP16 && first != DPP8 && first != DPP8_FI) {
    take_literal(i, w, n);
    return;
  }
  i->dpp = first == DPP16 ? 1 : first == DPP8 ? 2 : 3;
  i->dpp_word = w[n];
  i->src[0] = (uint16_t)(256 + bits(w[n], 7, 0));
  i->words = (uint8_t)(n + 1);
  if (i->dpp != 1) return;
  i->neg |= bits(w[n], 20, 20) | bits(w[n], 22, 22) << 1;
  i->abs |= bits(w[n], 21, 21) | bits(w[n], 23, 23) << 1;
}

static void decode_scalar(inst *i, const u32 *w) {
  u32 a = w[0], top = a >> 23;
  i->dst = i->sdst = (uint16_t)bits(a, 22, 16);
  i->imm = (int16_t)a;
  if (top == 0x17d) i->format = SOP1, i->op = LOOKUP(SOP1, bits(a, 15, 8));
  else if (top == 0x17e) i->format = SOPC, i->op = LOOKUP(SOPC, bits(a, 22, 16));
  else if (top == 0x17f) i->format = SOPP, i->op = LOOKUP(SOPP, bits(a, 22, 16));
  else if (a >> 28 == 0xb) i->format = SOPK, i->op = LOOKUP(SOPK, bits(a, 27, 23));
  else i->format = SOP2, i->op = LOOKUP(SOP2, bits(a, 29, 23));
  if (i->format == SOP1 || i->format == SOP2 || i->format == SOPC) i->src[0] = (uint16_t)bits(a, 7, 0);
  if (i->format == SOP2 || i->format == SOPC) i->src[1] = (uint16_t)bits(a, 15, 8);
  take_literal(i, w, 1);
}

// 16-bit operands of 32-bit encodings: bit 7 of the VGPR number says which half.
static void split_halves(inst *i) {
  const op_description *op = &OPS[i->op];
  for (int k = 0; k < 2; k++)
    if (op->src[k] == 1 && i->src[k] >= 256 + 128) i->src[k] -= 128, i->opsel |= 1 << k;
  if (op->dst == 1 && !op->scalar_dst && i->dst >= 128) i->dst -= 128, i->opsel |= 8;
}

static void decode_short_vector(inst *i, const u32 *w) {
  u32 a = w[0];
  i->src[0] = (uint16_t)bits(a, 8, 0);
  i->dst = (uint16_t)bits(a, 24, 17);
  if (a >> 25 == 0x3f) {
    i->format = VOP1, i->op = LOOKUP(VOP1, bits(a, 16, 9));
    if (OPS[i->op].scalar_dst) i->sdst = i->dst;
  } else {
    i->src[1] = (uint16_t)(256 + bits(a, 16, 9));
    if (a >> 25 == 0x3e) i->format = VOPC, i->op = LOOKUP(VOPC, bits(a, 24, 17)), i->dst = 0;
    else i->format = VOP2, i->op = LOOKUP(VOP2, bits(a, 30, 25));
    i->sdst = strncmp(OPS[i->op].name, "v_cmpx", 6) == 0 ? EXEC : VCC;
    if (implicit_vcc(i->op)) i->src[2] = VCC;
  }
  take_dpp_or_literal(i, w, 1);
  split_halves(i);
}

static void decode_long_vector(inst *i, const u32 *w) {
  u32 a = w[0], b = w[1], code = bits(a, 25, 16);
  const int packed = a >> 24 == 0xcc;
  i->format = packed ? VOP3P : LOOKUP(VOP3SD, code) ? VOP3SD : VOP3;
  i->op = packed ? LOOKUP(VOP3P, bits(a, 22, 16)) : i->format == VOP3SD ? VOP3SD_OPS[code] : LOOKUP(VOP3, code);
  const op_description *op = &OPS[i->op];
  i->dst = (uint16_t)bits(a, 7, 0);
  for (int k = 0; k < 3; k++) i->src[k] = op->src[k] ? (uint16_t)bits(b, 9 * k + 8, 9 * k) : k ? ZERO : (uint16_t)bits(b, 8, 0);
  i->clamp = bits(a, 15, 15), i->neg = bits(b, 31, 29);
  if (packed) {
    i->neg_hi = bits(a, 10, 8), i->opsel = bits(a, 13, 11);
    i->opsel_hi = bits(b, 28, 27) | bits(a, 14, 14) << 2;
  } else {
    i->omod = bits(b, 28, 27);
    if (i->format == VOP3SD) i->sdst = (uint16_t)bits(a, 14, 8);
    else i->abs = bits(a, 10, 8), i->opsel = bits(a, 14, 11), i->sdst = op->scalar_dst ? i->dst : 0;
  }
  take_dpp_or_literal(i, w, 2);
}

static void decode_pair(inst *i, const u32 *w) { // VOPD
  u32 a = w[0], b = w[1];
  i->format = VOPD;
  i->op = LOOKUP(VOPD, bits(a, 25, 22));
  i->second.op = LOOKUP(VOPD, bits(a, 21, 17));
  if (!i->second.op) i->op = OP_NONE;
  i->dst = (uint16_t)bits(b, 31, 24);
  i->second.dst = (uint16_t)(bits(b, 23, 17) << 1 | (~i->dst & 1));
  i->src[0] = (uint16_t)bits(a, 8, 0), i->src[1] = (uint16_t)(256 + bits(a, 16, 9));
  i->second.src[0] = (uint16_t)bits(b, 8, 0), i->second.src[1] = (uint16_t)(256 + bits(b, 16, 9));
  i->words = 2;
  if (i->src[0] != LITERAL && i->second.src[0] != LITERAL && !has_literal_always(i->op) && !has_literal_always(i->second.op)) return;
  i->literal = w[2], i->words = 3;
}

static void decode_scalar_memory(inst *i, const u32 *w) {
  i->format = SMEM, i->words = 2;
  i->op = LOOKUP(SMEM, bits(w[0], 18, 13));
  i->src[0] = (uint16_t)(bits(w[0], 5, 0) << 1), i->dst = i->sdst = (uint16_t)bits(w[0], 12, 6);
  i->src[1] = (uint16_t)bits(w[1], 31, 25);
  i->imm = (int32_t)(w[1] << 8) >> 8;
  i->scope = bits(w[0], 22, 21), i->th = bits(w[0], 24, 23);
  i->dwords = (uint8_t)dwords_of(OPS[i->op].dst);
}

static void decode_shared(inst *i, const u32 *w) { // DS
  i->format = DS, i->words = 2;
  i->op = LOOKUP(DS, bits(w[0], 25, 18));
  const op_description *op = &OPS[i->op];
  i->offset0 = bits(w[0], 7, 0), i->offset1 = bits(w[0], 15, 8);
  i->imm = (int32_t)bits(w[0], 15, 0);
  for (int k = 0; k < 3; k++) i->src[k] = (uint16_t)(256 + bits(w[1], 8 * k + 7, 8 * k));
  i->dst = (uint16_t)bits(w[1], 31, 24);
  i->dwords = (uint8_t)dwords_of(op->dst ? op->dst : op->src[1]);
}

static void decode_vector_memory(inst *i, const u32 *w) {
  u32 code = bits(w[0], 21, 14), kind = w[0] >> 24;
  i->format = kind == 0xec ? VFLAT : kind == 0xed ? VSCRATCH : VGLOBAL, i->words = 3;
  i->op = kind == 0xec ? LOOKUP(VFLAT, code) : kind == 0xed ? LOOKUP(VSCRATCH, code) : LOOKUP(VGLOBAL, code);
  const op_description *op = &OPS[i->op];
  i->sdst = (uint16_t)bits(w[0], 6, 0);
  i->dst = (uint16_t)bits(w[1], 7, 0), i->src[1] = (uint16_t)(256 + bits(w[1], 30, 23));
  i->scaled = bits(w[1], 17, 17), i->scope = bits(w[1], 19, 18), i->th = bits(w[1], 22, 20);
  i->src[0] = (uint16_t)(256 + bits(w[2], 7, 0)), i->imm = (int32_t)w[2] >> 8;
  i->dwords = (uint8_t)dwords_of(op->dst ? op->dst : op->src[1]);
}

static void decode_fields(inst *i, const u32 *w) {
  u32 a = w[0];
  if (a >> 31 == 0) decode_short_vector(i, w);
  else if (a >> 30 == 2) decode_scalar(i, w);
  else if (a >> 26 == 0x35 || a >> 24 == 0xcc) decode_long_vector(i, w);
  else if (a >> 26 == 0x32) decode_pair(i, w);
  else if (a >> 26 == 0x3d) decode_scalar_memory(i, w);
  else if (a >> 26 == 0x36) decode_shared(i, w);
  else if (a >> 24 >= 0xec && a >> 24 <= 0xee) decode_vector_memory(i, w);
}

// Registers that are read and written.
static void reads(inst *i, u32 operand, u32 count) {
  if (!count || (operand >= 128 && operand < 256) || operand == NULL_REG) return;
  const int vector = operand >= 256;
  for (int k = 0; k < 6; k++) {
    uint8_t *have = vector ? &i->reads[k].count : &i->scalar_reads[k].count;
    if (*have) continue;
    *have = (uint8_t)count;
    if (vector) i->reads[k].reg = (uint16_t)(operand - 256);
    else i->scalar_reads[k].reg = (uint16_t)operand;
    return;
  }
}

static void list_memory(inst *i, const op_description *op) {
  const int flat = i->format != DS, scratch = i->format == VSCRATCH, atomic = strstr(op->name, "_atomic_") != 0;
  u32 address = dwords_of(op->src[0]);
  if (scratch) address = i->scaled;
  else if (flat && address && i->sdst != NULL_REG) address = 1;
  reads(i, i->src[0], address);
  reads(i, i->src[1], dwords_of(op->src[1]));
  reads(i, i->src[2], i->format == DS ? dwords_of(op->src[2]) : 0);
  if (flat) reads(i, i->sdst, scratch ? 1 : 2);
  if (op->dst && reads_destination(i->op)) reads(i, 256 + i->dst, dwords_of(op->dst));
  i->writes = (uint8_t)(atomic && !(i->th & 1) ? 0 : dwords_of(op->dst));
}

static void list_registers(inst *i) {
  const op_description *op = &OPS[i->op];
  if (i->format == DS || i->format >= VGLOBAL) {
    list_memory(i, op);
    return;
  }
  for (int k = 0; k < 3; k++) reads(i, i->src[k], k == 2 && i->src[2] == VCC ? 1 : dwords_of(op->src[k]));
  if (i->format == VOPD) {
    reads(i, i->second.src[0], 1);
    if (OPS[i->second.op].src[1]) reads(i, i->second.src[1], 1);
    if (reads_destination(i->second.op)) reads(i, 256 + i->second.dst, 1);
    if (implicit_vcc(i->op) || implicit_vcc(i->second.op)) reads(i, VCC, 1);
  }
  if (i->op == OP_v_div_fmas_f32 || i->op == OP_v_div_fmas_f64) reads(i, VCC, 1);
  const int scalar = i->format <= SMEM;
  if (op->dst && reads_destination(i->op)) reads(i, scalar ? i->dst : 256 + i->dst, dwords_of(op->dst));
  if (scalar || op->scalar_dst) i->scalar_writes = (uint8_t)dwords_of(op->dst);
  else i->writes = (uint8_t)dwords_of(op->dst);
  if (i->format == VOPC || i->format == VOP3SD || (i->format == VOP2 && implicit_vcc(i->op) && i->op != OP_v_cndmask_b32)) i->scalar_writes = 1;
}

static int within_registers(const inst *i) {
  for (int k = 0; k < 6; k++)
    if (i->reads[k].reg + i->reads[k].count > 256) return 0;
  return i->dst + i->writes <= 256;
}

void decode(const code *c, u64 offset, inst *out) {
  u32 w[4] = {0};
  u64 left = offset < c->text_end ? c->text_end - offset : 0;
  memset(out, 0, sizeof *out);
  out->at = (u32)offset;
  if (left < 4) return;
  memcpy(w, c->image + offset, left < sizeof w ? left : sizeof w);
  out->src[0] = out->src[1] = out->src[2] = ZERO;
  decode_fields(out, w);
  if (out->op == OP_NONE || out->words * 4ull > left) {
    out->words = 0;
    return;
  }
  list_registers(out);
  if (!within_registers(out)) out->words = 0;
}

const char *op_name(u32 op) { return op < OP_COUNT ? OPS[op].name : "illegal"; }
