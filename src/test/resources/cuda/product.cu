// SPDX-License-Identifier: Apache-2.0
// The product of the fake cuBLASLt: out = in * weights^T, a block for each row. Types are cudaDataType_t's: 0 float,
// 2 binary16, 14 bfloat16.
#include <fluxccl/ptx.cuh>

namespace {

__device__ float element(int type, const void* from, long long index) {
  if (type == 0) {
    return static_cast<const float*>(from)[index];
  }
  const unsigned short bits = static_cast<const unsigned short*>(from)[index];
  return type == 2 ? fluxccl::halfToFloat(bits) : __uint_as_float(static_cast<unsigned>(bits) << 16);
}

}  // namespace

extern "C" __global__ void plain_product(int type, int outType, int outputs, int inputs, const void* in, const void* weights,
                                         void* out) {
  const long long row = blockIdx.x;
  for (int output = threadIdx.x; output < outputs; output += blockDim.x) {
    float sum = 0;
    for (int input = 0; input < inputs; ++input) {
      sum += element(type, in, row * inputs + input) * element(type, weights, static_cast<long long>(output) * inputs + input);
    }
    const long long index = row * outputs + output;
    if (outType == 0) {
      static_cast<float*>(out)[index] = sum;
    } else if (outType == 2) {
      static_cast<unsigned short*>(out)[index] = fluxccl::floatToHalf(sum);
    } else {
      const unsigned bits = __float_as_uint(sum);
      static_cast<unsigned short*>(out)[index] = static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
  }
}
