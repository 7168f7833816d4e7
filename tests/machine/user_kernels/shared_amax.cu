// 16 threads to a group, which find its largest magnitude together in shared memory.
// dtype: bf16   arithmetic: specified   layouts: linear, linear
#include <cuda_bf16.h>

__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ unsigned rounded(float x) {
  const float m = fabsf(x);
  unsigned code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
                  (m >= 3.5f) + (m > 5.0f);
  if (__float_as_int(x) < 0) code += 8;
  return code;
}

extern "C" __global__ void shared_amax(
    const __nv_bfloat16* key, const __nv_bfloat16* value, unsigned char* key_data,
    unsigned char* value_data, unsigned char* key_scale, unsigned char* value_scale,
    const long long* slots, const float* k_scale, const float* v_scale, long long key_stride,
    long long value_stride, int heads, int head_size, int block_size, long long data_page,
    long long data_head, long long data_token, long long scale_page, long long scale_head,
    long long scale_token) {
  __shared__ float largest[512];
  __shared__ unsigned char codes[512];
  __shared__ float multiplier[32];
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  const long long page = slot / block_size, token = slot % block_size;
  const int t = threadIdx.x, columns = head_size / 16, groups = heads * columns;
  const int together = blockDim.x / 16;
  for (int first = 0; first < 2 * groups; first += together) {
    const int item = first + t / 16;
    const bool mine = item < 2 * groups, is_value = item >= groups;
    const int group = mine ? item % groups : 0;
    const __nv_bfloat16* row = is_value ? value + blockIdx.x * value_stride
                                        : key + blockIdx.x * key_stride;
    const float x = __bfloat162float(row[group * 16 + t % 16]);
    largest[t] = fabsf(x);
    __syncthreads();
    for (int w = 8; w > 0; w /= 2) {
      if (t % 16 < w) largest[t] = fmaxf(largest[t], largest[t + w]);
      __syncthreads();
    }
    const int head = group / columns, column = group % columns;
    if (t % 16 == 0) {
      const float g = 1.0f / (is_value ? *v_scale : *k_scale);
      unsigned short scale;
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
          : "=h"(scale) : "f"(0.0f), "f"(g * (largest[t] * 0.16666666666f)));
      unsigned halves;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(scale));
      float decoded;
      asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(decoded) : "r"(halves));
      multiplier[t / 16] = decoded == 0.0f ? 0.0f : fast_reciprocal(decoded * fast_reciprocal(g));
      if (mine)
        (is_value ? value_scale : key_scale)[page * scale_page + head * scale_head +
                                             token * scale_token + column] = scale;
    }
    __syncthreads();
    codes[t] = rounded(x * multiplier[t / 16]);
    __syncthreads();
    if (mine && t % 2 == 0)
      (is_value ? value_data : key_data)[page * data_page + head * data_head + token * data_token +
                                         column * 8 + t % 16 / 2] = codes[t] | codes[t + 1] << 4;
  }
}
