// matrix.c: v_wmma_*.
#pragma once
#include "lanes.h"
int run_wmma(wave *w, const inst *i); // 0 if the opcode is none of these
