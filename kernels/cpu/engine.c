// What the processor can do, and weights to panels.
#include "engine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint64_t enabled_state(void) { // what the system saves of the registers
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | (uint64_t)high << 32;
}

// Ask the system for the registers of AMX, which it then gives to all threads of the process.
static int tiles_granted(void) {
#if defined(__linux__)
  enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
  return 0;
#endif
}

// 0 generic, 1 AVX2 with FMA and F16C, 2 and AVX-VNNI, 3 AVX-512 with VNNI, 4 and AMX for tiles of int8.
static int supported(int set) {
  uint32_t a, b, c, d, b7, c7, d7, a71 = 0;
  if (set == 0) return 1;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return 0;
  const uint64_t state = enabled_state();
  const int avx = (state & 6) == 6 && c & 1u << 12 && c & 1u << 29;
  if (!avx || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 & 1u << 5)) return 0;
  if (set == 1) return 1;
  if (set == 2) return __get_cpuid_count(7, 1, &a71, &b, &c, &d) && a71 & 1u << 4;
  const uint32_t wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; // F, DQ, BW, VL
  if ((state & 0xe6) != 0xe6 || (b7 & wanted) != wanted || !(c7 & 1u << 11)) return 0;
  if (set == 3) return 1;
  const uint32_t tiles = 1u << 24 | 1u << 25; // AMX-TILE, AMX-INT8
  return (state & 0x60000) == 0x60000 && (d7 & tiles) == tiles && tiles_granted();
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>

// 0 generic, 1 dot products of bytes, 2 and products of byte matrices.
static int supported(int set) {
  const int dotprod = getauxval(AT_HWCAP) >> 20 & 1, i8mm = getauxval(AT_HWCAP2) >> 13 & 1;
  return set == 0 || (set == 1 && dotprod) || (set == 2 && dotprod && i8mm);
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char *feature) {
  int value = 0;
  size_t size = sizeof value;
  return !sysctlbyname(feature, &value, &size, 0, 0) && value;
}
static int supported(int set) {
  const int dotprod = has("hw.optional.arm.FEAT_DotProd"), i8mm = has("hw.optional.arm.FEAT_I8MM");
  return set == 0 || (set == 1 && dotprod) || (set == 2 && dotprod && i8mm);
}
#else
static int supported(int set) { return set == 0; }
#endif
#else
static int supported(int set) { return set == 0; }
#endif

int gr_supported(int set) { return supported(set); }

void gr_plan_matrix(gr_matrix *m) { gr_plan(m); }

// One row, given as the sections of core/layouts.py: bytes go to their places in the panel.
static void pack_row(const gr_matrix *m, uint32_t row, const uint8_t *const *s) {
  uint8_t *panel = m->data + m->stride * (row / PANEL);
  const uint32_t r = row % PANEL, layout = m->layout, nb = blocks_of(m), words = word_bytes(layout) / 64;
  uint8_t *w = panel + super_bytes(layout) * (nb / 8);
  for (uint32_t i = 0; i < m->lanes; i++)
    for (uint32_t b = m->lane[i]; b < nb; b += LANES, w += block_bytes(layout)) {
      uint8_t *scales = w + word_bytes(layout);
      const uint32_t first = layout == GR_Q6_K ? 4 : words;
      for (uint32_t k = 0; k < first; k++) memcpy(w + 64 * k + 4 * r, s[0] + 4 * ((size_t)first * b + k), 4);
      if (layout == GR_Q4_0 || layout == GR_Q8_0) memcpy(scales + 2 * r, s[1] + 2 * b, 2);
      if (layout == GR_Q4_1)
        for (uint32_t k = 0; k < 2; k++) memcpy(scales + 32 * k + 2 * r, s[1] + 4 * b + 2 * k, 2);
      if (layout == GR_I8_A)
        for (uint32_t k = 0; k < 4; k++) memcpy(scales + 64 * k + 4 * r, s[1] + 16 * b + 4 * k, 4);
      if (layout == GR_Q4_K) {
        for (uint32_t k = 0; k < 2; k++) scales[16 * k + r] = s[1][2 * b + k];
        for (uint32_t k = 0; b % 8 == 0 && k < 2; k++) memcpy(panel + 64 * (b / 8) + 32 * k + 2 * r, s[2] + 4 * (b / 8) + 2 * k, 2);
      }
      if (layout == GR_Q6_K) {
        for (uint32_t k = 0; k < 2; k++) memcpy(w + 256 + 64 * k + 4 * r, s[1] + 8 * b + 4 * k, 4);
        for (uint32_t k = 0; k < 2; k++) scales[16 * k + r] = s[2][2 * b + k];
        if (b % 8 == 0) memcpy(panel + 32 * (b / 8) + 2 * r, s[3] + 2 * (b / 8), 2);
      }
    }
}

void gr_pack(const gr_matrix *m, uint32_t row, uint32_t rows, const uint8_t *const *sections, const uint64_t *widths) {
  const uint8_t *s[4] = {sections[0], sections[1], sections[2], sections[3]};
  for (uint32_t r = row; r < row + rows; r++) {
    pack_row(m, r, s);
    for (int k = 0; k < 4; k++) s[k] += widths[k];
  }
}
