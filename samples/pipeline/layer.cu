// SPDX-License-Identifier: Apache-2.0
// One layer of a model whose columns are spread over the ranks; LayerKernel does the same on the host.
#include <fluxccl/fluxccl.cuh>

using namespace fluxccl;

namespace {

constexpr uint32_t kAll = 0xffffffffu;

// The activation between one layer and the next.
__device__ uint32_t activate(uint32_t x) { return x ^ (x >> 7); }

}  // namespace

// output[row] = sum over this rank's columns of weights[row][column] * activate(input[column]),
// modulo 2^32. One warp for each row; whole warps in a block, any number of blocks.
extern "C" __global__ void layer(const uint32_t* weights, const uint32_t* input, uint32_t* output,
                                 int32_t rows, int32_t columns) {
  const int32_t lane = threadIdx.x % 32;
  const int32_t warps = gridDim.x * blockDim.x / 32;
  for (int32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    uint32_t sum = 0;
    for (int32_t column = lane; column < columns; column += 32) {
      sum += weights[static_cast<int64_t>(row) * columns + column] * activate(input[column]);
    }
    for (int32_t distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAll, sum, distance);
    }
    if (lane == 0) {
      output[row] = sum;
    }
  }
}
