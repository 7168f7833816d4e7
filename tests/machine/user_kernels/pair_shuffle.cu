// Two threads to a group, their maxima exchanged by __shfl_xor_sync, 4-byte stores.
// dtype: bf16   arithmetic: divided   layouts: linear, linear
#include <cuda_bf16.h>

__constant__ float kMidpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

__device__ unsigned nibble(float x) {
  float m = fabsf(x);
  unsigned code = 0;
#pragma unroll
  for (int k = 0; k < 7; ++k) code += (k & 1) ? m >= kMidpoints[k] : m > kMidpoints[k];
  return (__float_as_uint(x) & 0x80000000u) ? code + 8 : code;
}

__device__ float load(const __nv_bfloat16* x) {
  return __uint_as_float((unsigned)*(const unsigned short*)x << 16);
}

extern "C" __global__ void pair_shuffle(
    const __nv_bfloat16* key, const __nv_bfloat16* value, unsigned char* key_data,
    unsigned char* value_data, unsigned char* key_scale, unsigned char* value_scale,
    const long long* slots, const float* k_scale, const float* v_scale, long long key_stride,
    long long value_stride, int heads, int head_size, int block_size, long long data_page,
    long long data_head, long long data_token, long long scale_page, long long scale_head,
    long long scale_token) {
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  const unsigned page = (unsigned)slot / (unsigned)block_size;
  const unsigned token = (unsigned)slot % (unsigned)block_size;
  const int columns = head_size / 16, items = heads * columns * 2;
  // All threads of a warp go round together, so that every shuffle has its partner.
  for (int first = 0; first < items; first += blockDim.x) {
    const int item = first + threadIdx.x;
    const bool mine = item < items;
    const int group = mine ? item / 2 : 0, half = item & 1;
    const int head = group / columns, column = group % columns;
    for (int side = 0; side < 2; ++side) {
      const __nv_bfloat16* x = side ? value + blockIdx.x * value_stride
                                    : key + blockIdx.x * key_stride;
      x += group * 16 + half * 8;
      float amax = 0.0f;
      for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(load(x + i)));
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
      const float global = side ? *v_scale : *k_scale;
      unsigned short code;
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
          : "=h"(code) : "f"(0.0f), "f"(amax / 6.0f / global));
      unsigned both;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(code));
      float scale;
      asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(scale) : "r"(both));
      const float step = scale * global;
      unsigned word = 0;
      for (int i = 0; i < 8; ++i) word |= (step == 0.0f ? 0u : nibble(load(x + i) / step)) << 4 * i;
      if (!mine) continue;
      unsigned char* data = side ? value_data : key_data;
      unsigned char* scales = side ? value_scale : key_scale;
      *(unsigned*)(data + page * data_page + head * data_head + token * data_token + column * 8 +
                   half * 4) = word;
      if (half == 0)
        scales[page * scale_page + head * scale_head + token * scale_token + column] = code;
    }
  }
}
