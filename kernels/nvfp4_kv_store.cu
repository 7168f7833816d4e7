// Quantises new keys and values to NVFP4 and stores them into a paged KV cache.
//
// One block stores one token: 16 consecutive elements of a head (a group) become 8 bytes of E2M1
// codes in the data plane and one E4M3 byte in the scale plane. A thread does the same group of K
// and of V. What stands where is chosen at compile time, with -D:
//
//   DTYPE           type of key and value:          BF16 (default) or FP16
//   K_LAYOUT        layout of K's scale plane:      LINEAR (default), SWIZZLE_4X4 or INVERSE_4X4
//   V_LAYOUT        layout of V's scale plane:      LINEAR, SWIZZLE_4X4 (default) or INVERSE_4X4
//   SCALE_SEARCH    how a group's scale is chosen:  MAX_OVER_6 (default) or FOUR_OVER_SIX
//
// The README beside this file gives the parameters, the launch and the geometries each layout needs.

#define BF16 0
#define FP16 1
#define LINEAR 0
#define SWIZZLE_4X4 1
#define INVERSE_4X4 2
#define MAX_OVER_6 0
#define FOUR_OVER_SIX 1

#ifndef DTYPE
#define DTYPE BF16
#endif
#ifndef K_LAYOUT
#define K_LAYOUT LINEAR
#endif
#ifndef V_LAYOUT
#define V_LAYOUT SWIZZLE_4X4
#endif
#ifndef SCALE_SEARCH
#define SCALE_SEARCH MAX_OVER_6
#endif

// Conversions to E2M1 exist only for arch-specific (sm_100a) and family (sm_100f) targets.
#if __CUDA_ARCH__ >= 1000 && \
    (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
#define NATIVE_E2M1 1
#else
#define NATIVE_E2M1 0
#endif
#define NATIVE_E4M3 (__CUDA_ARCH__ >= 890)

#if DTYPE == FP16
#include <cuda_fp16.h>
using Scalar = __half;
#elif DTYPE == BF16
#include <cuda_bf16.h>
using Scalar = __nv_bfloat16;
#else
#error "DTYPE is neither BF16 nor FP16"
#endif

constexpr int kGroup = 16;

// ---- Formats ----------------------------------------------------------------------------------

// A small float: sign, exponent, mantissa. All conversions round to nearest, ties to even, saturate
// and keep the sign of zero; a NaN becomes the positive code of all ones, which E2M1, having no
// NaN, reads as 6.
template <int ExponentBits, int MantissaBits>
struct Minifloat {
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - MantissaBits;
  static constexpr unsigned kSignBit = 1u << (ExponentBits + MantissaBits);
  static constexpr unsigned kMagnitude = kSignBit - 1;

  static __device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
  }

  static __device__ __forceinline__ unsigned encode(float x, float largest) {
    const float magnitude = fminf(fabsf(x), largest);
    unsigned code;
    if (magnitude < power_of_two(1 - kBias)) {
      // Below the normal range codes count equal steps. Adding the power of two whose last place
      // is one step rounds to whole steps, and leaves their number in the low bits.
      const float ruler = power_of_two(1 - kBias - MantissaBits + 23);
      code = __float_as_uint(magnitude + ruler) - __float_as_uint(ruler);
    } else {
      // Round half up, but half down above an even code; then move the exponent to this bias.
      const unsigned bits = __float_as_uint(magnitude);
      const unsigned half = (1u << (kDropped - 1)) - 1 + ((bits >> kDropped) & 1);
      code = ((bits + half) >> kDropped) - (static_cast<unsigned>(127 - kBias) << MantissaBits);
    }
    const unsigned sign = (__float_as_uint(x) >> 31) * kSignBit;
    return isnan(x) ? kMagnitude : code | sign;
  }

  // Exact: the code's bits are a float's after a shift, but for the bias of the exponent.
  static __device__ __forceinline__ float decode(unsigned code) {
    const unsigned sign = (code & kSignBit) != 0 ? 0x80000000u : 0;
    return __uint_as_float((code & kMagnitude) << kDropped | sign) * power_of_two(127 - kBias);
  }
};

using E2M1 = Minifloat<2, 1>;
using E4M3 = Minifloat<4, 3>;

__device__ __forceinline__ unsigned encode_e4m3(float x) {
#if NATIVE_E4M3
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return pair;
#else
  return E4M3::encode(x, 448.0f);
#endif
}

__device__ __forceinline__ float decode_e4m3(unsigned code) {
  const bool is_nan = (code & E4M3::kMagnitude) == E4M3::kMagnitude;
  return is_nan ? __uint_as_float(0x7fffffffu) : E4M3::decode(code);
}

// Eight values to eight codes, the first in the lowest nibble.
__device__ __forceinline__ unsigned encode_e2m1x8(const float (&x)[8]) {
#if NATIVE_E2M1
  unsigned codes;
  asm("{\n"
      ".reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3};\n"
      "}"
      : "=r"(codes)
      : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]));
  return codes;
#else
  unsigned codes = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) codes |= E2M1::encode(x[i], 6.0f) << (4 * i);
  return codes;
#endif
}

// ---- A group ----------------------------------------------------------------------------------

// The approximate reciprocal, and not a division: it is part of the format's arithmetic.
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 elements as they were loaded, two to a word.
struct Group {
  unsigned words[8];

  __device__ __forceinline__ explicit Group(const Scalar* source) {
    const uint4* vectors = reinterpret_cast<const uint4*>(source);
    const uint4 low = vectors[0], high = vectors[1];
    words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
    words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
  }

  __device__ __forceinline__ float operator[](int i) const {
    const unsigned word = words[i / 2];
#if DTYPE == FP16
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (i % 2 * 16))));
#else
    return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
#endif
  }

  // max |x|; a NaN counts only where all are NaN.
  __device__ __forceinline__ float amax() const {
    float result = fabsf((*this)[0]);
#pragma unroll
    for (int i = 1; i < kGroup; ++i) result = fmaxf(result, fabsf((*this)[i]));
    return result;
  }
};

struct Quantized {
  unsigned codes[2];
  unsigned scale;
  float multiplier;

  // Scales the group such that the value `1 / fraction` of E2M1 stands for amax.
  __device__ __forceinline__ Quantized(const Group& group, float amax, float fraction, float g) {
    scale = encode_e4m3(g * (amax * fraction));
    const float decoded = decode_e4m3(scale);
    multiplier = decoded == 0.0f ? 0.0f : rcp(decoded * rcp(g));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float scaled[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) scaled[i] = group[8 * half + i] * multiplier;
      codes[half] = encode_e2m1x8(scaled);
    }
  }

  // The sum of squared differences from what was quantised; a multiplier of 0 decodes to zeros. The
  // order is part of the definition: near ties depend on it.
  __device__ __forceinline__ float squared_error(const Group& group) const {
    const float inverse = multiplier == 0.0f ? 0.0f : rcp(multiplier);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroup; i += 2) {
      const float even = difference(group, i, inverse), odd = difference(group, i + 1, inverse);
      sum = __fadd_rn(sum, fmaf(even, even, __fmul_rn(odd, odd)));
    }
    return sum;
  }

  __device__ __forceinline__ float difference(const Group& group, int i, float inverse) const {
    return fmaf(E2M1::decode(codes[i / 8] >> (4 * (i % 8))), inverse, -group[i]);
  }
};

__device__ __forceinline__ Quantized quantize(const Group& group, float global_scale) {
  const float g = __fdiv_rn(1.0f, global_scale);
  const float amax = group.amax();
  const Quantized six(group, amax, 1.0f / 6.0f, g);
#if SCALE_SEARCH == FOUR_OVER_SIX
  const Quantized four(group, amax, 1.0f / 4.0f, g);
  if (four.squared_error(group) < six.squared_error(group)) return four;
#elif SCALE_SEARCH != MAX_OVER_6
#error "SCALE_SEARCH is neither MAX_OVER_6 nor FOUR_OVER_SIX"
#endif
  return six;
}

// ---- The cache --------------------------------------------------------------------------------

// Where the scale of token t and column s stands in a plane of `columns` columns whose rows are
// `row_stride` bytes apart. Both swizzles move bytes inside bands of four rows only:
//   SWIZZLE_4X4  numbers a band's scales by column first, then by row,
//   INVERSE_4X4  is the inverse of that permutation.
template <int Layout>
__device__ __forceinline__ long long scale_offset(
    int t, int s, int columns, long long row_stride) {
  static_assert(Layout == LINEAR || Layout == SWIZZLE_4X4 || Layout == INVERSE_4X4,
                "K_LAYOUT and V_LAYOUT are LINEAR, SWIZZLE_4X4 or INVERSE_4X4");
  const int band = t / 4 * 4, row = t % 4;
  if (Layout == SWIZZLE_4X4) {
    const int quarter = columns / 4;
    return (band + s / quarter) * row_stride + s % quarter * 4 + row;
  }
  if (Layout == INVERSE_4X4) {
    const int position = row * columns + s;
    return (band + position % 4) * row_stride + position / 4;
  }
  return t * row_stride + s;
}

__device__ __forceinline__ void store(
    const Scalar* source, float global_scale, unsigned char* data, unsigned char* scale) {
  const Quantized result = quantize(Group(source), global_scale);
  *reinterpret_cast<uint2*>(data) = make_uint2(result.codes[0], result.codes[1]);
  *scale = static_cast<unsigned char>(result.scale);
}

extern "C" __global__ void nvfp4_kv_store(
    const Scalar* __restrict__ key, const Scalar* __restrict__ value,
    unsigned char* key_data, unsigned char* value_data,
    unsigned char* key_scale, unsigned char* value_scale,
    const long long* __restrict__ slot_mapping,
    const float* __restrict__ k_scale, const float* __restrict__ v_scale,
    long long key_stride, long long value_stride,
    int num_heads, int head_size, int block_size,
    long long data_block_stride, long long data_head_stride, long long data_block_offset_stride,
    long long scale_block_stride, long long scale_head_stride,
    long long scale_block_offset_stride) {
  const long long token = blockIdx.x;
  const long long slot = slot_mapping[token];
  if (slot < 0) return;  // padding: this token is not to be stored
  const long long page = slot / block_size;
  const int t = static_cast<int>(slot - page * block_size);
  const int columns = head_size / kGroup;

  for (int group = threadIdx.x; group < num_heads * columns; group += blockDim.x) {
    const int head = group / columns;
    const int s = group - head * columns;
    const long long data = page * data_block_stride + head * data_head_stride +
                           t * data_block_offset_stride + s * (kGroup / 2);
    const long long plane = page * scale_block_stride + head * scale_head_stride;

    store(key + token * key_stride + group * kGroup, *k_scale, key_data + data,
          key_scale + plane +
              scale_offset<K_LAYOUT>(t, s, columns, scale_block_offset_stride));
    store(value + token * value_stride + group * kGroup, *v_scale, value_data + data,
          value_scale + plane +
              scale_offset<V_LAYOUT>(t, s, columns, scale_block_offset_stride));
  }
}
