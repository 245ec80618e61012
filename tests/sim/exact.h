// Sums of doubles without error, and their one rounding to a shorter format.
#pragma once
#include "floats.h"

enum { TERMS = 40 };
typedef struct { double part[TERMS]; int n; } exact_sum; // parts that do not overlap, small ones first

// Adds x to a sum (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997: grow expansion).
INLINE void exact_add(exact_sum *s, double x) {
  int kept = 0;
  for (int k = 0; k < s->n; k++) {
    const double total = x + s->part[k], virtual = total - x, error = (x - (total - virtual)) + (s->part[k] - virtual);
    if (error != 0) s->part[kept++] = error;
    x = total;
  }
  s->part[kept++] = x;
  s->n = kept;
}

// `near` moved so that its last bit is odd if it is not the exact value near + rest: a shorter format then rounds correctly.
INLINE double rounded_to_odd(double near, double rest) {
  u64 bits = as_u64(near);
  if ((rest > 0 || rest < 0) && !(bits & 1)) bits += (rest > 0) == (near > 0) ? 1 : -1ull;
  return as_double(bits);
}
INLINE double exact_value(const exact_sum *s) { // to odd
  return s->n > 1 ? rounded_to_odd(s->part[s->n - 1], s->part[s->n - 2]) : s->n ? s->part[0] : 0;
}
INLINE double sum_to_odd(double a, double b) {
  const double total = a + b, virtual = total - a;
  return rounded_to_odd(total, (a - (total - virtual)) + (b - virtual));
}
