// The functions of core/fmath.py, step by step: products and sums are rounded one by one and never fused.
//
// Included once for a number type of a device. Before, define FM_F (f32, or a vector of them), FM_I (i32 of that
// shape), FM_ALL(x) and FM_ALLI(x) (one number in every place), FM_BITS(x) and FM_FLOAT(i) (the same bits as the other
// type), FM_PICK(condition, a, b), FM_NAME(function) and FM_INLINE.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

FM_INLINE FM_F FM_NAME(exp)(FM_F x) {
  const FM_F whole = FM_ALL(12582912.0f);
  x = FM_PICK(x < FM_ALL(-104.0f), FM_ALL(-104.0f), x);
  x = FM_PICK(x > FM_ALL(89.0f), FM_ALL(89.0f), x);
  const FM_F shifted = x * FM_ALL(0x1.715476p+0f) + whole, n = shifted - whole;
  FM_F r = x - n * FM_ALL(355.0f / 512);
  r = r - n * FM_ALL(-0x1.bd0106p-13f);
  FM_F p = r * FM_ALL(0x1.a151bcp-13f);
  p = (p + FM_ALL(0x1.6d4366p-10f)) * r;
  p = (p + FM_ALL(0x1.1110c6p-7f)) * r;
  p = (p + FM_ALL(0x1.5554e8p-5f)) * r;
  p = (p + FM_ALL(0x1.555556p-3f)) * r;
  p = (p + FM_ALL(0.5f)) * (r * r);
  p = p + r + FM_ALL(1.0f);
  const FM_I exponent = FM_BITS(shifted) - FM_BITS(whole), half = exponent >> 1; // in two steps, for subnormal results
  p = p * FM_FLOAT((half + FM_ALLI(127)) << 23);
  return p * FM_FLOAT((exponent - half + FM_ALLI(127)) << 23);
}

FM_INLINE FM_F FM_NAME(gated)(FM_F x, FM_F gate) { // x / (1 + exp(-gate))
  return x / (FM_NAME(exp)(-gate) + FM_ALL(1.0f));
}

FM_INLINE FM_F FM_NAME(softplus)(FM_F x) { // log(1 + exp(x))
  const FM_F u = FM_NAME(exp)(FM_PICK(x > FM_ALL(0.0f), -x, x));
  FM_F s = u / (FM_ALL(2.0f) + u);
  const FM_F z = s * s;
  FM_F p = z * FM_ALL(0x1.dbf2aep-4f);
  p = (p + FM_ALL(0x1.bc7b44p-4f)) * z;
  p = (p + FM_ALL(0x1.24c9c2p-3f)) * z;
  p = (p + FM_ALL(0x1.9998d2p-3f)) * z;
  p = (p + FM_ALL(0x1.555556p-2f)) * z;
  s = s + s;
  return FM_PICK(x > FM_ALL(0.0f), x, FM_ALL(0.0f)) + (p * s + s);
}

#undef FM_F
#undef FM_I
#undef FM_ALL
#undef FM_ALLI
#undef FM_BITS
#undef FM_FLOAT
#undef FM_PICK
#undef FM_NAME
#undef FM_INLINE
