// What MUFU.RCP gives: `rcp.approx.ftz.f32` of any inputs, and of every mantissa.

__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// result[i] = rcp(1 + i * 2^-23), as bits, for every i below `count`, at most 2^23.
extern "C" __global__ void rcp_of_mantissas(unsigned* result, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) result[i] = __float_as_uint(rcp(__uint_as_float(0x3f800000u | i)));
}

// result[i] = rcp(x[i]), both as bits.
extern "C" __global__ void rcp_of_values(unsigned* result, const unsigned* x, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) result[i] = __float_as_uint(rcp(__uint_as_float(x[i])));
}
