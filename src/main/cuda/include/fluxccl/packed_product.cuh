// SPDX-License-Identifier: Apache-2.0
// The locations of rows and sums of a product of PackedProducts, for the kernels before and after it.
#pragma once

#include "config.cuh"

#if defined(FLUXCCL_CUDA)

namespace fluxccl {

constexpr int kTileInputs = 64;

// Returns the index of an element of the multiplied matrix. With tileRows 0, rows of `width` elements are contiguous.
// Otherwise a tile has 64 elements of tileRows rows, whose 16-byte chunks are swizzled as wgmma reads them.
FLUXCCL_DEVICE size_t placeInTiles(int row, int element, int width, int tileRows) {
  if (tileRows == 0) {
    return static_cast<size_t>(row) * width + element;
  }
  const size_t inTiles = (static_cast<size_t>(element / kTileInputs) * tileRows + row) * kTileInputs;
  return inTiles + ((element / 8 ^ row) & 7) * 8 + element % 8;
}

// A product as sums over parts of its inputs, which its reader adds in their order; PackedMatrix.parts(). If there are
// none, the product is in its buffer.
struct ProductParts {
  const float* first;
  long long stride;  // from one part's matrix to the next one's
  int count;
  int unused;

  FLUXCCL_DEVICE float at(size_t index) const {
    float sum = first[index];
    for (int begin = 1; begin < count; begin += 7) {
      float more[7];  // loaded at once: each waits for the memory
#pragma unroll
      for (int i = 0; i < 7; ++i) {
        more[i] = begin + i < count ? first[(begin + i) * stride + index] : 0;
      }
#pragma unroll
      for (int i = 0; i < 7; ++i) {
        sum = begin + i < count ? sum + more[i] : sum;
      }
    }
    return sum;
  }

  // Likewise four elements, from an index that is a multiple of 4.
  FLUXCCL_DEVICE float4 four(size_t index) const {
    float4 sum = *reinterpret_cast<const float4*>(first + index);
    for (int begin = 1; begin < count; begin += 3) {
      float4 more[3];
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (begin + i < count) {
          more[i] = *reinterpret_cast<const float4*>(first + (begin + i) * stride + index);
        }
      }
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (begin + i < count) {
          sum = {sum.x + more[i].x, sum.y + more[i].y, sum.z + more[i].z, sum.w + more[i].w};
        }
      }
    }
    return sum;
  }
};
FLUXCCL_ASSERT_SIZE(ProductParts, 24);

}  // namespace fluxccl

#endif  // FLUXCCL_CUDA
