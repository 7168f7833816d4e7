// The largest magnitude with __hmax2 and __habs2, straight from vectors of half2.
// dtype: fp16   arithmetic: specified   layouts: linear, linear
#include <cuda_fp16.h>

union Vector {
  uint4 whole;
  __half2 pairs[4];
};

__device__ __forceinline__ unsigned char compress(float a, float b) {
  auto nibble = [](float x) -> unsigned {
    const float m = __saturatef(fabsf(x) * 0.125f) * 8.0f;
    const unsigned code = m < 1.75f ? (m < 0.75f ? m > 0.25f : 2u + (m > 1.25f))
                                    : (m < 3.5f ? 4u + (m > 2.5f) : 6u + (m > 5.0f));
    return code | (__float_as_uint(x) >> 28 & 8u);
  };
  return nibble(a) | nibble(b) << 4;
}

__device__ __forceinline__ float approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ void store_group(const uint4* from, float global, unsigned char* data,
                            unsigned char* scale) {
  Vector v[2];
  v[0].whole = from[0];
  v[1].whole = from[1];
  __half2 most = __habs2(v[0].pairs[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) most = __hmax2(most, __habs2(v[i / 4].pairs[i % 4]));
  const float amax = __half2float(__hmax(__low2half(most), __high2half(most)));
  const float g = 1.0f / global;
  unsigned short code;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(code) : "f"(0.0f), "f"(g * (amax * (1.0f / 6.0f))));
  unsigned both;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(code));
  const float decoded = __low2float(*(__half2*)&both);
  const float r = decoded == 0.0f ? 0.0f : approx(decoded * approx(g));
  unsigned packed[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float2 x = __half22float2(v[i / 4].pairs[i % 4]);
    packed[i / 4] |= (unsigned)compress(x.x * r, x.y * r) << (i % 4 * 8);
  }
  *(uint2*)data = make_uint2(packed[0], packed[1]);
  *scale = code;
}

extern "C" __global__ void half2_intrinsics(
    const uint4* key, const uint4* value, unsigned char* key_data, unsigned char* value_data,
    unsigned char* key_scale, unsigned char* value_scale, const long long* slots,
    const float* k_scale, const float* v_scale, long long key_stride, long long value_stride,
    int heads, int head_size, int block_size, long long data_page, long long data_head,
    long long data_token, long long scale_page, long long scale_head, long long scale_token) {
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  const int columns = head_size / 16;
  const long long page = slot / block_size, token = slot % block_size;
  for (int g = threadIdx.x; g < heads * columns; g += blockDim.x) {
    const int head = g / columns, column = g % columns;
    const long long data = page * data_page + head * data_head + token * data_token + column * 8;
    const long long scale = page * scale_page + head * scale_head + token * scale_token + column;
    store_group(key + (blockIdx.x * key_stride + g * 16) / 8, *k_scale, key_data + data,
                key_scale + scale);
    store_group(value + (blockIdx.x * value_stride + g * 16) / 8, *v_scale, value_data + data,
                value_scale + scale);
  }
}
