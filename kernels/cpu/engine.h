// What Python calls.
#pragma once
#include "panel.h"

typedef struct gr_pool gr_pool;

// Whether this processor runs an instruction set, by its number in SETS of backends/build.py.
int gr_supported(int set);

// Fill in stride and lane order of a matrix whose layout, rows and cols are set.
void gr_plan_matrix(gr_matrix *matrix);
// Rows [row, row + rows) from their sections, `widths` bytes a row each.
void gr_pack(const gr_matrix *matrix, uint32_t row, uint32_t rows, const uint8_t *const *sections, const uint64_t *widths);

// `threads` count the caller's; null where memory or threads run out.
gr_pool *gr_pool_new(uint32_t threads, const gr_entry *table);
void gr_pool_free(gr_pool *pool);
// Run a command table with every thread; not 0 where memory ran out.
int gr_pool_run(gr_pool *pool, const gr_record *records, uint32_t count);
