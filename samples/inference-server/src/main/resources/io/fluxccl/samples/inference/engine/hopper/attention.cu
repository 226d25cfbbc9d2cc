// Attention by tensor cores on GPUs of compute capability 9.0, for up to 8 queries a head of keys; compiled behind
// hopper.cu. A warp takes a page of 16 tokens at a time: page p of a sequence is for warp p % 4 of group p / 4 % 8.
// What the warps of a group have found is added in their order, and so are the groups, by one block or by a cluster of
// eight.

namespace {

constexpr int kGroups = 8;
constexpr int kWarpsOfGroup = 4;
constexpr int kNear = HEAD_DIM < 64 ? HEAD_DIM / 8 : 8;  // elements of a value side by side in a lane
constexpr int kRuns = HEAD_DIM / 8 / kNear;              // how many such runs
constexpr int kHalf = HEAD_DIM / 16;                     // half of a lane's elements
constexpr int kFoundOfHead = GROUP * HEAD_DIM;
constexpr int kBlocksAtOnce = 3;                         // on a multiprocessor
constexpr float kNothing = -1e30f;
static_assert(HEAD_DIM % 32 == 0 && GROUP <= 8, "Products.java chooses the other attention");

// Of some tokens: the highest score, the sum of weights relative to it, and of weighted values; by query.
struct Found {
  float most[GROUP];
  float whole[GROUP];
  float sum[kFoundOfHead];
};

// An element of the result while such are added. Each rounding is spelt out: it must be the same in every kernel.
struct Folded {
  float most = kNothing;
  float whole = 0;
  float sum = 0;

  __device__ __forceinline__ void add(float otherMost, float otherWhole, float otherSum) {
    const float highest = fmaxf(most, otherMost);
    const float before = exp2f(most - highest);
    const float share = exp2f(otherMost - highest);
    most = highest;
    whole = __fmaf_rn(otherWhole, share, __fmul_rn(whole, before));
    sum = __fmaf_rn(otherSum, share, __fmul_rn(sum, before));
  }
};

// Adds the product of 16 x 16 bfloat16 and 16 x 8.
__device__ __forceinline__ void multiplyAdd(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                            unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A page's keys and values as a lane holds them. Lane 4 g + t has of the keys of tokens g and 8 + g the 8 elements from
// 8 t on of each 32, and of the values of tokens 2 t, 2 t + 1, and 8 behind those, runs of kNear elements.
struct Page {
  int4 key[2][HEAD_DIM / 32];
  alignas(16) unsigned value[kRuns][4][kNear / 2];

  // Returns an element of this lane's values, of two neighbouring tokens.
  __device__ __forceinline__ unsigned pair(int element, int token) const {
    const unsigned(&run)[4][kNear / 2] = value[element / kNear];
    const int word = element % kNear / 2;
    return __byte_perm(run[token][word], run[token + 1][word], element % 2 ? 0x7632 : 0x5410);
  }

  __device__ __forceinline__ void load(const Element* keys, const Element* values, size_t page, int last) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    const Element* ofKeys = keys + page * kPage * HEAD_DIM;
    const Element* ofValues = values + page * kPage * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int c = 0; c < HEAD_DIM / 32; ++c) {
        key[i][c] = *reinterpret_cast<const int4*>(ofKeys + min(8 * i + g, last) * HEAD_DIM + c * 32 + t * 8);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        // Values behind the last token are replaced: nothing times them must be nothing.
        const Element* from = ofValues + min(i / 2 * 8 + 2 * t + i % 2, last) * HEAD_DIM + (run * 8 + g) * kNear;
        if constexpr (kNear == 8) {
          *reinterpret_cast<int4*>(value[run][i]) = *reinterpret_cast<const int4*>(from);
        } else {
          *reinterpret_cast<int2*>(value[run][i]) = *reinterpret_cast<const int2*>(from);
        }
      }
    }
  }
};

// What a warp has found: lane 4 g + t for queries 2 t and 2 t + 1 the elements of the lanes' values, and the weights of
// its own keys' tokens.
struct State {
  float most[2];
  float whole[2];
  float sums[kHalf][4];  // two queries' of one element, and of the one kHalf behind it

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = kNothing;
      whole[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHalf * 4; ++i) {
      sums[i / 4][i % 4] = 0;
    }
  }

  __device__ __forceinline__ void add(const int4 (&query)[HEAD_DIM / 32], const Page& page, int last) {
    float score[4] = {0, 0, 0, 0};  // of token g, and of 8 + g
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 32; ++c) {
      const int4& near = page.key[0][c];
      const int4& far = page.key[1][c];
      multiplyAdd(score, near.x, far.x, near.y, far.y, query[c].x, query[c].y);
      multiplyAdd(score, near.z, far.z, near.w, far.w, query[c].z, query[c].w);
    }
    const int token = threadIdx.x % 32 / 4;
    float shrink[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      constexpr float kScale = 1.4426950408889634f;  // so that powers of 2 will do
      score[i] = token <= last ? score[i] * (kScale / sqrtf(HEAD_DIM)) : kNothing;
      score[i + 2] = token + 8 <= last ? score[i + 2] * (kScale / sqrtf(HEAD_DIM)) : kNothing;
      float highest = fmaxf(most[i], fmaxf(score[i], score[i + 2]));
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(kAll, highest, offset));
      }
      shrink[i] = exp2f(most[i] - highest);
      most[i] = highest;
      score[i] = exp2f(score[i] - highest);
      score[i + 2] = exp2f(score[i + 2] - highest);
      whole[i] = whole[i] * shrink[i] + (score[i] + score[i + 2]);
    }
    const unsigned near = transposed(packed(score[0], score[1]));  // of tokens 2 t and 2 t + 1, for query g
    const unsigned far = transposed(packed(score[2], score[3]));
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[i][j] *= shrink[j % 2];
      }
      multiplyAdd(sums[i], page.pair(i, 0), page.pair(i + kHalf, 0), page.pair(i, 2), page.pair(i + kHalf, 2), near,
                  far);
    }
  }

  __device__ __forceinline__ void store(Found& found) const {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = threadIdx.x % 4 * 2 + i;
      float all = whole[i];
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        all += __shfl_xor_sync(kAll, all, offset);
      }
      if (query < GROUP && g == 0) {
        found.most[query] = most[i];
        found.whole[query] = all;
      }
#pragma unroll
      for (int e = 0; e < 2 * kHalf; ++e) {
        if (query < GROUP) {
          found.sum[query * HEAD_DIM + (e / kNear * 8 + g) * kNear + e % kNear] = sums[e % kHalf][e / kHalf * 2 + i];
        }
      }
    }
  }
};

// What a group has found of an element, by its warps' order.
__device__ __forceinline__ Folded foundOf(const Found (&warps)[kWarpsOfGroup], int element) {
  Folded folded;
#pragma unroll
  for (int w = 0; w < kWarpsOfGroup; ++w) {
    folded.add(warps[w].most[element / HEAD_DIM], warps[w].whole[element / HEAD_DIM], warps[w].sum[element]);
  }
  return folded;
}

// One block, or a cluster of one for each group, has a row and head of keys.
template <int kBlocks>
__device__ __forceinline__ void attendTo(const Step* step, const Element* qkv, const Element* keys,
                                         const Element* values, const int* pages, int pagesOfSequence, int kvHeads,
                                         int tileRows, Element* out) {
  constexpr int kThreads = kWarpsOfGroup * 32;
  constexpr int kShare = kFoundOfHead / kBlocks;  // elements of the result that this block adds up
  constexpr int kOfThread = (kShare + kThreads - 1) / kThreads;
  __shared__ Found warps[kWarpsOfGroup];
  __shared__ Found ofGroup;  // of this block's, for the cluster
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x % kBlocks;
  const int index = blockIdx.x / kBlocks / kvHeads;
  const int head = blockIdx.x / kBlocks % kvHeads;
  beginLaunch();
  if (index >= step->rows) {
    return;
  }
  const int last = step->row(index).position;
  const int* own = pages + static_cast<size_t>(step->row(index).sequence) * pagesOfSequence;
  const int count = last / kPage + 1;
  const int groups = min(kGroups, (count + kWarpsOfGroup - 1) / kWarpsOfGroup);
  int4 query[HEAD_DIM / 32];
#pragma unroll
  for (int c = 0; c < HEAD_DIM / 32; ++c) {
    const int g = threadIdx.x % 32 / 4;
    const size_t at = (static_cast<size_t>(index) * (GROUP + 2) * kvHeads + head * GROUP + g) * HEAD_DIM;
    const Element* from = qkv + at + c * 32 + threadIdx.x % 4 * 8;
    query[c] = g < GROUP ? *reinterpret_cast<const int4*>(from) : int4{0, 0, 0, 0};
  }
  Folded folded[kOfThread];
  State state;
  state.begin();
  Page loaded;
  int group = block;
  int page = group * kWarpsOfGroup + warp;
  if (page < count) {
    loaded.load(keys, values, static_cast<size_t>(own[page]) * kvHeads + head, last - page * kPage);
  }
  while (group < groups) {
    __syncwarp();
    int nextGroup = group;
    int next = page + kGroups * kWarpsOfGroup;
    if (next >= count) {
      nextGroup += kBlocks;
      next = nextGroup < groups ? nextGroup * kWarpsOfGroup + warp : count;
    }
    const size_t nextPage = next < count ? own[next] : 0;
    if (page < count) {
      state.add(query, loaded, last - page * kPage);
    }
    if (next < count) {  // it arrives while groups are added
      loaded.load(keys, values, nextPage * kvHeads + head, last - next * kPage);
    }
    page = next;
    if (nextGroup == group) {
      continue;
    }
    group = nextGroup;
    state.store(warps[warp]);
    state.begin();
    __syncthreads();
    if constexpr (kBlocks == 1) {
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        if (threadIdx.x + i * kThreads < kShare) {
          const Folded more = foundOf(warps, threadIdx.x + i * kThreads);
          folded[i].add(more.most, more.whole, more.sum);
        }
      }
      __syncthreads();
    } else {
      for (int element = threadIdx.x; element < kFoundOfHead; element += kThreads) {
        const Folded more = foundOf(warps, element);
        ofGroup.sum[element] = more.sum;
        if (element % HEAD_DIM == 0) {
          ofGroup.most[element / HEAD_DIM] = more.most;
          ofGroup.whole[element / HEAD_DIM] = more.whole;
        }
      }
    }
  }
  if constexpr (kBlocks > 1) {
    syncCluster();
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int mine = threadIdx.x + i * kThreads;
    const int element = block * kShare + mine;
    if (mine >= kShare) {
      break;
    }
    if constexpr (kBlocks > 1) {
#pragma unroll 4
      for (int other = 0; other < groups; ++other) {
        const int query = element / HEAD_DIM;
        folded[i].add(loadOf(other, ofGroup.most + query), loadOf(other, ofGroup.whole + query),
                      loadOf(other, ofGroup.sum + element));
      }
    }
    out[placeOf(index, head * kFoundOfHead + element, kvHeads * kFoundOfHead, tileRows)] =
        toElement(folded[i].sum / folded[i].whole);
  }
  if constexpr (kBlocks > 1) {
    syncCluster();  // until then others read from here
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128, kBlocksAtOnce)
    attend(const Step* step, const Element* qkv, const Element* keys, const Element* values, const int* pages,
           int pagesOfSequence, int kvHeads, int tileRows, Element* out) {
  attendTo<1>(step, qkv, keys, values, pages, pagesOfSequence, kvHeads, tileRows, out);
}

extern "C" __global__ void __cluster_dims__(kGroups, 1, 1) __launch_bounds__(128, kBlocksAtOnce)
    attendByCluster(const Step* step, const Element* qkv, const Element* keys, const Element* values, const int* pages,
                    int pagesOfSequence, int kvHeads, int tileRows, Element* out) {
  attendTo<kGroups>(step, qkv, keys, values, pages, pagesOfSequence, kvHeads, tileRows, out);
}
