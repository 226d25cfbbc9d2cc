// SPDX-License-Identifier: Apache-2.0
// Copies between the tensors of a bucket and its staging buffer, and compresses them if it is asked to.
#include "element.cuh"

#include <fluxccl/config.cuh>

namespace fluxccl {
namespace collectives {

constexpr uint32_t kBucketMembers = 120;
constexpr uint32_t kBucketPiece = 16384;

// Bytes at the begin of the staging buffer for the largest magnitudes of the tensors on all ranks, as the bits of
// floats. As many bytes follow for those of this rank's tensors, which are 0 except between a search and the packing.
constexpr uint32_t kBucketLargestBytes = 512;

// Types by their numbers in DataType.java, + 1.
constexpr uint32_t kWireHalf = 7;
constexpr uint32_t kWireBfloat16 = 10;
constexpr uint32_t kWireFloat8 = 11;

// The twin of NamedBuckets.java. Tensors lie one after the other in the staging buffer; each begins at a multiple of
// 16 bytes after the largest magnitudes. A block handles a piece of one tensor.
struct BucketTable {
  uint64_t tensors[kBucketMembers];
  uint32_t begins[kBucketMembers];  // bytes from the start of the staging buffer
  uint32_t sizes[kBucketMembers];   // bytes
  uint32_t blocks[kBucketMembers];  // the first block of each tensor
  uint32_t members;
  uint32_t unpacks;
  uint32_t wire;      // the type as which floats travel, or 0 if the tensors are copied
  uint32_t logRanks;  // the binary logarithm of the number of ranks, rounded up
};

// The piece of a block.
struct BucketPiece {
  uint32_t member;
  uint32_t offset;  // bytes from the start of the tensor
  uint32_t bytes;
  char *tensor;  // from the offset on

  __device__ explicit BucketPiece(const BucketTable &table) : member(0) {
    for (uint32_t step = 64; step > 0; step /= 2) {
      const uint32_t next = member + step;
      member = next < table.members && table.blocks[next] <= blockIdx.x ? next : member;
    }
    offset = (blockIdx.x - table.blocks[member]) * kBucketPiece;
    const uint32_t rest = table.sizes[member] - offset;
    bytes = rest < kBucketPiece ? rest : kBucketPiece;
    tensor = reinterpret_cast<char *>(table.tensors[member]) + offset;
  }
};

template <typename T>
__device__ void copyPiece(char *to, const char *from, uint32_t bytes) {
  uint32_t words = bytes / sizeof(T);
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
    reinterpret_cast<T *>(to)[i] = reinterpret_cast<const T *>(from)[i];
  }
  for (uint32_t i = words * sizeof(T) + threadIdx.x; i < bytes; i += blockDim.x) {
    to[i] = from[i];
  }
}

template <typename T>
__device__ void convertPiece(float *tensor, T *staged, uint32_t elements, bool unpacks, float factor) {
  for (uint32_t i = threadIdx.x; i < elements; i += blockDim.x) {
    if (unpacks) {
      tensor[i] = Element<T>::widen(staged[i]) * factor;
    } else {
      staged[i] = Element<T>::narrow(tensor[i] * factor);
    }
  }
}

// Returns the power of two by which the values of a tensor are multiplied: a sum of all ranks is then below 256.
__device__ inline float bucketFactor(uint32_t largest, uint32_t logRanks, bool unpacks) {
  const int exponent = static_cast<int>(largest >> 23) - 127;
  if (exponent > 127 && unpacks) {
    return __uint_as_float(0x7fc00000u);
  }
  int power = 7 - exponent - static_cast<int>(logRanks);
  power = power < -126 ? -126 : power > 126 ? 126 : power;
  return __uint_as_float(static_cast<uint32_t>(127 + (unpacks ? -power : power)) << 23);
}

}  // namespace collectives
}  // namespace fluxccl

using namespace fluxccl;
using namespace fluxccl::collectives;

extern "C" __global__ void fluxccl_bucket(const __grid_constant__ BucketTable table, char *staging) {
  const BucketPiece piece(table);
  char *staged = staging + 2 * kBucketLargestBytes + table.begins[piece.member];
  if (table.wire != 0) {
    float *floats = reinterpret_cast<float *>(piece.tensor);
    const uint32_t begin = piece.offset / sizeof(float);
    const uint32_t elements = piece.bytes / sizeof(float);
    if (table.wire == kWireHalf) {
      convertPiece(floats, reinterpret_cast<Half *>(staged) + begin, elements, table.unpacks, 1.0f);
    } else if (table.wire == kWireBfloat16) {
      convertPiece(floats, reinterpret_cast<Bfloat16 *>(staged) + begin, elements, table.unpacks, 1.0f);
    } else if (table.wire == kWireFloat8) {
      uint32_t *largest = reinterpret_cast<uint32_t *>(staging);
      convertPiece(floats, reinterpret_cast<Float8E4m3 *>(staged) + begin, elements, table.unpacks,
                   bucketFactor(largest[piece.member], table.logRanks, table.unpacks));
      if (blockIdx.x == 0 && !table.unpacks && threadIdx.x < table.members) {
        largest[kBucketLargestBytes / sizeof(uint32_t) + threadIdx.x] = 0;
      }
    }
    return;
  }
  staged += piece.offset;
  char *to = table.unpacks ? piece.tensor : staged;
  const char *from = table.unpacks ? staged : piece.tensor;
  if (table.tensors[piece.member] % sizeof(uint4) == 0) {
    copyPiece<uint4>(to, from, piece.bytes);
  } else if (table.tensors[piece.member] % sizeof(uint32_t) == 0) {
    copyPiece<uint32_t>(to, from, piece.bytes);
  } else {
    copyPiece<char>(to, from, piece.bytes);
  }
}

// Finds the largest magnitude of each of this rank's tensors. The bits of floats that are not negative have their
// order.
extern "C" __global__ void fluxccl_bucket_largest(const __grid_constant__ BucketTable table, uint32_t *staging) {
  __shared__ uint32_t ofThread[256];
  const BucketPiece piece(table);
  const float *tensor = reinterpret_cast<const float *>(piece.tensor);
  const uint32_t elements = piece.bytes / sizeof(float);
  uint32_t own = 0;
  for (uint32_t i = threadIdx.x; i < elements; i += blockDim.x) {
    const uint32_t magnitude = __float_as_uint(tensor[i]) & 0x7fffffffu;
    own = magnitude > own ? magnitude : own;
  }
  ofThread[threadIdx.x] = own;
  __syncthreads();
  for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && ofThread[threadIdx.x + half] > ofThread[threadIdx.x]) {
      ofThread[threadIdx.x] = ofThread[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    atomicMax(staging + kBucketLargestBytes / sizeof(uint32_t) + piece.member, ofThread[0]);
  }
}
