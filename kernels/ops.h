// One struct per op, written from its signature by graphrun.backends.abi; its meaning is in ops/.
// clang-format off
#pragma once
#include "gr.h"

typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *y;
  float GR_GLOBAL *z;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t z_row;
  uint32_t z_col;
  uint32_t rows;
  uint32_t cols;
  uint32_t N;
} gr_add;
_Static_assert(sizeof(gr_add) <= 256, "one record");
#define GR_LAYOUT_add 0x72658388u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  int32_t GR_GLOBAL *y;
  uint32_t x_row;
  uint32_t R;
  uint32_t V;
} gr_argmax;
_Static_assert(sizeof(gr_argmax) <= 256, "one record");
#define GR_LAYOUT_argmax 0xe61003f9u


typedef struct {
  gr_header header;
  float GR_GLOBAL *q;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *y;
  float GR_GLOBAL *sigmoid_gate_in;
  float GR_GLOBAL *sigmoid_gate_out;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t q_row;
  uint32_t q_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t sigmoid_gate_in_row;
  uint32_t sigmoid_gate_in_col;
  uint32_t sigmoid_gate_out_row;
  uint32_t sigmoid_gate_out_col;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t H;
  uint32_t D;
  uint32_t C;
  uint32_t G;
  uint32_t type_S;
} gr_attend;
_Static_assert(sizeof(gr_attend) <= 256, "one record");
#define GR_LAYOUT_attend 0x8bf104aau


typedef struct {
  gr_header header;
  float GR_GLOBAL *q;
  float GR_GLOBAL *k;
  float GR_GLOBAL *v;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t q_row;
  uint32_t q_col;
  uint32_t k_row;
  uint32_t k_col;
  uint32_t v_row;
  uint32_t v_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t H;
  uint32_t D;
  uint32_t G;
  uint32_t S;
  uint32_t type_Z;
  int32_t window;
} gr_attend_block;
_Static_assert(sizeof(gr_attend_block) <= 256, "one record");
#define GR_LAYOUT_attend_block 0xe1e0ecf5u


typedef struct {
  gr_header header;
  float GR_GLOBAL *a;
  float GR_GLOBAL *b;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t a_row;
  uint32_t b_row;
  uint32_t y_row;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t N;
  uint32_t M;
} gr_concat;
_Static_assert(sizeof(gr_concat) <= 256, "one record");
#define GR_LAYOUT_concat 0x2de03306u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *w;
  float GR_GLOBAL *tail;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *y;
  uint32_t x_row;
  uint32_t y_row;
  uint32_t T;
  uint32_t N;
  uint32_t K;
  uint32_t S;
} gr_conv_silu;
_Static_assert(sizeof(gr_conv_silu) <= 256, "one record");
#define GR_LAYOUT_conv_silu 0xb632b64eu


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *w;
  float GR_GLOBAL *tail;
  float GR_GLOBAL *b;
  float GR_GLOBAL *g;
  float GR_GLOBAL *dt;
  float GR_GLOBAL *a;
  float GR_GLOBAL *s;
  float GR_GLOBAL *z;
  float GR_GLOBAL *norm;
  int32_t GR_GLOBAL *pos;
  int32_t GR_GLOBAL *slot;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  double eps;
  uint32_t x_row;
  uint32_t b_row;
  uint32_t g_row;
  uint32_t z_row;
  uint32_t y_row;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t N;
  uint32_t K;
  uint32_t S;
  uint32_t U;
  uint32_t L;
  uint32_t D;
  uint32_t M;
  int32_t heads;
} gr_delta_layer;
_Static_assert(sizeof(gr_delta_layer) <= 256, "one record");
#define GR_LAYOUT_delta_layer 0x7e715fe6u


typedef struct {
  gr_header header;
  float GR_GLOBAL *c;
  float GR_GLOBAL *b;
  float GR_GLOBAL *g;
  float GR_GLOBAL *dt;
  float GR_GLOBAL *a;
  float GR_GLOBAL *s;
  int32_t GR_GLOBAL *pos;
  int32_t GR_GLOBAL *slot;
  float GR_GLOBAL *o;
  double eps;
  uint32_t c_row;
  uint32_t b_row;
  uint32_t g_row;
  uint32_t o_row;
  uint32_t o_col;
  uint32_t T;
  uint32_t N;
  uint32_t U;
  uint32_t L;
  uint32_t D;
  int32_t heads;
} gr_delta_rule;
_Static_assert(sizeof(gr_delta_rule) <= 256, "one record");
#define GR_LAYOUT_delta_rule 0x643f5857u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *dyn;
  float GR_GLOBAL *base;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t x_row;
  uint32_t dyn_row;
  uint32_t y_row;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t N;
  uint32_t M;
  uint32_t K;
  int32_t side;
  int32_t group;
} gr_dynamic_conv;
_Static_assert(sizeof(gr_dynamic_conv) <= 256, "one record");
#define GR_LAYOUT_dynamic_conv 0xe6b823edu


typedef struct {
  gr_header header;
  int32_t GR_GLOBAL *tokens;
  const gr_matrix GR_MATRIX *w;
  float GR_GLOBAL *x;
  uint32_t x_row;
  uint32_t T;
  uint32_t V;
  uint32_t N;
} gr_embed;
_Static_assert(sizeof(gr_embed) <= 256, "one record");
#define GR_LAYOUT_embed 0x60a3baeau


typedef struct {
  gr_header header;
  float GR_GLOBAL *o;
  float GR_GLOBAL *z;
  float GR_GLOBAL *w;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  double eps;
  uint32_t o_row;
  uint32_t o_col;
  uint32_t z_row;
  uint32_t y_row;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t U;
  uint32_t D;
  uint32_t N;
} gr_gated_norm;
_Static_assert(sizeof(gr_gated_norm) <= 256, "one record");
#define GR_LAYOUT_gated_norm 0x43e0ab98u


typedef struct {
  gr_header header;
  uint8_t GR_GLOBAL *x;
  const gr_matrix GR_MATRIX *w;
  float GR_GLOBAL *b;
  float GR_GLOBAL *y;
  float GR_GLOBAL *add_in;
  float GR_GLOBAL *add_out;
  uint32_t x_row;
  uint32_t y_row;
  uint32_t add_in_row;
  uint32_t add_in_col;
  uint32_t add_out_row;
  uint32_t add_out_col;
  uint32_t T;
  uint32_t N;
  uint32_t M;
} gr_gemv;
_Static_assert(sizeof(gr_gemv) <= 256, "one record");
#define GR_LAYOUT_gemv 0x650ca561u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  const gr_matrix GR_MATRIX *w;
  float GR_GLOBAL *b;
  float GR_GLOBAL *y;
  float GR_GLOBAL *add_in;
  float GR_GLOBAL *add_out;
  uint32_t x_row;
  uint32_t y_row;
  uint32_t add_in_row;
  uint32_t add_in_col;
  uint32_t add_out_row;
  uint32_t add_out_col;
  uint32_t T;
  uint32_t N;
  uint32_t M;
} gr_gemv_f32;
_Static_assert(sizeof(gr_gemv_f32) <= 256, "one record");
#define GR_LAYOUT_gemv_f32 0x650ca561u


typedef struct {
  gr_header header;
  float GR_GLOBAL *top;
  int32_t GR_GLOBAL *ids;
  float GR_GLOBAL *gate;
  const gr_matrix GR_MATRIX *before;
  const gr_matrix GR_MATRIX *after;
  int32_t GR_GLOBAL *tokens;
  float GR_GLOBAL *scores;
  uint32_t top_row;
  uint32_t ids_row;
  uint32_t gate_row;
  uint32_t scores_row;
  uint32_t scores_col;
  uint32_t T;
  uint32_t k;
  uint32_t N;
  uint32_t V;
} gr_lattice;
_Static_assert(sizeof(gr_lattice) <= 256, "one record");
#define GR_LAYOUT_lattice 0x1545fa12u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *y;
  float GR_GLOBAL *z;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t z_row;
  uint32_t z_col;
  uint32_t rows;
  uint32_t cols;
  uint32_t N;
} gr_mul;
_Static_assert(sizeof(gr_mul) <= 256, "one record");
#define GR_LAYOUT_mul 0x72658388u


typedef struct {
  gr_header header;
  float GR_GLOBAL *q;
  float GR_GLOBAL *k;
  float GR_GLOBAL *v;
  float GR_GLOBAL *q_norm;
  float GR_GLOBAL *k_norm;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *factors;
  float GR_GLOBAL *q2;
  float GR_GLOBAL *table;
  double eps;
  double base;
  double factor;
  double fast;
  double slow;
  double magnitude;
  uint32_t q_row;
  uint32_t q_col;
  uint32_t k_row;
  uint32_t k_col;
  uint32_t v_row;
  uint32_t v_col;
  uint32_t q2_row;
  uint32_t q2_col;
  uint32_t T;
  uint32_t H;
  uint32_t D;
  uint32_t G;
  uint32_t C;
  uint32_t P;
  uint32_t type_S;
  int32_t width;
  int32_t pairs;
  int32_t yarn;
  int32_t original;
  int32_t section_t;
  int32_t section_h;
  int32_t section_w;
} gr_qk_norm_rope_store;
_Static_assert(sizeof(gr_qk_norm_rope_store) <= 256, "one record");
#define GR_LAYOUT_qk_norm_rope_store 0xad889cd6u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  uint8_t GR_GLOBAL *y;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t rows;
  uint32_t cols;
  uint32_t N;
} gr_quantize;
_Static_assert(sizeof(gr_quantize) <= 256, "one record");
#define GR_LAYOUT_quantize 0xc4409f83u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *w;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  double eps;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t quantize_out_row;
  uint32_t rows;
  uint32_t cols;
  uint32_t N;
} gr_rms_norm;
_Static_assert(sizeof(gr_rms_norm) <= 256, "one record");
#define GR_LAYOUT_rms_norm 0x430d5872u


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *factors;
  float GR_GLOBAL *y;
  float GR_GLOBAL *table;
  double base;
  double factor;
  double fast;
  double slow;
  double magnitude;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t T;
  uint32_t H;
  uint32_t D;
  uint32_t P;
  int32_t width;
  int32_t pairs;
  int32_t yarn;
  int32_t original;
  int32_t section_t;
  int32_t section_h;
  int32_t section_w;
} gr_rope;
_Static_assert(sizeof(gr_rope) <= 256, "one record");
#define GR_LAYOUT_rope 0xd2714d82u


typedef struct {
  gr_header header;
  float GR_GLOBAL *q;
  float GR_GLOBAL *k;
  float GR_GLOBAL *v;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  float GR_GLOBAL *factors;
  float GR_GLOBAL *q2;
  float GR_GLOBAL *table;
  double base;
  double factor;
  double fast;
  double slow;
  double magnitude;
  uint32_t q_row;
  uint32_t q_col;
  uint32_t k_row;
  uint32_t k_col;
  uint32_t v_row;
  uint32_t v_col;
  uint32_t q2_row;
  uint32_t q2_col;
  uint32_t T;
  uint32_t H;
  uint32_t D;
  uint32_t G;
  uint32_t C;
  uint32_t P;
  uint32_t type_S;
  int32_t width;
  int32_t pairs;
  int32_t yarn;
  int32_t original;
  int32_t section_t;
  int32_t section_h;
  int32_t section_w;
} gr_rope_store;
_Static_assert(sizeof(gr_rope_store) <= 256, "one record");
#define GR_LAYOUT_rope_store 0x627ecc4cu


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *gate;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t x_row;
  uint32_t x_col;
  uint32_t gate_row;
  uint32_t gate_col;
  uint32_t y_row;
  uint32_t y_col;
  uint32_t quantize_out_row;
  uint32_t rows;
  uint32_t cols;
  uint32_t N;
} gr_sigmoid_gate;
_Static_assert(sizeof(gr_sigmoid_gate) <= 256, "one record");
#define GR_LAYOUT_sigmoid_gate 0x3ea61f28u


typedef struct {
  gr_header header;
  float GR_GLOBAL *k;
  float GR_GLOBAL *v;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  uint32_t k_row;
  uint32_t k_col;
  uint32_t v_row;
  uint32_t v_col;
  uint32_t T;
  uint32_t G;
  uint32_t D;
  uint32_t C;
  uint32_t type_S;
} gr_store;
_Static_assert(sizeof(gr_store) <= 256, "one record");
#define GR_LAYOUT_store 0xf675c48fu


typedef struct {
  gr_header header;
  float GR_GLOBAL *k;
  float GR_GLOBAL *v;
  void GR_GLOBAL *kc;
  void GR_GLOBAL *vc;
  int32_t GR_GLOBAL *pos;
  uint32_t k_row;
  uint32_t k_col;
  uint32_t v_row;
  uint32_t v_col;
  uint32_t T;
  uint32_t G;
  uint32_t D;
  uint32_t S;
  uint32_t type_Z;
} gr_store_ring;
_Static_assert(sizeof(gr_store_ring) <= 256, "one record");
#define GR_LAYOUT_store_ring 0xffd9c95fu


typedef struct {
  gr_header header;
  float GR_GLOBAL *gate;
  float GR_GLOBAL *up;
  float GR_GLOBAL *y;
  uint8_t GR_GLOBAL *quantize_out;
  uint32_t gate_row;
  uint32_t up_row;
  uint32_t y_row;
  uint32_t quantize_out_row;
  uint32_t T;
  uint32_t N;
} gr_swiglu;
_Static_assert(sizeof(gr_swiglu) <= 256, "one record");
#define GR_LAYOUT_swiglu 0x372e62eau


typedef struct {
  gr_header header;
  float GR_GLOBAL *x;
  float GR_GLOBAL *top;
  int32_t GR_GLOBAL *ids;
  uint32_t x_row;
  uint32_t top_row;
  uint32_t ids_row;
  uint32_t R;
  uint32_t V;
  int32_t k;
} gr_topk;
_Static_assert(sizeof(gr_topk) <= 256, "one record");
#define GR_LAYOUT_topk 0xc4ef1f55u
