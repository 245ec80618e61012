// The kernels that depend on the instruction set, without the others, which would take most of the time to compile.
#include "gemv.c"
#if defined(__AMX_INT8__)
#include "amx.c"
#define MANY(type) gemm_##type
#else
#define MANY(type) gemv_##type
#endif

#define ENTRY(name, run) {name, GR_LAYOUT_gemv, run}
#define PRODUCTS(type) ENTRY("gemv_" #type, gemv_##type), ENTRY("gemv_" #type "_t", MANY(type)), ENTRY("gemm_" #type, MANY(type))
const gr_entry gr_kernels[] = {PRODUCTS(q4_0), PRODUCTS(q4_1), PRODUCTS(q8_0), PRODUCTS(q4_k), PRODUCTS(q6_k), PRODUCTS(i8_a), {0, 0, 0}};
