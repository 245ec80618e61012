// One entry for each kernel, and the table by which the host finds them.
#include "attention_many.c"
#include "delta_many.c"
#include "dense.c"
#include "dflash.c"
#include "gemm.c"
#include "gemv.c"
#include "rope.c"
#include "rows.c"
#include "sample.c"

#define KERNEL(name, op, body, lds, when) \
  GR_ENTRY call_##name(const gr_##op GR_CONSTANT *record, uint32_t GLOBAL *scratch) { body(record, (gr_work){group_id(), scratch}); }
#include "table.h"
#undef KERNEL

#define KERNEL(name, op, body, lds, when) {#name, GR_LAYOUT_##op, lds},
GR_CONSTANTS gr_entry GR_GLOBAL gr_table[] = {
#include "table.h"
    {"", 0, 0}};
