// The store kernel's work in C for the host: quantise keys and values to NVFP4 and store them into
// a paged cache, K scales linear and V scales swizzle_4x4. It is the yardstick of the benchmarks:
// what one core does when nothing is interpreted, logged or checked.
//
// Every byte equals the kernel's under a correctly rounded reciprocal, so the compiler must not
// contract a multiplication and an addition (-ffp-contract=off). Two variants of the arithmetic:
//
//   store_branchy  one element at a time, conversions by comparing and branching
//   store_vector   loops over a group without branches, which compilers turn into vectors
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { GROUP = 16, MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000 };

// Strides of tokens count elements; `data_strides` and `scale_strides` are those of page, head and
// token, in bytes. The same fields as native.py's _Launch.
struct launch {
  const uint16_t *source[2];
  uint8_t *data[2], *scale[2];
  const int64_t *slot_mapping;
  int64_t tokens, token_stride[2], num_heads, head_size, block_size;
  int64_t data_strides[3], scale_strides[3];
  float global_scale[2];
};

struct quantized {
  uint32_t codes[GROUP];
  uint8_t scale;
  float multiplier;
};

INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// ---- Formats ----------------------------------------------------------------------------------

// The scaling is exact and makes subnormals normal; what had the largest exponent keeps it.
INLINE float decode_fp16(uint16_t half) {
  const uint32_t special = (half & 0x7c00) == 0x7c00 ? INFINITE : 0;
  const float magnitude = float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
  return float_of(bits_of(magnitude) | special | (uint32_t)(half & 0x8000) << 16);
}

INLINE float decode_bf16(uint16_t word) { return float_of((uint32_t)word << 16); }

INLINE uint8_t encode_e4m3(float x) {
  if (isnan(x)) return 0x7f;
  const float magnitude = fminf(fabsf(x), 448.0f);
  uint32_t code;
  if (magnitude < 0x1p-6f) {
    code = bits_of(magnitude + 0x1p14f) - bits_of(0x1p14f);
  } else {
    const uint32_t bits = bits_of(magnitude);
    code = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
  }
  return (uint8_t)(code | (bits_of(x) >> 24 & 0x80));
}

INLINE float decode_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return NAN;
  const float value = magnitude < 8 ? (float)magnitude * 0x1p-9f
                                    : float_of((magnitude << 20) + (120u << 23));
  return code & 0x80 ? -value : value;
}

INLINE uint32_t encode_e2m1_branchy(float x) {
  if (isnan(x)) return 7;
  const float magnitude = fabsf(x);
  uint32_t code = 7;
  if (magnitude <= 0.25f) code = 0;
  else if (magnitude < 0.75f) code = 1;
  else if (magnitude <= 1.25f) code = 2;
  else if (magnitude < 1.75f) code = 3;
  else if (magnitude <= 2.5f) code = 4;
  else if (magnitude < 3.5f) code = 5;
  else if (magnitude <= 5.0f) code = 6;
  return signbit(x) ? code | 8 : code;
}

// As integers, because patterns order as magnitudes do, with NaN above all: its code is 7.
INLINE uint32_t encode_e2m1_vectorised(float x) {
  const int32_t bits = (int32_t)(bits_of(x) & MAGNITUDE);
  uint32_t code = bits > 0x3e800000;  // 0.25, a tie that belongs to the even code below
  code += bits >= 0x3f400000;         // 0.75, one that belongs to the even code above
  code += bits > 0x3fa00000;          // 1.25
  code += bits >= 0x3fe00000;         // 1.75
  code += bits > 0x40200000;          // 2.5
  code += bits >= 0x40600000;         // 3.5
  code += bits > 0x40a00000;          // 5
  return code | (bits <= INFINITE ? bits_of(x) >> 28 & 8 : 0);
}

INLINE float decode_e2m1(uint32_t code) {
  const uint32_t magnitude = code & 7;
  const float value = magnitude < 2 ? 0.5f * (float)(int32_t)magnitude
                                    : float_of((magnitude << 22) + (126u << 23));
  return float_of(bits_of(value) | (code & 8) << 28);
}

// ---- A group ----------------------------------------------------------------------------------

INLINE float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

INLINE float rcp(float x) { return flush(1.0f / flush(x)); }

// max |x|; a NaN counts only where all are NaN.
INLINE float amax_branchy(const float *x) {
  float amax = fabsf(x[0]);
  for (int i = 1; i < GROUP; ++i) {
    const float magnitude = fabsf(x[i]);
    if (magnitude > amax || isnan(amax)) amax = magnitude;
  }
  return amax;
}

INLINE float amax_vectorised(const float *x) {
  int32_t amax = -1;  // loses against every number, and is itself the pattern of a NaN
  for (int i = 0; i < GROUP; ++i) {
    const int32_t bits = (int32_t)(bits_of(x[i]) & MAGNITUDE);
    const int32_t counted = bits > INFINITE ? -1 : bits;
    amax = counted > amax ? counted : amax;
  }
  return float_of((uint32_t)amax);
}

INLINE void encode(struct quantized *q, const float *x, float amax, float fraction, float g,
                   bool branchy) {
  q->scale = encode_e4m3(g * (amax * fraction));
  const float scale = decode_e4m3(q->scale);
  q->multiplier = scale == 0.0f ? 0.0f : rcp(scale * rcp(g));
  for (int i = 0; i < GROUP; ++i) {
    const float scaled = x[i] * q->multiplier;
    q->codes[i] = branchy ? encode_e2m1_branchy(scaled) : encode_e2m1_vectorised(scaled);
  }
}

// The order of the sum is part of the definition: near ties depend on it.
INLINE float squared_error(const struct quantized *q, const float *x) {
  const float inverse = q->multiplier == 0.0f ? 0.0f : rcp(q->multiplier);
  float difference[GROUP], pair[GROUP / 2], sum = 0.0f;
  for (int i = 0; i < GROUP; ++i) difference[i] = fmaf(decode_e2m1(q->codes[i]), inverse, -x[i]);
  for (int i = 0; i < GROUP / 2; ++i) {
    const float even = difference[2 * i], odd = difference[2 * i + 1];
    pair[i] = fmaf(even, even, odd * odd);
  }
  for (int i = 0; i < GROUP / 2; ++i) sum += pair[i];
  return sum;
}

INLINE void store_group(const uint16_t *source, float global_scale, uint8_t *data, uint8_t *scale,
                        bool fp16, bool four_over_six, bool branchy) {
  float x[GROUP];
  for (int i = 0; i < GROUP; ++i) x[i] = fp16 ? decode_fp16(source[i]) : decode_bf16(source[i]);
  const float g = 1.0f / global_scale;
  const float amax = branchy ? amax_branchy(x) : amax_vectorised(x);
  struct quantized six, four;
  const struct quantized *best = &six;
  encode(&six, x, amax, 1.0f / 6.0f, g, branchy);
  if (four_over_six) {
    encode(&four, x, amax, 1.0f / 4.0f, g, branchy);
    if (squared_error(&four, x) < squared_error(&six, x)) best = &four;
  }
  for (int half = 0; half < 2; ++half) {
    uint32_t packed = 0;
    for (int i = 0; i < GROUP / 2; ++i) packed |= best->codes[8 * half + i] << (4 * i);
    for (int i = 0; i < 4; ++i) data[4 * half + i] = (uint8_t)(packed >> (8 * i));
  }
  *scale = best->scale;
}

// ---- A launch ---------------------------------------------------------------------------------

INLINE int64_t scale_offset(int side, int64_t t, int64_t s, int64_t columns, int64_t stride) {
  if (side == 0) return t * stride + s;
  const int64_t quarter = columns / 4;
  return (t / 4 * 4 + s / quarter) * stride + s % quarter * 4 + t % 4;
}

INLINE void store(const struct launch *l, bool fp16, bool four_over_six, bool branchy) {
  const int64_t columns = l->head_size / GROUP;
  for (int64_t token = 0; token < l->tokens; ++token) {
    const int64_t slot = l->slot_mapping[token];
    if (slot < 0) continue;
    const int64_t page = slot / l->block_size, t = slot % l->block_size;
    for (int side = 0; side < 2; ++side) {
      const uint16_t *source = l->source[side] + token * l->token_stride[side];
      for (int64_t head = 0; head < l->num_heads; ++head) {
        uint8_t *data = l->data[side] + page * l->data_strides[0] + head * l->data_strides[1] +
                        t * l->data_strides[2];
        uint8_t *plane = l->scale[side] + page * l->scale_strides[0] + head * l->scale_strides[1];
        for (int64_t s = 0; s < columns; ++s) {
          store_group(source, l->global_scale[side], data,
                      plane + scale_offset(side, t, s, columns, l->scale_strides[2]), fp16,
                      four_over_six, branchy);
          source += GROUP;
          data += GROUP / 2;
        }
      }
    }
  }
}

#define DEFINE(name, branchy)                                             \
  void name(const struct launch *l, int32_t fp16, int32_t four_over_six) { \
    if (fp16 && four_over_six) store(l, true, true, branchy);             \
    else if (fp16) store(l, true, false, branchy);                        \
    else if (four_over_six) store(l, false, true, branchy);               \
    else store(l, false, false, branchy);                                 \
  }

DEFINE(store_branchy, true)
DEFINE(store_vector, false)
