// Policies as template parameters, a constexpr table, a lambda that captures, if constexpr.
// dtype: fp16   arithmetic: divided   layouts: linear, linear
#include <cuda_fp16.h>

template <int Bits>
struct Float4Bit {
  static constexpr int kCount = 1 << (Bits - 1);
  struct Table { float values[8]; };
  static __host__ __device__ constexpr Table table() {
    return {{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}};
  }
  __device__ static unsigned nearest(float m) {
    constexpr Table t = table();
    unsigned best = 0;
#pragma unroll
    for (int k = 1; k < kCount; ++k) {
      const float boundary = (t.values[k - 1] + t.values[k]) / 2;
      const bool above = k % 2 ? m > boundary : m >= boundary;
      best = above ? k : best;
    }
    return best;
  }
};

template <int Unroll, class Function>
__device__ __forceinline__ void repeat(Function&& function) {
  if constexpr (Unroll > 0) {
    repeat<Unroll - 1>(function);
    function(Unroll - 1);
  }
}

template <class Element, class Code>
struct Quantiser {
  float global;
  __device__ void operator()(const Element* x, unsigned char* data, unsigned char* scale) const {
    float largest = 0.0f;
    repeat<16>([&](int i) { largest = fmaxf(largest, fabsf(static_cast<float>(x[i]))); });
    unsigned short code;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(code) : "f"(0.0f), "f"(largest / 6.0f / global));
    const int exponent = code >> 3;
    const float step =
        exponent ? exp2_of(exponent - 10) * (8 | (code & 7)) * global : (code & 7) * exp2_of(-9) * global;
    repeat<2>([&](int half) {
      unsigned word = 0;
      repeat<8>([&](int i) {
        const float y = static_cast<float>(x[8 * half + i]) / step;
        const unsigned nibble = Code::nearest(fabsf(y)) | (__float_as_int(y) < 0) << 3;
        word |= (step == 0.0f ? 0 : nibble) << 4 * i;
      });
      reinterpret_cast<unsigned*>(data)[half] = word;
    });
    *scale = static_cast<unsigned char>(code);
  }
  __device__ static float exp2_of(int e) { return __int_as_float((e + 127) << 23); }
};

extern "C" __global__ void policy_templates(
    const __half* key, const __half* value, unsigned char* key_data, unsigned char* value_data,
    unsigned char* key_scale, unsigned char* value_scale, const long long* slots,
    const float* k_scale, const float* v_scale, long long key_stride, long long value_stride,
    int heads, int head_size, int block_size, long long data_page, long long data_head,
    long long data_token, long long scale_page, long long scale_head, long long scale_token) {
  if (slots[blockIdx.x] < 0) return;
  const long long slot = slots[blockIdx.x], page = slot / block_size, token = slot % block_size;
  const int columns = head_size / 16;
  for (int g = threadIdx.x; g < heads * columns; g += blockDim.x) {
    const int head = g / columns, column = g % columns;
    const long long data = page * data_page + head * data_head + token * data_token + column * 8;
    const long long scale = page * scale_page + head * scale_head + token * scale_token + column;
    using Side = Quantiser<__half, Float4Bit<4>>;
    Side{*k_scale}(key + blockIdx.x * key_stride + g * 16, key_data + data, key_scale + scale);
    Side{*v_scale}(value + blockIdx.x * value_stride + g * 16, value_data + data,
                   value_scale + scale);
  }
}
