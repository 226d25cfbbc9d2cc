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

// How far a token is behind the most likely one, and its probability relative to that.
__device__ inline int distanceOf(float most, float logit, float temperature) {
  return static_cast<int>(fminf(kBins * kBins - 1, (most - logit) / temperature * 2048.0f));
}
__device__ inline unsigned long long massOf(float most, float logit, float temperature) {
  return static_cast<unsigned long long>(exp((logit - most) / static_cast<double>(temperature)) * (1ll << 40));
}

__device__ inline float gumbel(long long seed, int position, int token) {
  unsigned long long mixed = static_cast<unsigned long long>(seed) * 0x9e3779b97f4a7c15ull +
                             (static_cast<unsigned long long>(position) << 32 | static_cast<unsigned>(token));
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  mixed ^= mixed >> 31;
  const double uniform = (static_cast<double>(mixed >> 12) + 0.5) / static_cast<double>(1ll << 52);
  return static_cast<float>(-log(-log(uniform)));
}

__device__ inline long long candidate(float score, int token) {
  const int bits = __float_as_int(score);
  const int ordered = bits ^ (bits >> 31 & 0x7fffffff);
  return static_cast<long long>(static_cast<unsigned long long>(static_cast<long long>(ordered)) << 32) |
         (0x7fffffff - token);
}

// Returns the first bin with which the masses reach a share of their sum, or the last one.
__device__ inline int firstBin(const long long* masses, long long reach) {
  long long sum = 0;
  for (int bin = 0; bin < kBins - 1; ++bin) {
    sum += masses[bin];
    if (sum >= reach) {
      return bin;
    }
  }
  return kBins - 1;
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

// A block of 256 threads for each row and head of keys; all its queries share the loads. Some lanes read a token together;
// such a team goes through every kTeams-th token with a softmax of its own, and those are merged at the end.
extern "C" __global__ void __launch_bounds__(256)
    attend(const Step* step, const Element* qkv, const Element* keys, const Element* values, const int* pages,
           int pagesOfSequence, int kvHeads, Element* out) {
  constexpr int kWarps = 8;
  constexpr int kLanes = HEAD_DIM / kVector;
  constexpr int kTeams = kWarps * 32 / kLanes;
  constexpr int kAtOnce = GROUP <= 4 ? 4 : 2;
  constexpr float kNone = -1e30f;
  static_assert(kLanes >= 1 && kLanes <= 32 && 32 % kLanes == 0, "a token's key is read by 1, 2, 4 ... 32 lanes");
  __shared__ float mosts[kWarps][GROUP];
  __shared__ float wholes[kWarps][GROUP];
  __shared__ float parts[kWarps][GROUP * HEAD_DIM];

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
  float sum[GROUP][kVector];
  float most[GROUP];
  float whole[GROUP];
  const float scale = 1.4426950408889634f / sqrtf(HEAD_DIM);  // for powers of 2
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const size_t at = (static_cast<size_t>(index) * (GROUP + 2) * kvHeads + head * GROUP + g) * HEAD_DIM + element;
    unpack(*reinterpret_cast<const int4*>(qkv + at), query[g]);
    most[g] = kNone;
    whole[g] = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      query[g][i] *= scale;
      sum[g][i] = 0;
    }
  }

  for (int base = 0; base < length; base += kTeams * kAtOnce) {
    int4 key[kAtOnce];
    int4 value[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int token = min(base + u * kTeams + team, length - 1);
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
      const bool valid = base + u * kTeams + team < length;
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          dot += query[g][i] * k[i];
        }
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) {
          dot += __shfl_xor_sync(kAll, dot, offset);
        }
        score[u][g] = valid ? dot : kNone;
      }
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      float highest = most[g];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        highest = fmaxf(highest, score[u][g]);
      }
      const float shrink = exp2f(most[g] - highest);
      most[g] = highest;
      whole[g] *= shrink;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum[g][i] *= shrink;
      }
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

  // The teams of a warp, then the warps.
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      const float other = __shfl_xor_sync(kAll, most[g], offset);
      const float highest = fmaxf(most[g], other);
      const float mine = exp2f(most[g] - highest);
      const float theirs = exp2f(other - highest);
      most[g] = highest;
      whole[g] = whole[g] * mine + __shfl_xor_sync(kAll, whole[g], offset) * theirs;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum[g][i] = sum[g][i] * mine + __shfl_xor_sync(kAll, sum[g][i], offset) * theirs;
      }
    }
  }
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 < kLanes) {
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      mosts[warp][g] = most[g];
      wholes[warp][g] = whole[g];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        parts[warp][g * HEAD_DIM + element + i] = sum[g][i];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += blockDim.x) {
    const int g = i / HEAD_DIM;
    float highest = kNone;
    for (int w = 0; w < kWarps; ++w) {
      highest = fmaxf(highest, mosts[w][g]);
    }
    float all = 0;
    float found = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float share = exp2f(mosts[w][g] - highest);
      all += wholes[w][g] * share;
      found += parts[w][i] * share;
    }
    out[(static_cast<size_t>(index) * kvHeads + head) * GROUP * HEAD_DIM + i] = toElement(found / all);
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

// The following: a block for each row that gets a next token.

extern "C" __global__ void most(const Step* step, const float* logits, int width, float* most) {
  const int row = blockIdx.x;
  if (row >= step->chosen) {
    return;
  }
  const float* from = logits + static_cast<size_t>(row) * width;
  float highest = from[0];
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    highest = fmaxf(highest, from[i]);
  }
  highest = ofBlock(highest, Most());
  if (threadIdx.x == 0) {
    most[row] = highest;
  }
}

extern "C" __global__ void masses(const Step* step, int level, const float* logits, int width, const float* mosts,
                                  const int* limits, unsigned long long* masses) {
  __shared__ unsigned long long sums[kBins];
  const int row = blockIdx.x;
  if (row >= step->chosen) {
    return;
  }
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    sums[bin] = 0;
  }
  __syncthreads();
  const float temperature = step->row(row).temperature;
  const float* from = logits + static_cast<size_t>(row) * width;
  for (int i = threadIdx.x; temperature > 0 && i < width; i += blockDim.x) {
    const int distance = distanceOf(mosts[row], from[i], temperature);
    if (level == 0) {
      atomicAdd(&sums[distance / kBins], massOf(mosts[row], from[i], temperature));
    } else if (distance / kBins == limits[row]) {
      atomicAdd(&sums[distance % kBins], massOf(mosts[row], from[i], temperature));
    }
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    masses[static_cast<size_t>(row) * kBins + bin] = sums[bin];
  }
}

extern "C" __global__ void limit(const Step* step, int level, const long long* coarse, const long long* fine, int* limits) {
  __shared__ long long first[kBins];
  __shared__ long long second[kBins];
  const int row = blockIdx.x;
  if (row >= step->chosen) {
    return;
  }
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    first[bin] = coarse[static_cast<size_t>(row) * kBins + bin];
    second[bin] = level == 0 ? 0 : fine[static_cast<size_t>(row) * kBins + bin];
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  double all = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    all += static_cast<double>(first[bin]);
  }
  long long reach = static_cast<long long>(all * step->row(row).topP);
  int bin = firstBin(first, reach);
  if (level == 1) {
    for (int before = 0; before < bin; ++before) {
      reach -= first[before];
    }
    bin = bin * kBins + firstBin(second, reach);
  }
  limits[row] = bin;
}

// mosts and limits are null if every row's topP is 1.
extern "C" __global__ void best(const Step* step, const float* logits, int width, int firstToken, const float* mosts,
                                const int* limits, long long* best) {
  const int index = blockIdx.x;
  if (index >= step->chosen) {
    return;
  }
  const Row row = step->row(index);
  const float* from = logits + static_cast<size_t>(index) * width;
  const bool limited = limits != nullptr && row.temperature > 0 && row.topP < 1;
  long long highest = static_cast<long long>(1ull << 63);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    if (limited && distanceOf(mosts[index], from[i], row.temperature) > limits[index]) {
      continue;
    }
    float score = from[i];
    if (row.temperature > 0) {
      score = score / row.temperature + gumbel(row.seed, row.position, firstToken + i);
    }
    const long long one = candidate(score, firstToken + i);
    highest = highest < one ? one : highest;
  }
  highest = ofBlock(highest, Most());
  if (threadIdx.x == 0) {
    best[index] = highest;
  }
}

// One block; next is memory of the host.
extern "C" __global__ void choose(const Step* step, const long long* best, int* next) {
  for (int row = threadIdx.x; row < step->chosen; row += blockDim.x) {
    next[row] = 0x7fffffff - static_cast<int>(best[row]);
  }
}
