// Codes by a switch over the doubled magnitude, and the scale's decoding by another.
// dtype: bf16   arithmetic: divided   layouts: linear, linear
#include <cuda_bf16.h>

__device__ __noinline__ unsigned code_by_cases(float x) {
  const float m = fminf(fabsf(x), 8.0f);
  const int quarters = (int)(m * 4.0f);
  const bool exact = m * 4.0f == (float)quarters;
  unsigned code;
  switch (quarters) {
    case 0: code = 0; break;
    case 1: code = exact ? 0 : 1; break;
    case 2: code = 1; break;
    case 3: case 4: code = 2; break;
    case 5: code = exact ? 2 : 3; break;
    case 6: code = 3; break;
    case 7: case 8: case 9: code = 4; break;
    case 10: code = exact ? 4 : 5; break;
    case 11: case 12: case 13: code = 5; break;
    case 14: case 15: case 16: case 17: case 18: case 19: code = 6; break;
    case 20: code = exact ? 6 : 7; break;
    default: code = 7;
  }
  return signbit(x) ? code + 8 : code;
}

__device__ float scale_value(int code) {
  const int mantissa = code & 7;
  switch (code >> 3) {
    case 0: return mantissa / 512.0f;
    case 1: return (8 + mantissa) / 512.0f;
    case 2: return (8 + mantissa) / 256.0f;
    case 3: return (8 + mantissa) / 128.0f;
    case 4: return (8 + mantissa) / 64.0f;
    case 5: return (8 + mantissa) / 32.0f;
    case 6: return (8 + mantissa) / 16.0f;
    case 7: return (8 + mantissa) / 8.0f;
    default: return (8 + mantissa) * (float)(1 << ((code >> 3) - 7)) / 8.0f;
  }
}

extern "C" __global__ void __launch_bounds__(512, 1) switch_codes(
    const __nv_bfloat16* key, const __nv_bfloat16* value, unsigned char* key_data,
    unsigned char* value_data, unsigned char* key_scale, unsigned char* value_scale,
    const long long* slots, const float* k_scale, const float* v_scale, long long key_stride,
    long long value_stride, int heads, int head_size, int block_size, long long data_page,
    long long data_head, long long data_token, long long scale_page, long long scale_head,
    long long scale_token) {
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  const int columns = head_size / 16;
  for (int g = threadIdx.x; g < heads * columns; g += blockDim.x) {
    for (int side = 0; side < 2; ++side) {
      const __nv_bfloat16* x = side ? value + blockIdx.x * value_stride
                                    : key + blockIdx.x * key_stride;
      x += g * 16;
      float amax = 0.0f;
      for (int i = 0; i < 16; ++i) amax = max(amax, abs(__bfloat162float(x[i])));
      const float global = side ? *v_scale : *k_scale;
      unsigned short scale;
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
          : "=h"(scale) : "f"(0.0f), "f"(amax / 6.0f / global));
      const float step = scale_value(scale) * global;
      const long long page = slot / block_size, token = slot % block_size;
      const int head = g / columns, column = g % columns;
      unsigned char* data = (side ? value_data : key_data) + page * data_page + head * data_head +
                            token * data_token + column * 8;
      for (int i = 0; i < 8; ++i) {
        unsigned byte = 0;
        if (step != 0.0f)
          byte = code_by_cases(__bfloat162float(x[2 * i]) / step) |
                 code_by_cases(__bfloat162float(x[2 * i + 1]) / step) << 4;
        data[i] = byte;
      }
      (side ? value_scale : key_scale)[page * scale_page + head * scale_head +
                                       token * scale_token + column] = scale;
    }
  }
}
