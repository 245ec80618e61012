// libamdhip64.so: memory. A device address is the host's; each allocation ends near a page that nobody can touch.
#include "hip.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGNMENT = 256, POISONED = 0xff }; // floats of POISONED bytes are no numbers
enum { HostToHost, HostToDevice, DeviceToHost, DeviceToDevice, Default };

typedef struct block {
  u64 begin, bytes;
  void *mapping;
  size_t mapped;
  int host;
  struct block *next;
} block;

static block *blocks;
enum { GONE = 1024 };
static struct { void *mapping; size_t mapped; } gone[GONE]; // the last that were given back
static u32 gone_count;
static u64 used, total = MEMORY_BYTES;

u64 memory_bytes(void) { return total; }
u64 memory_used(void) { return used; }
API void sim_memory(u64 bytes) { // how much the card has
  enter();
  total = bytes;
  leave(hipSuccess);
}

static block *map_block(size_t bytes) {
  const u64 body = (bytes + PAGE - 1) / PAGE * PAGE;
  block *b = calloc(1, sizeof *b);
  if (!b) return 0;
  b->mapped = body + 2 * PAGE;
  b->mapping = mmap(0, b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (b->mapping == MAP_FAILED || mprotect((uint8_t *)b->mapping + PAGE, body, PROT_READ | PROT_WRITE)) {
    free(b);
    return 0;
  }
  b->bytes = bytes;
  b->begin = (u64)b->mapping + PAGE + (body - bytes) / ALIGNMENT * ALIGNMENT;
  return b;
}

static hipError_t allocate(void **out, size_t bytes, int host) {
  if (!out) return hipErrorInvalidValue;
  *out = 0;
  if (!bytes) return hipSuccess;
  if (!host && (used > total || bytes > total - used)) return hipErrorOutOfMemory;
  block *b = map_block(bytes);
  if (!b) return hipErrorOutOfMemory;
  if (sim.options & POISON && !host) memset((void *)b->begin, POISONED, bytes);
  b->host = host;
  b->next = blocks, blocks = b;
  if (!host) used += bytes;
  if (!host) allocation_add(b->begin, b->begin + bytes); // kernels get at the card's own memory alone
  *out = (void *)b->begin;
  return hipSuccess;
}

// An address that was given back leads nowhere for some time, so that its use is seen.
static void give_back(const block *b) {
  const u32 n = gone_count++ % GONE;
  if (gone[n].mapped) munmap(gone[n].mapping, gone[n].mapped);
  gone[n].mapped = 0;
  if (mmap(b->mapping, b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) return;
  gone[n].mapping = b->mapping, gone[n].mapped = b->mapped;
}

static hipError_t release(void *address, int host) {
  block **at = &blocks;
  if (!address) return hipSuccess;
  while (*at && (*at)->begin != (u64)address) at = &(*at)->next;
  if (!*at || (*at)->host != host) return hipErrorInvalidValue;
  block *const b = *at;
  *at = b->next;
  if (!host) used -= b->bytes, allocation_remove(b->begin);
  give_back(b);
  free(b);
  return hipSuccess;
}

API hipError_t hipMalloc(void **out, size_t bytes) { return enter(), leave(allocate(out, bytes, 0)); }
API hipError_t hipFree(void *address) { return enter(), leave(release(address, 0)); }
API hipError_t hipHostMalloc(void **out, size_t bytes, u32 flags) { return (void)flags, enter(), leave(allocate(out, bytes, 1)); }
API hipError_t hipHostFree(void *address) { return enter(), leave(release(address, 1)); }

// Is one end of a copy what its kind says: all in an allocation of the card, or outside of them?
static int stands_on(const void *address, size_t bytes, int device) {
  return device ? allocated((u64)address, bytes) : !allocated((u64)address, 1);
}

static hipError_t copy(void *to, const void *from, size_t bytes, int kind) {
  if (kind < HostToHost || kind > Default) return hipErrorInvalidValue;
  if (!bytes) return hipSuccess;
  const int to_device = kind == Default ? allocated((u64)to, 1) : kind == HostToDevice || kind == DeviceToDevice;
  const int from_device = kind == Default ? allocated((u64)from, 1) : kind == DeviceToHost || kind == DeviceToDevice;
  if (!to || !from || !stands_on(to, bytes, to_device) || !stands_on(from, bytes, from_device)) return hipErrorInvalidValue;
  memmove(to, from, bytes);
  return hipSuccess;
}

API hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind) { return enter(), leave(copy(to, from, bytes, kind)); }
API hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  return (void)stream, hipMemcpy(to, from, bytes, kind);
}
API hipError_t hipMemcpyHtoD(void *to, const void *from, size_t bytes) { return hipMemcpy(to, from, bytes, HostToDevice); }
API hipError_t hipMemcpyDtoH(void *to, void *from, size_t bytes) { return hipMemcpy(to, from, bytes, DeviceToHost); }
API hipError_t hipMemcpyDtoD(void *to, void *from, size_t bytes) { return hipMemcpy(to, from, bytes, DeviceToDevice); }
API hipError_t hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, void *stream) { return (void)stream, hipMemcpyHtoD(to, from, bytes); }
API hipError_t hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, void *stream) { return (void)stream, hipMemcpyDtoH(to, from, bytes); }
API hipError_t hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, void *stream) { return (void)stream, hipMemcpyDtoD(to, from, bytes); }

API hipError_t hipMemset(void *to, int value, size_t bytes) {
  enter();
  if (bytes && !allocated((u64)to, bytes)) return leave(hipErrorInvalidValue);
  if (bytes) memset(to, value, bytes);
  return leave(hipSuccess);
}
API hipError_t hipMemsetAsync(void *to, int value, size_t bytes, void *stream) { return (void)stream, hipMemset(to, value, bytes); }
