// A step's kernels but for the matrix products, which are cuBLASLt's. Kernels.java says what each computes, StepRows.java
// and Nucleus.java how rows are described and tokens chosen. Every result depends on its own row alone, bit by bit:
// sums are made in an order that neither the number of rows nor of blocks changes.

// What one compilation is for; CudaKernels.java names them.
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef GROUP  // heads of queries that share one of keys and values
#define GROUP 4
#endif

namespace {

constexpr int kPage = 16;
constexpr int kBins = 256;
constexpr unsigned kAll = 0xffffffffu;

#ifdef FLOAT_ELEMENTS
using Element = float;
__device__ inline float toFloat(Element element) { return element; }
__device__ inline Element toElement(float value) { return value; }
#else
struct Element {  // a bfloat16
  unsigned short bits;
};
__device__ inline float toFloat(Element element) { return __uint_as_float(static_cast<unsigned>(element.bits) << 16); }
__device__ inline Element toElement(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = value != value ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);  // to nearest, even
  return {static_cast<unsigned short>(rounded >> 16)};
}
#endif

constexpr int kVector = 16 / sizeof(Element);  // elements of a load

__device__ inline void unpack(const int4& loaded, float* to) {
  const int words[] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#ifdef FLOAT_ELEMENTS
    to[i] = __int_as_float(words[i]);
#else
    to[2 * i] = __int_as_float(words[i] << 16);
    to[2 * i + 1] = __int_as_float(words[i] & static_cast<int>(0xffff0000u));
#endif
  }
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

// A block for each row.
extern "C" __global__ void embed(const Step* step, const Element* table, int width, float* out) {
  const int row = blockIdx.x;
  if (row >= step->rows) {
    return;
  }
  const Element* from = table + static_cast<size_t>(step->row(row).token) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    out[static_cast<size_t>(row) * width + i] = toFloat(from[i]);
  }
}

// A block for each row. Adds delta first, unless it is null.
extern "C" __global__ void __launch_bounds__(512)
    addNorm(const Step* step, float* x, const Element* delta, const Element* gain, float epsilon, int width, Element* out) {
  const int row = blockIdx.x;
  if (row >= step->rows) {
    return;
  }
  const size_t first = static_cast<size_t>(row) * width;
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float value = x[first + i];
    if (delta != nullptr) {
      value += toFloat(delta[first + i]);
      x[first + i] = value;
    }
    squares += value * value;
  }
  const float scale = 1.0f / sqrtf(ofBlock(squares, Sum()) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    out[first + i] = toElement(x[first + i] * scale * toFloat(gain[i]));
  }
}

// RoPE: a block for each row turns queries in place, and stores turned keys, values, and the page's number.
// Keys and values of a layer: [page][head][token][element].
extern "C" __global__ void turnAndStore(const Step* step, Element* qkv, const float* frequencies, int kvHeads, Element* keys,
                                        Element* values, int* pages, int pagesOfSequence) {
  constexpr int kHalf = HEAD_DIM / 2;
  __shared__ float cosines[kHalf];
  __shared__ float sines[kHalf];
  const int index = blockIdx.x;
  if (index >= step->rows) {
    return;
  }
  const Row row = step->row(index);
  for (int i = threadIdx.x; i < kHalf; i += blockDim.x) {
    constexpr double kTurn = 6.283185307179586476925;
    const double angle = static_cast<double>(row.position) * frequencies[i];
    const float within = static_cast<float>(angle - rint(angle / kTurn) * kTurn);
    cosines[i] = cosf(within);
    sines[i] = sinf(within);
  }
  if (threadIdx.x == 0) {
    pages[row.sequence * pagesOfSequence + row.position / kPage] = row.slot / kPage;
  }
  __syncthreads();
  const int heads = GROUP * kvHeads;
  Element* from = qkv + static_cast<size_t>(index) * (heads + 2 * kvHeads) * HEAD_DIM;
  const size_t page = static_cast<size_t>(row.slot / kPage) * kvHeads;
  const int token = row.slot % kPage;
  for (int i = threadIdx.x; i < (heads + kvHeads) * kHalf; i += blockDim.x) {
    const int head = i / kHalf;
    const int element = i % kHalf;
    Element* at = from + head * HEAD_DIM + element;
    Element* to = head < heads ? at : keys + ((page + head - heads) * kPage + token) * HEAD_DIM + element;
    const float x = toFloat(at[0]);
    const float y = toFloat(at[kHalf]);
    to[0] = toElement(x * cosines[element] - y * sines[element]);
    to[kHalf] = toElement(y * cosines[element] + x * sines[element]);
  }
  for (int i = threadIdx.x; i < kvHeads * HEAD_DIM; i += blockDim.x) {
    const int head = i / HEAD_DIM;
    values[((page + head) * kPage + token) * HEAD_DIM + i % HEAD_DIM] = from[(heads + kvHeads) * HEAD_DIM + i];
  }
}

// Attention: some lanes, a team, read a token together; a team goes through every kTeams-th token of its warps.
constexpr int kWarps = 8;  // of 256 threads
constexpr int kLanes = HEAD_DIM / kVector;
constexpr int kTeams = kWarps * 32 / kLanes;
constexpr int kAtOnce = GROUP <= 4 ? 4 : 2;
constexpr float kNone = -1e30f;
static_assert(kLanes >= 1 && kLanes <= 32 && 32 % kLanes == 0, "a token's key is read by 1, 2, 4 ... 32 lanes");

namespace {

// What the warps of a block have found.
struct Warps {
  float most[kWarps][GROUP];
  float whole[kWarps][GROUP];
  float sum[kWarps][GROUP * HEAD_DIM];

  __device__ __forceinline__ float merged(int element) const {
    const int g = element / HEAD_DIM;
    float highest = kNone;
    for (int w = 0; w < kWarps; ++w) {
      highest = fmaxf(highest, most[w][g]);
    }
    float all = 0;
    float found = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float share = exp2f(most[w][g] - highest);
      all += whole[w][g] * share;
      found += sum[w][element] * share;
    }
    return found / all;
  }
};

// A softmax in progress: a lane's elements of what the queries have found.
struct Found {
  float sum[GROUP][kVector];
  float most[GROUP];
  float whole[GROUP];

  __device__ __forceinline__ void begin(int g) {
    most[g] = kNone;
    whole[g] = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sum[g][i] = 0;
    }
  }

  // Scores are those of queries that were scaled for powers of 2.
  __device__ __forceinline__ void raise(int g, float highest) {
    const float shrink = exp2f(most[g] - highest);
    most[g] = highest;
    whole[g] *= shrink;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sum[g][i] *= shrink;
    }
  }

  __device__ __forceinline__ void add(const float (&score)[kAtOnce][GROUP], const int4 (&value)[kAtOnce]) {
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      float highest = most[g];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        highest = fmaxf(highest, score[u][g]);
      }
      raise(g, highest);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float v[kVector];
      unpack(value[u], v);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        const float weight = score[u][g] > kNone ? exp2f(score[u][g] - most[g]) : 0;
        whole[g] += weight;
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sum[g][i] += weight * v[i];
        }
      }
    }
  }

  // Merges the teams of a warp.
  __device__ __forceinline__ void merge() {
#pragma unroll
    for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        raise(g, fmaxf(most[g], __shfl_xor_sync(kAll, most[g], offset)));
        whole[g] += __shfl_xor_sync(kAll, whole[g], offset);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sum[g][i] += __shfl_xor_sync(kAll, sum[g][i], offset);
        }
      }
    }
  }

  // The first team of a warp stores.
  __device__ __forceinline__ void store(Warps& warps, int warp, int lane, int element) const {
    if (lane >= kLanes) {
      return;
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      warps.most[warp][g] = most[g];
      warps.whole[warp][g] = whole[g];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        warps.sum[warp][g * HEAD_DIM + element + i] = sum[g][i];
      }
    }
  }
};

// A lane's part of a query times one of a key; all lanes of the team get the sum.
__device__ __forceinline__ float dotOf(const float (&query)[kVector], const float (&key)[kVector]) {
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    dot += query[i] * key[i];
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    dot += __shfl_xor_sync(kAll, dot, offset);
  }
  return dot;
}

}  // namespace

// A block of 256 threads for each row and head of keys, whose queries share the loads.
extern "C" __global__ void __launch_bounds__(256)
    attend(const Step* step, const Element* qkv, const Element* keys, const Element* values, const int* pages,
           int pagesOfSequence, int kvHeads, Element* out) {
  __shared__ Warps warps;
  const int index = blockIdx.x / kvHeads;
  const int head = blockIdx.x % kvHeads;
  if (index >= step->rows) {
    return;
  }
  const int length = step->row(index).position + 1;
  const int* own = pages + static_cast<size_t>(step->row(index).sequence) * pagesOfSequence;
  const int team = threadIdx.x / kLanes;
  const int element = threadIdx.x % kLanes * kVector;
  float query[GROUP][kVector];
  Found found;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const size_t at = (static_cast<size_t>(index) * (GROUP + 2) * kvHeads + head * GROUP + g) * HEAD_DIM + element;
    unpack(*reinterpret_cast<const int4*>(qkv + at), query[g]);
    found.begin(g);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      query[g][i] *= 1.4426950408889634f / sqrtf(HEAD_DIM);  // so that powers of 2 will do
    }
  }
  for (int base = team; base - team < length; base += kTeams * kAtOnce) {
    int4 key[kAtOnce];
    int4 value[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int token = min(base + u * kTeams, length - 1);
      const size_t at =
          ((static_cast<size_t>(own[token / kPage]) * kvHeads + head) * kPage + token % kPage) * HEAD_DIM + element;
      key[u] = *reinterpret_cast<const int4*>(keys + at);
      value[u] = *reinterpret_cast<const int4*>(values + at);
    }
    float score[kAtOnce][GROUP];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float k[kVector];
      unpack(key[u], k);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        const float dot = dotOf(query[g], k);
        score[u][g] = base + u * kTeams < length ? dot : kNone;
      }
    }
    found.add(score, value);
  }
  found.merge();
  found.store(warps, threadIdx.x / 32, threadIdx.x % 32, element);
  __syncthreads();
  for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += blockDim.x) {
    out[(static_cast<size_t>(index) * kvHeads + head) * GROUP * HEAD_DIM + i] = toElement(warps.merged(i));
  }
}

// Some blocks for each row.
extern "C" __global__ void gate(const Step* step, const Element* gateAndUp, int width, int blocks, Element* out) {
  const size_t row = blockIdx.x / blocks;
  if (row >= static_cast<size_t>(step->rows)) {
    return;
  }
  const Element* from = gateAndUp + row * 2 * width;
  for (int i = blockIdx.x % blocks * blockDim.x + threadIdx.x; i < width; i += blocks * blockDim.x) {
    const float x = toFloat(from[i]);
    out[row * width + i] = toElement(x / (1 + expf(-x)) * toFloat(from[width + i]));
  }
}
