// The AMX tile instructions in C, for tests on processors without them: their arithmetic and their checks, not their
// speed. Included by the immintrin.h of this folder, with -D__AMX_TILE__ -D__AMX_INT8__.
#pragma once
#include <stdint.h>
#include <string.h>

#define SLOW static __attribute__((noinline)) // compiled once, not wherever kernels are unrolled

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} emulated_config; // 64 bytes, as the processor reads them

typedef struct {
  emulated_config config;
  uint8_t tile[8][16][64];
} emulated_tiles;

static _Thread_local emulated_tiles emulated_state;

// Where the processor would raise #UD or #GP.
SLOW void emulated_check(int ok) {
  if (!ok) __builtin_trap();
}
SLOW void emulated_tile_check(int t) {
  const emulated_config *c = &emulated_state.config;
  emulated_check(t >= 0 && t < 8 && c->palette == 1 && c->rows[t] && c->row_bytes[t]);
}

SLOW void emulated_tile_release(void) { memset(&emulated_state, 0, sizeof emulated_state); }

SLOW void emulated_tile_loadconfig(const void *memory) {
  emulated_tile_release();
  emulated_config c;
  memcpy(&c, memory, sizeof c);
  emulated_check(c.palette <= 1 && c.start_row == 0);
  for (int i = 0; i < 14; i++) emulated_check(!c.reserved[i]);
  for (int t = 0; t < 16 && c.palette; t++) {
    emulated_check(c.rows[t] <= (t < 8 ? 16 : 0) && c.row_bytes[t] <= (t < 8 ? 64 : 0));
    emulated_check(!c.rows[t] == !c.row_bytes[t]);
  }
  if (c.palette) emulated_state.config = c;
}
SLOW void emulated_tile_storeconfig(void *memory) { memcpy(memory, &emulated_state.config, 64); }

SLOW void emulated_tile_zero(int t) {
  emulated_tile_check(t);
  memset(emulated_state.tile[t], 0, sizeof emulated_state.tile[t]);
}
SLOW void emulated_tile_loadd(int t, const void *base, int64_t stride) {
  emulated_tile_zero(t); // what lies outside the configured size is zero
  for (int r = 0; r < emulated_state.config.rows[t]; r++)
    memcpy(emulated_state.tile[t][r], (const char *)base + stride * r, emulated_state.config.row_bytes[t]);
}
SLOW void emulated_tile_stored(int t, void *base, int64_t stride) {
  emulated_tile_check(t);
  for (int r = 0; r < emulated_state.config.rows[t]; r++)
    memcpy((char *)base + stride * r, emulated_state.tile[t][r], emulated_state.config.row_bytes[t]);
}

// sum[m][n] += dot of the four bytes a[m][k] with b[k][n] for every k, modulo 2^32.
SLOW void emulated_tile_dot(int sum, int a, int b, int a_signed, int b_signed) {
  const emulated_config *c = &emulated_state.config;
  emulated_tile_check(sum), emulated_tile_check(a), emulated_tile_check(b);
  emulated_check(sum != a && sum != b && a != b);
  emulated_check(c->rows[sum] == c->rows[a] && c->row_bytes[sum] == c->row_bytes[b]);
  emulated_check(c->row_bytes[a] == 4 * c->rows[b] && c->row_bytes[b] % 4 == 0);
  for (int m = 0; m < c->rows[sum]; m++)
    for (int n = 0; n < c->row_bytes[sum] / 4; n++) {
      uint32_t total;
      memcpy(&total, emulated_state.tile[sum][m] + 4 * n, 4);
      for (int k = 0; k < c->row_bytes[a]; k++) {
        const uint8_t x = emulated_state.tile[a][m][k], y = emulated_state.tile[b][k / 4][4 * n + k % 4];
        total += (uint32_t)((a_signed ? (int8_t)x : (int)x) * (b_signed ? (int8_t)y : (int)y));
      }
      memcpy(emulated_state.tile[sum][m] + 4 * n, &total, 4);
    }
}

#undef _tile_loadconfig
#undef _tile_storeconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#define _tile_loadconfig emulated_tile_loadconfig
#define _tile_storeconfig emulated_tile_storeconfig
#define _tile_release emulated_tile_release
#define _tile_zero emulated_tile_zero
#define _tile_loadd emulated_tile_loadd
#define _tile_stream_loadd emulated_tile_loadd
#define _tile_stored emulated_tile_stored
#define _tile_dpbssd(sum, a, b) emulated_tile_dot(sum, a, b, 1, 1)
#define _tile_dpbsud(sum, a, b) emulated_tile_dot(sum, a, b, 1, 0)
#define _tile_dpbusd(sum, a, b) emulated_tile_dot(sum, a, b, 0, 1)
#define _tile_dpbuud(sum, a, b) emulated_tile_dot(sum, a, b, 0, 0)
