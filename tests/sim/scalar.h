// Parts of run_scalar; each is true if it knows the opcode.
#pragma once
#include "sim.h"

int run_scalar_float(wave *w, const inst *i, u32 a, u32 b);   // scalar_float.c: values of the two sources
int run_scalar_compare(wave *w, const inst *i, u32 a, u32 b);
int run_program(wave *w, const inst *i);                      // program.c: SOPK, SOPP, jumps, messages, barriers
