// Even warps store K, odd ones V (all do both where there is one); lanes vote whether to go on, and
// four lanes find the largest magnitude by __reduce_max_sync and shuffles.
// dtype: fp16   arithmetic: specified   layouts: linear, linear
#include <cuda_fp16.h>

__device__ __forceinline__ float rcp_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ unsigned short four_codes(const float (&x)[4], float r) {
  unsigned short result = 0;
  for (int i = 0; i < 4; ++i) {
    const float y = x[i] * r, m = fabsf(y);
    int code;
    if (m < 2.0f) code = __float2int_rn(m * 2.0f);
    else if (m < 4.0f) code = __float2int_rn(m) + 2;
    else code = min(__float2int_rn(m * 0.5f), 3) + 4;
    result |= (code | (__float_as_uint(y) >> 31 << 3)) << 4 * i;
  }
  return result;
}

extern "C" __global__ void split_sides(
    const __half* key, const __half* value, unsigned char* key_data, unsigned char* value_data,
    unsigned char* key_scale, unsigned char* value_scale, const long long* slots,
    const float* k_scale, const float* v_scale, long long key_stride, long long value_stride,
    int heads, int head_size, int block_size, long long data_page, long long data_head,
    long long data_token, long long scale_page, long long scale_head, long long scale_token) {
  const long long slot = slots[blockIdx.x];
  if (slot < 0) return;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int columns = head_size / 16, groups = heads * columns;
  const int page = slot / block_size, token = slot % block_size;
  for (int side = warps > 1 ? warp & 1 : 0; side < 2; side += warps > 1 ? 2 : 1) {
    const __half* row = side ? value + blockIdx.x * value_stride : key + blockIdx.x * key_stride;
    const float g = 1.0f / *(side ? v_scale : k_scale);
    const int step = warps > 1 ? warps / 2 * 8 : 8;
    for (int first = warps > 1 ? warp / 2 * 8 : 0; warps <= 1 || warp / 2 < warps / 2; first += step) {
      const int group = first + lane / 4;
      if (!__any_sync(~0u, group < groups)) break;
      const int from = min(group, groups - 1) * 16 + lane % 4 * 4;
      float x[4];
      for (int i = 0; i < 4; ++i) x[i] = __half2float(row[from + i]);
      unsigned most = 0;
      for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(fabsf(x[i])));
      most = max(most, __shfl_xor_sync(~0u, most, 1));
      most = max(most, __shfl_xor_sync(~0u, most, 2));
      float r = 0.0f;
      unsigned short scale = 0;
      // Nothing to do for eight groups of zeros.
      if (__reduce_max_sync(~0u, most) != 0) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(scale) : "f"(0.0f), "f"(g * (__uint_as_float(most) * 0.16666666666f)));
        unsigned halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(scale));
        const float decoded = __half2float(__ushort_as_half((unsigned short)halves));
        if (decoded != 0.0f) r = rcp_of(decoded * rcp_of(g));
      }
      const unsigned short codes = four_codes(x, r);
      __syncwarp();
      if (group >= groups) continue;
      const int head = group / columns, column = group % columns;
      *(unsigned short*)((side ? value_data : key_data) + page * data_page + head * data_head +
                         token * data_token + column * 8 + lane % 4 * 2) = codes;
      if (lane % 4 == 0)
        (side ? value_scale : key_scale)[page * scale_page + head * scale_head +
                                         token * scale_token + column] = scale;
    }
  }
}
