// SPDX-License-Identifier: Apache-2.0
// A step's kernels but for attention, the choice of tokens and the matrix products. Kernels.java documents
// each kernel, StepRows.java the description of rows, Nucleus.java the choice of tokens. Every result depends on its own
// row alone, bit by bit: sums are made in an order that neither the number of rows nor of blocks changes.

// Parameters of one compilation; CudaKernels.java sets them.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef GROUP  // heads of queries that share one of keys and values
#define GROUP 4
#endif

#include <fluxccl/packed_product.cuh>
#include <fluxccl/packet.cuh>
#include <fluxccl/ptx.cuh>

namespace {

constexpr int kPage = 16;
constexpr int kBins = 256;
constexpr unsigned kAll = 0xffffffffu;

#ifdef FLOAT_ELEMENTS
using Element = float;
using Four = int4;  // as much as four elements
__device__ inline float toFloat(Element element) { return element; }
__device__ inline Element toElement(float value) { return value; }
#else
struct Element {  // a bfloat16
  unsigned short bits;
};
using Four = int2;  // as much as four elements
__device__ inline float toFloat(Element element) { return __uint_as_float(static_cast<unsigned>(element.bits) << 16); }
__device__ inline Element toElement(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = value != value ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);  // to nearest, even
  return {static_cast<unsigned short>(rounded >> 16)};
}
#endif

__device__ inline float gated(float gate, float up) { return gate / (1 + expf(-gate)) * up; }

__device__ inline Four toFour(float a, float b, float c, float d) {
  alignas(sizeof(Four)) const Element four[] = {toElement(a), toElement(b), toElement(c), toElement(d)};
  return *reinterpret_cast<const Four*>(four);
}

__device__ inline float4 ofFour(const Four& from) {
  alignas(sizeof(Four)) Element four[4];
  *reinterpret_cast<Four*>(four) = from;
  return {toFloat(four[0]), toFloat(four[1]), toFloat(four[2]), toFloat(four[3])};
}

__device__ inline void storeFour(Element* to, float a, float b, float c, float d) {
  *reinterpret_cast<Four*>(to) = toFour(a, b, c, d);
}

__device__ inline float4 loadFour(const Element* from) { return ofFour(*reinterpret_cast<const Four*>(from)); }

__device__ inline float4 plus(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Returns an element, or four, of a product that was left in parts, or is in a matrix.
__device__ inline float elementOf(const fluxccl::ProductParts& parts, const Element* otherwise, size_t index) {
  return parts.count > 0 ? parts.at(index) : toFloat(otherwise[index]);
}
__device__ inline float4 fourOf(const fluxccl::ProductParts& parts, const Element* otherwise, size_t index) {
  return parts.count > 0 ? parts.four(index) : loadFour(otherwise + index);
}

// Begins a kernel, whose launch may overlap the one before. In this order, because kernels that wait for another rank
// may be in front: meanwhile the next one must not take room from a rank on the same GPU.
__device__ inline void beginLaunch() {
  fluxccl::awaitLaunchBefore();
  fluxccl::letNextLaunchBegin();
}

// Likewise, and returns whether a row is one of the step's, whose count may be read only then.
__device__ inline bool beginLaunch(int row, const int& count) {
  beginLaunch();
  return row < count;
}

struct Row {
  int token;
  int position;
  int sequence;
  int slot;
  float temperature;
  float topP;
  long long seed;
};

struct Step {
  int rows;
  int chosen;
  int nucleus;
  int unused[13];

  __device__ const Row& row(int index) const { return reinterpret_cast<const Row*>(this + 1)[index]; }
};

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const { return a + b; }
};
struct Most {
  template <class T>
  __device__ T operator()(T a, T b) const { return a < b ? b : a; }
};

// Combines a value of each thread, in a fixed order; all threads get the result.
template <class T, class Combine>
__device__ T ofBlock(T value, Combine combine) {
  __shared__ T partial[32];
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(kAll, value, offset));
  }
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = partial[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
    value = combine(value, partial[warp]);
  }
  return value;
}

}  // namespace

// The first kernel of a step: a block for each row, which also stores the number of the row's page.
extern "C" __global__ void embed(const Step* step, const Element* table, int width, float* out, int* pages,
                                 int pagesOfSequence) {
  const int row = blockIdx.x;
  if (!beginLaunch(row, step->rows)) {
    return;
  }
  if (threadIdx.x == 0) {
    const Row& own = step->row(row);
    pages[own.sequence * pagesOfSequence + own.position / kPage] = own.slot / kPage;
  }
  const Element* from = table + static_cast<size_t>(step->row(row).token) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    out[static_cast<size_t>(row) * width + i] = toFloat(from[i]);
  }
}

namespace {

// Memory of all ranks of a host, through which they exchange rows to add up; PeerSums.java. An area has packets of four
// elements: [2 sets][from rank][row][four]. Packets carry the number of additions of the row. Sets alternate, because a
// rank may be one addition ahead. So earlier packets are never mistaken for current ones.
struct Peers {
  static constexpr int kMost = 8;

  fluxccl::Ll16Packet* areas[kMost];  // by rank, as mapped here
  unsigned* counts;                   // by row: how often it was added
  fluxccl::AbortFlag* abort;
  int rank;
  int nRanks;
  int rows;
  int fours;  // of a row
  int share;  // whether two of the ranks have the same GPU
  int unused;

  __device__ fluxccl::Ll16Packet* place(int owner, int from, unsigned count, int row, int four) const {
    const size_t set = static_cast<size_t>(count & 1) * nRanks + from;
    return areas[owner] + (set * rows + row) * fours + four;
  }

  // Brings the packets that will be read into the cache, while memory is not as busy as with the next product's weights.
  __device__ void prefetch(unsigned count, int row, int four) const {
    for (int from = 0; from < nRanks; ++from) {
      if (from != rank) {
        fluxccl::prefetch(place(rank, from, count, row, four));
      }
    }
  }

  __device__ void give(unsigned count, int row, int four, fluxccl::uint64_t own) const {
    for (int peer = 0; peer < nRanks; ++peer) {
      if (peer != rank) {
        place(peer, rank, count, row, four)->write(own, count);
      }
    }
  }

  // Adds the elements of all ranks in their order, rounded once; returns false if the job was aborted.
  __device__ bool add(unsigned count, int row, int four, fluxccl::uint64_t own, float4& sum) const {
    float4 all = {0, 0, 0, 0};
    for (int from = 0; from < nRanks; ++from) {
      fluxccl::uint64_t given = own;
      const fluxccl::Ll16Packet* packet = place(rank, from, count, row, four);
      if (from != rank && !fluxccl::waitUntil(abort, from, [&] { return packet->tryRead(count, given); })) {
        return false;
      }
      all = plus(all, ofFour(fromBits(given)));
    }
    sum = ofFour(toFour(all.x, all.y, all.z, all.w));
    return true;
  }

  __device__ static fluxccl::uint64_t bitsOf(const float4& value) {
    const Four four = toFour(value.x, value.y, value.z, value.w);
    return static_cast<unsigned>(four.x) | static_cast<fluxccl::uint64_t>(static_cast<unsigned>(four.y)) << 32;
  }

  __device__ static Four fromBits(fluxccl::uint64_t bits) {
    Four four = {};  // of bfloat16; CudaKernels.java does not use it for floats
    four.x = static_cast<int>(bits);
    four.y = static_cast<int>(bits >> 32);
    return four;
  }
};

// Adds parts or delta and a bias, if there are some, to a row of x, and norms it; of all ranks, if kIsOfAll.
template <bool kIsOfAll>
__device__ void addNormTo(const Step* step, float* x, const fluxccl::ProductParts& parts, const Element* delta, const Element* bias,
                          const Element* gain, float epsilon, int width, int tileRows, Element* out, const Peers& peers) {
  constexpr int kMostOfThread = 4;
  const int row = blockIdx.x;
  const bool isRow = row < step->rows;
  float4* fours = reinterpret_cast<float4*>(x + static_cast<size_t>(row) * width);
  const bool adds = delta != nullptr || parts.count > 0;
  unsigned count = 0;
  fluxccl::uint64_t own[kMostOfThread];
  float4 kept[kMostOfThread];
  Four gains[kMostOfThread];
  // Behind a product nothing has written x and counts since the norm before, and the product has awaited that one.
  if (isRow && adds) {
    count = kIsOfAll ? peers.counts[row] + 1 : 0;
#pragma unroll
    for (int i = 0; i < kMostOfThread; ++i) {
      const int four = threadIdx.x + i * blockDim.x;
      if (four < width / 4) {
        kept[i] = fours[four];
        gains[i] = reinterpret_cast<const Four*>(gain)[four];
        if (kIsOfAll) {
          peers.prefetch(count, row, four);
        }
      }
    }
  }
  const bool mayTakeRoom = !kIsOfAll || !peers.share;
  if (mayTakeRoom && parts.count > 0) {
    fluxccl::letNextLaunchBegin();  // which then loads its first weights, where the product has ended
  }
  fluxccl::awaitLaunchBefore();
  if (mayTakeRoom) {
    fluxccl::letNextLaunchBegin();
  }
  if (!isRow) {
    return;
  }
#pragma unroll
  for (int i = 0; i < kMostOfThread; ++i) {
    const int four = threadIdx.x + i * blockDim.x;
    if (four < width / 4) {
      float4 more = {0, 0, 0, 0};
      if (adds) {
        more = fourOf(parts, delta, static_cast<size_t>(row) * width + 4 * four);
      }
      if (kIsOfAll) {
        own[i] = Peers::bitsOf(more);
        peers.give(count, row, four, own[i]);
      }
      if (!adds) {
        kept[i] = fours[four];
        gains[i] = reinterpret_cast<const Four*>(gain)[four];
      } else if (!kIsOfAll) {
        kept[i] = plus(kept[i], more);
      }
    }
  }
  if (kIsOfAll) {
    bool arrived = true;
#pragma unroll
    for (int i = 0; i < kMostOfThread; ++i) {
      const int four = threadIdx.x + i * blockDim.x;
      if (four < width / 4) {
        float4 all = {0, 0, 0, 0};
        arrived = arrived && peers.add(count, row, four, own[i], all);
        kept[i] = plus(kept[i], all);
      }
    }
    if (!__syncthreads_and(arrived)) {
      return;
    }
    if (threadIdx.x == 0) {
      peers.counts[row] = count;
    }
    fluxccl::letNextLaunchBegin();  // not before, if ranks share: it would take room from one for which this waits
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMostOfThread; ++i) {
    const int four = threadIdx.x + i * blockDim.x;
    if (four < width / 4) {
      if (adds) {
        if (bias != nullptr) {
          kept[i] = plus(kept[i], loadFour(bias + 4 * four));
        }
        fours[four] = kept[i];
      }
      squares += kept[i].x * kept[i].x + kept[i].y * kept[i].y + kept[i].z * kept[i].z + kept[i].w * kept[i].w;
    }
  }
  const float scale = 1.0f / sqrtf(ofBlock(squares, Sum()) / width + epsilon);
#pragma unroll
  for (int i = 0; i < kMostOfThread; ++i) {
    const int four = threadIdx.x + i * blockDim.x;
    if (four < width / 4) {
      const float4 by = ofFour(gains[i]);
      storeFour(out + fluxccl::placeInTiles(row, 4 * four, width, tileRows), kept[i].x * scale * by.x, kept[i].y * scale * by.y,
                kept[i].z * scale * by.z, kept[i].w * scale * by.w);
    }
  }
}

}  // namespace

// A block for each row, whose width is at most 16 times the threads.
extern "C" __global__ void __launch_bounds__(1024)
    addNorm(const Step* step, float* x, fluxccl::ProductParts parts, const Element* delta, const Element* bias, const Element* gain,
            float epsilon, int width, int tileRows, Element* out) {
  addNormTo<false>(step, x, parts, delta, bias, gain, epsilon, width, tileRows, out, {});
}

#ifndef FLOAT_ELEMENTS
extern "C" __global__ void __launch_bounds__(1024)
    addNormOfAll(const Step* step, float* x, fluxccl::ProductParts parts, const Element* delta, const Element* bias, const Element* gain,
                 float epsilon, int width, int tileRows, Element* out, const __grid_constant__ Peers peers) {
  addNormTo<true>(step, x, parts, delta, bias, gain, epsilon, width, tileRows, out, peers);
}
#endif

// RoPE: a block for each row and head of keys turns the queries that share it, and stores the turned key and the value.
// Keys and values of a layer: [page][head][token][element]. Queries, keys and values come from parts or from qkv, where
// the queries go to. If there are, a bias is added and queries and keys are normed first.
extern "C" __global__ void __launch_bounds__(1024)
    turnAndStore(const Step* step, fluxccl::ProductParts parts, Element* qkv, const Element* bias,
                                        const Element* queryGain, const Element* keyGain, float epsilon, const float* frequencies,
                                        float ropeScale, int kvHeads, Element* keys, Element* values) {
  constexpr int kHalf = HEAD_DIM / 2;
  __shared__ float cosines[kHalf];
  __shared__ float sines[kHalf];
  const int index = blockIdx.x / kvHeads;
  const int kvHead = blockIdx.x % kvHeads;
  fluxccl::letNextLaunchBegin();  // no rank waits for another one here
  if (index >= step->rows) {      // copied before the step's first kernel
    fluxccl::awaitLaunchBefore();
    return;
  }
  const Row row = step->row(index);
  for (int i = threadIdx.x; i < kHalf; i += blockDim.x) {
    constexpr double kTurn = 6.283185307179586476925;
    const double angle = static_cast<double>(row.position) * frequencies[i];
    const float within = static_cast<float>(angle - rint(angle / kTurn) * kTurn);
    cosines[i] = cosf(within) * ropeScale;
    sines[i] = sinf(within) * ropeScale;
  }
  __syncthreads();
  fluxccl::awaitLaunchBefore();
  const int heads = GROUP * kvHeads;
  const size_t first = static_cast<size_t>(index) * (heads + 2 * kvHeads) * HEAD_DIM;
  const size_t stored =
      ((static_cast<size_t>(row.slot / kPage) * kvHeads + kvHead) * kPage + row.slot % kPage) * HEAD_DIM;
  const auto valueOf = [&](int element) {
    return elementOf(parts, qkv, first + element) + (bias == nullptr ? 0 : toFloat(bias[element]));
  };
  __shared__ float scales[GROUP + 1];
  if (queryGain != nullptr) {
    for (int i = threadIdx.x / 32; i < GROUP + 1; i += blockDim.x / 32) {
      const int head = i < GROUP ? kvHead * GROUP + i : heads + kvHead;
      float squares = 0;
      for (int element = threadIdx.x % 32; element < HEAD_DIM; element += 32) {
        const float value = valueOf(head * HEAD_DIM + element);
        squares += value * value;
      }
      for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(kAll, squares, offset);
      }
      scales[i] = 1.0f / sqrtf(squares / HEAD_DIM + epsilon);
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < (GROUP + 1) * kHalf + HEAD_DIM; i += blockDim.x) {
    if (i >= (GROUP + 1) * kHalf) {
      const int element = i - (GROUP + 1) * kHalf;
      values[stored + element] = toElement(valueOf((heads + kvHeads + kvHead) * HEAD_DIM + element));
      continue;
    }
    const bool isQuery = i < GROUP * kHalf;
    const int head = isQuery ? kvHead * GROUP + i / kHalf : heads + kvHead;
    const int element = i % kHalf;
    const size_t at = first + head * HEAD_DIM + element;
    Element* to = isQuery ? qkv + at : keys + stored + element;
    float x = valueOf(head * HEAD_DIM + element);
    float y = valueOf(head * HEAD_DIM + element + kHalf);
    if (queryGain != nullptr) {
      const Element* gain = isQuery ? queryGain : keyGain;
      x *= scales[i / kHalf] * toFloat(gain[element]);
      y *= scales[i / kHalf] * toFloat(gain[element + kHalf]);
    }
    to[0] = toElement(x * cosines[element] - y * sines[element]);
    to[kHalf] = toElement(y * cosines[element] + x * sines[element]);
  }
}

// Some blocks for each row.
extern "C" __global__ void gate(const Step* step, fluxccl::ProductParts parts, const Element* gateAndUp, const Element* bias, int width,
                                int blocks, int tileRows, Element* out) {
  const int row = blockIdx.x / blocks;
  if (!beginLaunch(row, step->rows)) {
    return;
  }
  const size_t from = static_cast<size_t>(row) * 2 * width;
  const auto valueOf = [&](int element) {
    return elementOf(parts, gateAndUp, from + element) + (bias == nullptr ? 0 : toFloat(bias[element]));
  };
  for (int i = blockIdx.x % blocks * blockDim.x + threadIdx.x; i < width; i += blocks * blockDim.x) {
    out[fluxccl::placeInTiles(row, i, width, tileRows)] = toElement(gated(valueOf(i), valueOf(width + i)));
  }
}
