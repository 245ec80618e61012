// libamdhip64.so: modules, launches, streams and events. A launch has ended when its function returns.
#include "hip.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARGUMENT_ALIGNMENT = 256, LARGEST_ARGUMENTS = 4096, OTHER_BYTES = 0xee };
enum { EXTRA_END = 3, EXTRA_POINTER = 1, EXTRA_SIZE = 2, MOST_EXTRA = 8 }; // HIP_LAUNCH_PARAM_*

void remember_error(const char *kernel_name);

API hipError_t hipModuleLoadData(module **out, const void *image) {
  if (!out || !image) return result(hipErrorInvalidValue);
  enter();
  switch (load_code_object(image, out)) {
  case LOADED: return leave(hipSuccess);
  case OTHER_CHIP: return leave(hipErrorNoBinaryForGpu);
  default: return leave(hipErrorInvalidImage);
  }
}

API hipError_t hipModuleUnload(module *m) {
  if (!m) return result(hipErrorInvalidHandle);
  enter();
  unload_code_object(m);
  return leave(hipSuccess);
}

API hipError_t hipModuleGetFunction(kernel **out, module *m, const char *name) {
  if (!m) return result(hipErrorInvalidHandle);
  if (!out || !name) return result(hipErrorInvalidValue);
  for (u32 n = 0; n < m->kernel_count; n++) {
    if (strcmp(m->kernels[n].name, name)) continue;
    *out = &m->kernels[n];
    return result(hipSuccess);
  }
  return result(hipErrorNotFound);
}

enum { FUNCTION_MOST_THREADS, FUNCTION_LDS, FUNCTION_CONSTANTS, FUNCTION_SCRATCH, FUNCTION_VGPRS }; // hipFuncAttribute
API hipError_t hipFuncGetAttribute(int *value, int attribute, const kernel *k) {
  if (!k) return result(hipErrorInvalidHandle);
  if (!value) return result(hipErrorInvalidValue);
  switch (attribute) {
  case FUNCTION_MOST_THREADS: *value = (int)k->most_threads; break;
  case FUNCTION_LDS: *value = (int)k->lds_bytes; break;
  case FUNCTION_CONSTANTS: *value = 0; break;
  case FUNCTION_SCRATCH: *value = (int)k->scratch_bytes; break;
  case FUNCTION_VGPRS: *value = (int)k->vgprs; break;
  default: return result(hipErrorInvalidValue);
  }
  return result(hipSuccess);
}

API hipError_t hipModuleGetGlobal(void **address, size_t *bytes, module *m, const char *name) {
  variable v;
  if (!m) return result(hipErrorInvalidHandle);
  if (!find_variable(m, name, &v)) return result(hipErrorNotFound);
  if (address) *address = (void *)v.address;
  if (bytes) *bytes = v.bytes;
  return result(hipSuccess);
}

static u32 resident_groups(const kernel *k, u32 threads, u64 lds) { // on one WGP
  const u32 waves = (threads + LANES - 1) / LANES, vgprs = (k->vgprs + VGPR_GRANULE - 1) / VGPR_GRANULE * VGPR_GRANULE;
  const u32 a_simd = VGPRS_A_SIMD / vgprs < WAVES_A_SIMD ? VGPRS_A_SIMD / vgprs : WAVES_A_SIMD;
  u64 groups = a_simd * SIMDS / waves;
  const u64 taken = (lds + LDS_GRANULE - 1) / LDS_GRANULE * LDS_GRANULE;
  if (taken && LDS_A_WGP / taken < groups) groups = LDS_A_WGP / taken;
  return (u32)(groups < GROUPS_A_WGP ? groups : GROUPS_A_WGP);
}

API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *out, kernel *k, int threads, size_t lds) {
  if (!k) return result(hipErrorInvalidHandle);
  if (!out || threads < 1) return result(hipErrorInvalidValue);
  *out = (int)resident_groups(k, (u32)threads, k->lds_bytes + lds);
  return result(hipSuccess);
}

static int packed_arguments(const kernel *k, void **extra, uint8_t *to) { // a list of names and values
  const void *from = 0;
  size_t bytes = k->argument_bytes;
  for (int n = 0; (u64)extra[n] != EXTRA_END; n += 2) {
    if (n >= MOST_EXTRA) return 0;
    if ((u64)extra[n] == EXTRA_POINTER) from = extra[n + 1];
    else if ((u64)extra[n] == EXTRA_SIZE) bytes = *(const size_t *)extra[n + 1];
    else return 0;
  }
  if (!from && bytes) return 0;
  memcpy(to, from, bytes < k->argument_bytes ? bytes : k->argument_bytes);
  return 1;
}

static void single_arguments(const kernel *k, void **values, uint8_t *to) {
  for (u32 n = 0; n < k->argument_count; n++) memcpy(to + k->arguments[n].offset, values[n], k->arguments[n].bytes);
}

static int fits(const kernel *k, const launch *l) {
  u64 threads = 1;
  for (int n = 0; n < 3; n++) {
    if (!l->grid[n] || !l->block[n] || l->block[n] > MOST_THREADS) return 0;
    threads *= l->block[n];
  }
  return l->grid[1] < 65536 && l->grid[2] < 65536 && threads <= MOST_THREADS && threads <= k->most_threads && l->lds_bytes <= LDS_A_GROUP;
}

static hipError_t run_checked(const kernel *k, launch *l, void **values, void **extra) {
  const u32 threads = l->block[0] * l->block[1] * l->block[2], room = (k->argument_bytes / ARGUMENT_ALIGNMENT + 1) * ARGUMENT_ALIGNMENT;
  uint8_t *const arguments = aligned_alloc(ARGUMENT_ALIGNMENT, room);
  if (!arguments) return hipErrorOutOfMemory;
  memset(arguments, OTHER_BYTES, room);
  if (values) single_arguments(k, values, arguments);
  const int whole = values || !k->argument_bytes || (extra && packed_arguments(k, extra, arguments));
  hipError_t error = whole ? hipSuccess : hipErrorInvalidValue;
  if (l->cooperative && (u64)l->grid[0] * l->grid[1] * l->grid[2] > (u64)WGPS * resident_groups(k, threads, l->lds_bytes))
    error = hipErrorCooperativeLaunchTooLarge;
  if (!error) {
    l->arguments = arguments;
    allocation_add((u64)arguments, (u64)arguments + room);
    if (run_launch(l)) remember_error(k->name), error = hipErrorIllegalAddress;
    allocation_remove((u64)arguments);
  }
  free(arguments);
  return error;
}

static hipError_t start(const kernel *k, launch l, void **values, void **extra) {
  if (!k) return result(hipErrorInvalidHandle);
  if (!l.grid[0]) return result(hipErrorInvalidValue);
  l.code = &k->home->code, l.entry = k->entry;
  l.argument_bytes = k->argument_bytes;
  if (l.lds_bytes > LDS_A_GROUP || k->argument_bytes > LARGEST_ARGUMENTS) return result(hipErrorInvalidValue);
  l.lds_bytes += k->lds_bytes;
  l.scratch_bytes = k->scratch_bytes, l.vgprs = k->vgprs, l.rsrc2 = k->rsrc2, l.properties = k->properties;
  if (!fits(k, &l)) return result(hipErrorInvalidValue);
  enter();
  return leave(run_checked(k, &l, values, extra));
}

API hipError_t hipModuleLaunchKernel(kernel *k, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream, void **values, void **extra) {
  (void)stream;
  return start(k, (launch){.grid = {gx, gy, gz}, .block = {bx, by, bz}, .lds_bytes = lds}, values, extra);
}

API hipError_t hipModuleLaunchCooperativeKernel(kernel *k, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream, void **values) {
  (void)stream;
  return start(k, (launch){.grid = {gx, gy, gz}, .block = {bx, by, bz}, .lds_bytes = lds, .cooperative = 1}, values, 0);
}

static hipError_t create(void **out, size_t bytes) {
  if (!out) return result(hipErrorInvalidValue);
  *out = calloc(1, bytes);
  return result(*out ? hipSuccess : hipErrorOutOfMemory);
}
static hipError_t destroy(void *made) {
  free(made);
  return result(made ? hipSuccess : hipErrorInvalidHandle);
}

API hipError_t hipStreamCreate(void **out) { return create(out, 1); }
API hipError_t hipStreamCreateWithFlags(void **out, u32 flags) { return (void)flags, create(out, 1); }
API hipError_t hipStreamDestroy(void *stream) { return destroy(stream); }
API hipError_t hipStreamSynchronize(void *stream) { return (void)stream, result(hipSuccess); }
API hipError_t hipStreamQuery(void *stream) { return (void)stream, result(hipSuccess); }
API hipError_t hipStreamWaitEvent(void *stream, void *event, u32 flags) { return (void)stream, (void)event, (void)flags, result(hipSuccess); }

API hipError_t hipEventCreate(void **out) { return create(out, sizeof(struct timespec)); }
API hipError_t hipEventCreateWithFlags(void **out, u32 flags) { return (void)flags, hipEventCreate(out); }
API hipError_t hipEventDestroy(void *event) { return destroy(event); }
API hipError_t hipEventSynchronize(void *event) { return result(event ? hipSuccess : hipErrorInvalidHandle); }
API hipError_t hipEventQuery(void *event) { return result(event ? hipSuccess : hipErrorInvalidHandle); }
API hipError_t hipEventRecord(struct timespec *event, void *stream) {
  (void)stream;
  if (!event) return result(hipErrorInvalidHandle);
  clock_gettime(CLOCK_MONOTONIC, event);
  return result(hipSuccess);
}
API hipError_t hipEventElapsedTime(float *milliseconds, const struct timespec *begin, const struct timespec *end) {
  if (!begin || !end) return result(hipErrorInvalidHandle);
  *milliseconds = (float)(end->tv_sec - begin->tv_sec) * 1e3f + (float)(end->tv_nsec - begin->tv_nsec) * 1e-6f;
  return result(hipSuccess);
}
