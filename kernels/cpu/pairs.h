// Dot products of AVX2 without VNNI, whose byte products are added in pairs of 16 bits, for some vectors of a block.
#pragma once

enum { WIDE = 1 }; // lines of q8_0 and i8_a of several tokens are followed by one of q as 16 bits: 0, 2, 1, 3, 4, 6, ...

INLINE void dot_nibbles(uint32_t layout, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) { // 16 bits hold 8 pairs of 15 * 127
    vi u[V];
    for (int v = 0; v < some.n; v++) u[v] = columns(layout, w, some.first + v, k);
    for (int t = 0; t < N; t++) {
      const vi q = all_q(x[t].q + 4 * k);
      for (int v = 0; v < some.n; v++) {
        dot[t][v][0] = k ? add16(dot[t][v][0], pairs(u[v], q)) : pairs(u[v], q);
        PIN(dot[t][v][0]);
      }
    }
  }
  for (int t = 0; t < N; t++)
    for (int v = 0; v < some.n; v++) dot[t][v][0] = widen(dot[t][v][0]);
}

INLINE void dot_sixes(uint32_t from, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
#pragma GCC unroll 4
  for (int k = 0; k < 8; k += 2) { // 16 bits hold 2 pairs of 63 * 127
    vi u[V][2];
    for (int v = 0; v < some.n; v++)
      for (int i = 0; i < 2; i++) u[v][i] = columns(from, w, some.first + v, k + i);
    for (int t = 0; t < N; t++) {
      const vi q0 = all_q(x[t].q + 4 * k), q1 = all_q(x[t].q + 4 * k + 4);
      for (int v = 0; v < some.n; v++) {
        const vi p = widen(add16(pairs(u[v][0], q0), pairs(u[v][1], q1)));
        dot[t][v][k / 4] = k % 4 ? add_i(dot[t][v][k / 4], p) : p;
        PIN(dot[t][v][k / 4]);
      }
    }
  }
}

// One token: |w| by q with the sign of w, |sum| <= 2 * 128 * 127.
INLINE void dot_signed(uint32_t layout, vectors some, const uint8_t *w, const line *x, vi (*dot)[2]) {
  const int half = in_halves(layout) ? 4 : 8;
  for (int v = 0; v < some.n; v++)
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      const vi u = columns(layout, w, some.first + v, k), p = widen(pairs(absolute(u), with_sign(all_q(x->q + 4 * k), u)));
      dot[v][k / half] = k % half ? add_i(dot[v][k / half], p) : p;
    }
}

// Several: w as 16 bits is shared by tokens.
INLINE void dot_wide(uint32_t layout, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
  const int half = in_halves(layout) ? 8 : 16;
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++) {
    vi u[V];
    for (int v = 0; v < some.n; v++) u[v] = k % 2 ? odd16(columns(layout, w, some.first + v, k / 2)) : even16(columns(layout, w, some.first + v, k / 2));
    for (int t = 0; t < N; t++) {
      const vi q = all_q((const int8_t *)(x + 2 * t + 1) + 4 * k);
      for (int v = 0; v < some.n; v++) {
        dot[t][v][k / half] = k % half ? add_i(dot[t][v][k / half], products(u[v], q)) : products(u[v], q);
        PIN(dot[t][v][k / half]);
      }
    }
  }
}

INLINE void dot_block(uint32_t layout, uint32_t from, int N, vectors some, const uint8_t *w, const line *x, vi (*dot)[V][2]) {
  if (layout == GR_Q6_K) dot_sixes(from, N, some, w, x, dot);
  else if (in_bytes(layout) && N == 1) dot_signed(layout, some, w, x, dot[0]);
  else if (in_bytes(layout)) dot_wide(layout, N, some, w, x, dot);
  else dot_nibbles(layout, N, some, w, x, dot);
}
