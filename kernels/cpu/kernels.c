// The kernels, compiled once for each instruction set.
#include "vec.h"

#include "rows.c"
#include "sample.c"

#include "attend.c"
#include "delta.c"
#include "dense.c"
#include "dflash.c"
#include "gemv.c"
#include "rope.c"
#if defined(__AMX_INT8__)
#include "amx.c"
#define MANY(type) gemm_##type
#else
#define MANY(type) gemv_##type
#endif

// Reads memory and does nothing else: the limit that products of one token are measured against.
typedef struct {
  gr_header header;
  const uint8_t *data;
  uint64_t lines; // of 64 bytes
  uint64_t *sums; // one a thread, 64 bytes apart
} gr_read;
static void read_lines(const void *record, gr_worker *w) {
  const gr_read *a = record;
  const gr_range mine = gr_share((uint32_t)a->lines, w);
  i8 sum[2] = {all8i(0), all8i(0)};
  for (uint32_t i = mine.begin; i < mine.end; i++) {
    const uint8_t *line = a->data + 64 * (size_t)i;
    __builtin_prefetch(line + AHEAD, 0, 3);
    sum[0] ^= (i8)load8((const float *)line);
    sum[1] ^= (i8)load8((const float *)(line + 32));
  }
  a->sums[8 * w->thread] = (uint64_t)(uint32_t)(sum[0][0] ^ sum[1][7]);
}

#define ENTRY(name, op, run) {name, GR_LAYOUT_##op, run}
#define PRODUCTS(type, op, many) ENTRY("gemv_" #type, op, gemv_##type), ENTRY("gemv_" #type "_t", op, many), ENTRY("gemm_" #type, op, many)

const gr_entry gr_kernels[] = {
    ENTRY("add", add, add),
    ENTRY("argmax", argmax, argmax),
    ENTRY("attend_block", attend_block, attend_block),
    ENTRY("attn_flash", attend, attend),
    ENTRY("attn_split", attend, attend),
    ENTRY("attn_split_t", attend, attend),
    ENTRY("concat", concat, concat),
    ENTRY("conv_silu", conv_silu, conv_silu),
    ENTRY("delta_chunk", delta_rule, delta_rule),
    ENTRY("delta_layer", delta_layer, delta_layer),
    ENTRY("delta_rule", delta_rule, delta_rule),
    ENTRY("dynamic_conv", dynamic_conv, dynamic_conv),
    ENTRY("embed", embed, embed),
    ENTRY("gated_norm", gated_norm, gated_norm),
    PRODUCTS(f32, gemv_f32, gemv_f32),
    PRODUCTS(i8_a, gemv, MANY(i8_a)),
    PRODUCTS(q4_0, gemv, MANY(q4_0)),
    PRODUCTS(q4_1, gemv, MANY(q4_1)),
    PRODUCTS(q4_k, gemv, MANY(q4_k)),
    PRODUCTS(q6_k, gemv, MANY(q6_k)),
    PRODUCTS(q8_0, gemv, MANY(q8_0)),
    ENTRY("lattice", lattice, lattice),
    ENTRY("mul", mul, mul),
    ENTRY("qk_norm_rope_store", qk_norm_rope_store, qk_norm_rope_store),
    ENTRY("quantize", quantize, quantize),
    {"read", 0, read_lines},
    ENTRY("rms_norm", rms_norm, rms_norm),
    ENTRY("rope", rope, rope),
    ENTRY("rope_store", rope_store, rope_store),
    ENTRY("sigmoid_gate", sigmoid_gate, sigmoid_gate),
    ENTRY("store", store, store),
    ENTRY("store_ring", store_ring, store_ring),
    ENTRY("swiglu", swiglu, swiglu),
    ENTRY("topk", topk, topk),
    {0, 0, 0},
};
