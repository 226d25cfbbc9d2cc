// SPDX-License-Identifier: Apache-2.0
// Attention on any GPU; compiled after llama.cu. Some lanes, a team, read a token together; a team goes through every
// kTeams-th token.

namespace {

constexpr int kVector = 16 / sizeof(Element);  // elements of a load
constexpr int kWarps = 8;  // of 256 threads
constexpr int kLanes = HEAD_DIM / kVector;
constexpr int kTeams = kWarps * 32 / kLanes;
constexpr int kAtOnce = GROUP <= 4 ? 4 : 2;
constexpr float kNone = -1e30f;
static_assert(kLanes >= 1 && kLanes <= 32 && 32 % kLanes == 0, "a token's key is read by 1, 2, 4 ... 32 lanes");

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

// The partial results of a block's warps.
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
           int pagesOfSequence, int kvHeads, int window, int tileRows, Element* out) {
  __shared__ Warps warps;
  const int index = blockIdx.x / kvHeads;
  const int head = blockIdx.x % kvHeads;
  if (!beginLaunch(index, step->rows)) {
    return;
  }
  const int length = step->row(index).position + 1;
  const int start = window > 0 ? max(0, length - window) : 0;  // tokens before it are not attended to
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
  for (int base = start + team; base - team < length; base += kTeams * kAtOnce) {
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
    const int element = head * GROUP * HEAD_DIM + i;
    out[fluxccl::placeInTiles(index, element, kvHeads * GROUP * HEAD_DIM, tileRows)] = toElement(warps.merged(i));
  }
}
