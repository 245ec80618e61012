// A program without a C library for 64-bit ARM under Linux: it reads memory with records in it from its input, runs
// them, and writes what its processor supports, one byte for each instruction set, and then the memory.
#include "engine.c"
#include KERNELS

typedef struct {
  uint64_t bytes, pointers, records, count, threads; // `records` is an offset into the memory of `bytes`
} job;
typedef struct {
  uint64_t at, target; // offsets of a pointer and of what it points to
} pointer;

static long system_call(long number, long a, long b, long c, long d, long e) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
enum { READ = 63, WRITE = 64, EXIT = 93, MMAP = 222 };

static void quit(int status) {
  for (;;) system_call(EXIT, status, 0, 0, 0, 0);
}
static void transfer(long number, void *data, size_t bytes) {
  for (char *p = data; bytes;) {
    const long done = system_call(number, number == WRITE, (long)p, (long)bytes, 0, 0);
    if (done <= 0) quit(2);
    p += done, bytes -= (size_t)done;
  }
}
static void *pages(size_t bytes) { // readable, writable; private and of no file
  const long address = system_call(MMAP, 0, (long)bytes, 3, 0x22, -1);
  if (address < 0) quit(3);
  return (void *)address;
}

// What kernels and the engine take from a C library.
void *aligned_alloc(size_t alignment, size_t bytes) { return alignment <= 4096 ? pages(bytes) : 0; }
void free(void *memory) { (void)memory; }
void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  for (volatile uint8_t *a = to; bytes; bytes--) *a++ = *(const uint8_t *)from, from = (const uint8_t *)from + 1;
  return to;
}
void *memset(void *to, int value, size_t bytes) {
  for (volatile uint8_t *a = to; bytes; bytes--) *a++ = (uint8_t)value;
  return to;
}
static const uint64_t *auxiliary;
unsigned long getauxval(unsigned long type) {
  for (const uint64_t *a = auxiliary; *a; a += 2)
    if (*a == type) return a[1];
  return 0;
}

static void run(const job *j, char *memory) {
  const gr_record *r = (const gr_record *)(memory + j->records);
  for (uint64_t i = 0; i < j->count; i++)
    for (uint32_t t = 0; t < j->threads; t++) {
      gr_worker worker = {t, (uint32_t)j->threads, 0, 0, 0};
      gr_kernels[r[i].header.kernel].run(&r[i], &worker);
    }
}

__attribute__((used)) static void begin(const uint64_t *stack) {
  const uint64_t *environment = stack + 2 + stack[0];
  while (*environment) environment++;
  auxiliary = environment + 1;
  uint8_t supports[3];
  for (int set = 0; set < 3; set++) supports[set] = (uint8_t)gr_supported(set);
  job j;
  transfer(READ, &j, sizeof j);
  const size_t listed = sizeof(pointer) * j.pointers;
  pointer *p = pages(listed + 1);
  char *memory = pages(j.bytes + 1);
  transfer(READ, p, listed);
  transfer(READ, memory, j.bytes);
  for (uint64_t i = 0; i < j.pointers; i++) *(uint64_t *)(memory + p[i].at) = (uint64_t)(memory + p[i].target);
  run(&j, memory);
  transfer(WRITE, supports, sizeof supports);
  transfer(WRITE, memory, j.bytes);
  quit(0);
}
__asm__(".globl _start\n_start:\n  mov x0, sp\n  bl begin\n");
