// Records: what one call of a program is to a kernel. A command table is an array of them, 256 bytes each.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Address spaces of what records point to; a device that has them defines these before.
#ifndef GR_GLOBAL
#define GR_GLOBAL
#define GR_CONSTANT
#define GR_MATRIX
#endif

typedef uint16_t gr_half; // bits of an IEEE f16

enum { GR_BARRIER = 1 }; // flag: every record up to this one must have finished before the next starts

// The start of every record; the members of the op's struct follow (ops.h). Strides are in bytes.
typedef struct {
  uint16_t kernel; // index in the kernel table
  uint16_t flags;
  uint32_t groups; // workgroups on devices that have them
  uint32_t call;   // index of the call in its program
  uint32_t zero;
} gr_header;

typedef union {
  gr_header header;
  uint8_t bytes[256];
} gr_record;

enum { GR_F32, GR_Q4_0, GR_Q4_1, GR_Q8_0, GR_Q4_K, GR_Q6_K, GR_I8_A };

// A weight matrix [rows, cols]. On the processor `data` holds panels of 16 rows (cpu/panel.h).
typedef struct {
  uint8_t GR_GLOBAL *data;
  uint8_t GR_GLOBAL *scales; // second buffer of devices that keep scales apart
  uint64_t stride; // bytes from panel to panel
  uint32_t layout;
  uint32_t rows;
  uint32_t cols;
  uint32_t lanes; // how many of the 32 lanes have blocks
  uint8_t lane[32];
  uint8_t merges[32]; // partial sums to add after a lane, see cpu/panel.h
} gr_matrix;
