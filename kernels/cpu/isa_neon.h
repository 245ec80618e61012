// Four rows in a 128-bit vector, signed dot products; with I8MM two rows by two tokens.
#include <arm_neon.h>
enum { V = 4, W = 4 };
typedef int32x4_t vi;
typedef float32x4_t vf;
INLINE vi load_i(const void *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
INLINE vi all_i(int32_t x) { return vdupq_n_s32(x); }
INLINE vi low_bits(vi x, int right, int left, uint8_t mask) {
  uint8x16_t bytes = vreinterpretq_u8_s32(x);
  return vreinterpretq_s32_u8((left ? bytes << left : bytes >> right) & vdupq_n_u8(mask));
}
INLINE vi or_i(vi a, vi b) { return vorrq_s32(a, b); }
INLINE vi add_i(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi sub_i(vi a, vi b) { return vsubq_s32(a, b); }
INLINE vf to_f(vi x) { return vcvtq_f32_s32(x); }
INLINE vf load_f(const float *p) { return vld1q_f32(p); }
INLINE void store_f(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf all_f(float x) { return vdupq_n_f32(x); }
INLINE vf fma_f(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf half_f(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
INLINE uint8x8_t load_4(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return vreinterpret_u8_u32(vdup_n_u32(x)); }
INLINE vf u8_f(const uint8_t *p) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_4(p))))); }
INLINE vf s8_f(const uint8_t *p) { return to_f(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_4(p)))))); }

// The dot products of lanes.h. Every weight fits a signed byte.
#define OWN_DOTS 1
INLINE vi dot_16(vi sum, const vi *u, int8x16_t q) { // columns 4 k .. 4 k + 3 of u[k] with word k of q
  sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[0]), q, 0);
  sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[1]), q, 1);
  sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[2]), q, 2);
  return vdotq_laneq_s32(sum, vreinterpretq_s8_s32(u[3]), q, 3);
}
#if defined(__ARM_FEATURE_MATMUL_INT8)
// Adds the products of 16 columns with two tokens: sum[0] of rows 0 and 1, each with both, sum[1] of rows 2 and 3.
INLINE void matrix_16(vi *sum, const vi *u, int8x16_t q0, int8x16_t q1) {
  const int64x2_t a = vreinterpretq_s64_s8(q0), b = vreinterpretq_s64_s8(q1);
  const int8x16_t q[2] = {vreinterpretq_s8_s64(vtrn1q_s64(a, b)), vreinterpretq_s8_s64(vtrn2q_s64(a, b))};
  for (int k = 0; k < 2; k++) {
    sum[0] = vmmlaq_s32(sum[0], vreinterpretq_s8_s32(vzip1q_s32(u[2 * k], u[2 * k + 1])), q[k]);
    sum[1] = vmmlaq_s32(sum[1], vreinterpretq_s8_s32(vzip2q_s32(u[2 * k], u[2 * k + 1])), q[k]);
  }
}
INLINE void dot_two(const vi *u, const line *x, vi (*sum)[2], int halves) {
  vi part[2][2] = {{all_i(0), all_i(0)}, {all_i(0), all_i(0)}};
  for (int h = 0; h < 2; h++) matrix_16(part[halves ? h : 0], u + 4 * h, vld1q_s8(x[0].q + 16 * h), vld1q_s8(x[1].q + 16 * h));
  for (int h = 0; h < 1 + halves; h++) {
    sum[0][h] = vuzp1q_s32(part[h][0], part[h][1]);
    sum[1][h] = vuzp2q_s32(part[h][0], part[h][1]);
  }
}
#endif
INLINE void dot_some(int N, const vi *u, const line *x, vi (*sum)[2], int halves) {
  int t = 0;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  for (; t + 2 <= N; t += 2) dot_two(u, x + t, sum + t, halves);
#endif
  for (; t < N; t++) {
    const vi low = dot_16(all_i(0), u, vld1q_s8(x[t].q));
    const vi high = dot_16(halves ? all_i(0) : low, u + 4, vld1q_s8(x[t].q + 16));
    sum[t][0] = halves ? low : high;
    sum[t][1] = high;
  }
}
INLINE void dot_nibbles(int N, const vi *u, const line *x, vi (*sum)[2]) { dot_some(N, u, x, sum, 0); }
INLINE void dot_sixes(int N, const vi *u, const line *x, vi (*sum)[2]) { dot_some(N, u, x, sum, 1); }
INLINE void dot_bytes(int N, const vi *w, const line *x, vi (*sum)[2]) { dot_some(N, w, x, sum, 1); }
