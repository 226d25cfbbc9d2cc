// SPDX-License-Identifier: Apache-2.0
// Attention by tensor cores on GPUs of compute capability 9.0, for up to 8 queries a head of keys; compiled after
// hopper.cu. A warp takes a page of 16 tokens at a time: page p of a sequence is for warp p % 4 of group p / 4 % 8.
// A group's partial results are added in its warps' order, then those of the groups, whose blocks are a cluster.

namespace {

constexpr int kGroups = 8;
constexpr int kWarpsOfGroup = 4;
constexpr int kNear = HEAD_DIM < 64 ? HEAD_DIM / 8 : 8;  // elements of a value side by side in a lane
constexpr int kRuns = HEAD_DIM / 8 / kNear;              // how many such runs
constexpr int kHalf = HEAD_DIM / 16;                     // half of a lane's elements
constexpr int kFoundOfHead = GROUP * HEAD_DIM;
constexpr int kPlaces = kGroups * kWarpsOfGroup;
constexpr int kBlocksAtOnce = 4;                         // on a multiprocessor
constexpr float kNothing = -1e30f;
static_assert(HEAD_DIM % 32 == 0 && GROUP <= 8, "CudaKernels.java chooses the other attention");

// Of some tokens: the highest score, the sum of weights relative to it, and of weighted values; by query.
struct Found {
  float most[GROUP];
  float whole[GROUP];
  float sum[kFoundOfHead];
};

// An element of the result while such are added. Each rounding is spelt out: it must be the same in every kernel.
struct alignas(16) Folded {
  float most = kNothing;
  float whole = 0;
  float sum = 0;

  __device__ __forceinline__ void add(const Folded& other) {
    const float highest = fmaxf(most, other.most);
    const float before = exp2f(most - highest);
    const float share = exp2f(other.most - highest);
    most = highest;
    whole = __fmaf_rn(other.whole, share, __fmul_rn(whole, before));
    sum = __fmaf_rn(other.sum, share, __fmul_rn(sum, before));
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

// The page that a warp has in shared memory: rows of keys, then of values, whose 16-byte chunks are swizzled.
constexpr int kChunks = HEAD_DIM / 8;  // of a row
constexpr int kPageBytes = 2 * kPage * HEAD_DIM * 2;

// Which chunk of a row is in which place: lanes that read at once find theirs in different banks.
__device__ __forceinline__ int placeOfChunk(int row, int chunk) {
  return row * kChunks + (chunk ^ (((row & 1) << 2 | (row >> 1 & 3)) % kChunks));
}

// Brings a page into the cache.
__device__ __forceinline__ void prefetchPage(const Element* keys, const Element* values, size_t page) {
  constexpr int kLines = kPage * HEAD_DIM * 2 / 128;
  for (int line = threadIdx.x % 32; line < kLines; line += 32) {
    fluxccl::prefetch(keys + page * kPage * HEAD_DIM + line * 64);
    fluxccl::prefetch(values + page * kPage * HEAD_DIM + line * 64);
  }
}

// Begins to copy a page, with zeros after the last token, because a weight of zero times them must be zero.
__device__ __forceinline__ void fetch(unsigned char* shared, const Element* keys, const Element* values, size_t page,
                                      int last) {
  const fluxccl::uint32_t to = fluxccl::sharedAddress(shared);
#pragma unroll
  for (int i = 0; i < 2 * kPage * kChunks / 32; ++i) {
    const int chunk = i % (kPage * kChunks / 32) * 32 + threadIdx.x % 32;
    const bool isKey = i < kPage * kChunks / 32;
    const int row = chunk / kChunks;
    const Element* from = (isKey ? keys : values) + page * kPage * HEAD_DIM + chunk * 8;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     to + (isKey ? 0 : kPageBytes / 2) + placeOfChunk(row, chunk % kChunks) * 16),
                 "l"(__cvta_generic_to_global(from)), "r"(row <= last ? 16 : 0)
                 : "memory");
  }
}

// A page's keys and values as a lane holds them. Lane 4 g + t has, of the keys of tokens g and 8 + g, the 8 elements
// from 8 t on of each 32. Of the values of tokens 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, it has runs of kNear elements.
struct Page {
  int4 key[2][HEAD_DIM / 32];
  alignas(16) unsigned value[kRuns][4][kNear / 2];

  // Returns an element of this lane's values, of two neighbouring tokens.
  __device__ __forceinline__ unsigned pair(int element, int token) const {
    const unsigned(&run)[4][kNear / 2] = value[element / kNear];
    const int word = element % kNear / 2;
    return __byte_perm(run[token][word], run[token + 1][word], element % 2 ? 0x7632 : 0x5410);
  }

  __device__ __forceinline__ void load(const unsigned char* shared) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int c = 0; c < HEAD_DIM / 32; ++c) {
        key[i][c] = *reinterpret_cast<const int4*>(shared + placeOfChunk(8 * i + g, 4 * c + t) * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const int element = (run * 8 + g) * kNear;
        const int place = placeOfChunk(i / 2 * 8 + 2 * t + i % 2, element / 8) * 16 + element % 8 * 2;
        if constexpr (kNear == 8) {
          *reinterpret_cast<int4*>(value[run][i]) = *reinterpret_cast<const int4*>(shared + kPageBytes / 2 + place);
        } else {
          *reinterpret_cast<int2*>(value[run][i]) = *reinterpret_cast<const int2*>(shared + kPageBytes / 2 + place);
        }
      }
    }
  }
};

// A warp's partial results. Lane 4 g + t has, for queries 2 t and 2 t + 1, the elements of the lanes' values and the
// weights of its own keys' tokens.
struct State {
  float most[2];
  float whole[2];
  float sums[kHalf][4];  // of two queries: of one element, and of the one at + kHalf

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

// Returns a group's partial result of an element, added in the order of its warps.
__device__ __forceinline__ Folded foundOf(const Found (&warps)[kWarpsOfGroup], int element) {
  Folded folded;
#pragma unroll
  for (int w = 0; w < kWarpsOfGroup; ++w) {
    folded.add({warps[w].most[element / HEAD_DIM], warps[w].whole[element / HEAD_DIM], warps[w].sum[element]});
  }
  return folded;
}

// Iterates over the pages of a warp: those of this block's groups, group by group.
template <int kBlocks>
struct Place {
  int group;
  int page;
  int count;  // of the sequence's pages

  __device__ __forceinline__ bool isOver() const { return group * kWarpsOfGroup >= min(count, kPlaces); }
  __device__ __forceinline__ bool hasPage() const { return !isOver() && page < count; }

  __device__ __forceinline__ void next() {
    page += kPlaces;
    if (page >= count) {
      group += kBlocks;
      page = group * kWarpsOfGroup + static_cast<int>(threadIdx.x) / 32;
    }
  }
};

// A lane's part of the queries, as State multiplies by them; zeros for those that a head has not.
__device__ __forceinline__ void loadQueries(const Element* from, int4 (&query)[HEAD_DIM / 32]) {
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int c = 0; c < HEAD_DIM / 32; ++c) {
    const Element* own = from + g * HEAD_DIM + c * 32 + threadIdx.x % 4 * 8;
    query[c] = g < GROUP ? *reinterpret_cast<const int4*>(own) : int4{0, 0, 0, 0};
  }
}

// Brings a warp's pages into shared memory, each while the one before is worked on.
template <int kBlocks>
struct Reader {
  const Element* keys;  // of the head's first page
  const Element* values;
  const int* pages;  // of the sequence
  int kvHeads;
  int last;  // token
  unsigned char* shared;
  Place<kBlocks> ahead;
  int number;  // of the page to be fetched next

  __device__ __forceinline__ void readNumber() { number = ahead.hasPage() ? pages[ahead.page] : 0; }

  __device__ __forceinline__ void prefetchNext() const {
    if (ahead.hasPage()) {
      prefetchPage(keys, values, static_cast<size_t>(number) * kvHeads);
    }
  }

  __device__ __forceinline__ void fetchNext() {
    if (ahead.hasPage()) {
      fetch(shared, keys, values, static_cast<size_t>(number) * kvHeads, last - ahead.page * kPage);
    }
    ahead.next();
    readNumber();
  }
};

// Adds up results in a block: those of a group's warps, and its share of the elements over all groups.
template <int kBlocks>
struct Adder {
  static constexpr int kThreads = kWarpsOfGroup * 32;
  static constexpr int kShare = kFoundOfHead / kBlocks;
  static constexpr int kOfThread = (kShare + kThreads - 1) / kThreads;
  using Groups = Folded[kBlocks == 1 ? 1 : kGroups][kBlocks == 1 ? 1 : kShare];

  Found (&warps)[kWarpsOfGroup];
  Groups& groups;  // of a cluster: this block's share of each group's elements
  fluxccl::TransactionBarrier& given;  // when all of them are there
  Folded folded[kOfThread];

  // By all threads of a cluster, before anything else.
  __device__ __forceinline__ void begin(int count) {
    if constexpr (kBlocks > 1) {
      if (threadIdx.x == 0) {
        given.init(1);
        fluxccl::fenceBarrierInit();
        given.arriveAndExpect(count * kShare * sizeof(Folded));
      }
      arriveInCluster();
    }
  }

  // Behind the stores of the warps; another barrier must follow.
  __device__ __forceinline__ void addGroup(int group) {
    if constexpr (kBlocks == 1) {
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        if (threadIdx.x + i * kThreads < kShare) {
          folded[i].add(foundOf(warps, threadIdx.x + i * kThreads));
        }
      }
    } else {
      awaitCluster();  // others may be given to only when they have begun
#pragma unroll
      for (int element = threadIdx.x; element < kFoundOfHead; element += kThreads) {
        const Folded found = foundOf(warps, element);
        storeTo(element / kShare, &groups[group][element % kShare], {found.most, found.whole, found.sum, 0}, &given);
      }
    }
  }

  __device__ __forceinline__ void store(int block, int count, int row, int head, int kvHeads, int tileRows, Element* out) {
    if constexpr (kBlocks > 1) {
      if (block >= count) {
        awaitCluster();  // it had no group to add
      }
      while (!given.isOver(0)) {
      }
    }
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int mine = threadIdx.x + i * kThreads;
      if (mine < kShare) {
        Folded all = folded[i];
        if constexpr (kBlocks > 1) {
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
            if (group < count) {
              all.add(groups[group][mine]);
            }
          }
        }
        const int element = head * kFoundOfHead + block * kShare + mine;
        out[fluxccl::placeInTiles(row, element, kvHeads * kFoundOfHead, tileRows)] = toElement(all.sum / all.whole);
      }
    }
  }
};

// A cluster of blocks has a row and head of keys, and each block every kBlocks-th group.
template <int kBlocks>
__device__ __forceinline__ void attendTo(const Step* step, const Element* qkv, const Element* keys,
                                         const Element* values, const int* pages, int pagesOfSequence, int kvHeads,
                                         int tileRows, Element* out) {
  __shared__ Found warps[kWarpsOfGroup];
  __shared__ typename Adder<kBlocks>::Groups groups;
  __shared__ fluxccl::TransactionBarrier given;
  const int warp = threadIdx.x / 32;
  const int block = blockIdx.x % kBlocks;
  const int index = blockIdx.x / kBlocks / kvHeads;
  const int head = blockIdx.x / kBlocks % kvHeads;
  if (index >= step->rows) {  // copied before the step's first kernel, which stored the numbers of pages
    beginLaunch();
    return;
  }
  const int last = step->row(index).position;
  const int count = last / kPage + 1;
  const int groupsOfAll = min(kGroups, (count + kWarpsOfGroup - 1) / kWarpsOfGroup);
  Adder<kBlocks> adder = {warps, groups, given, {}};
  adder.begin(groupsOfAll);
  const size_t ofHead = static_cast<size_t>(head) * kPage * HEAD_DIM;
  Place<kBlocks> place = {block, block * kWarpsOfGroup + warp, count};
  Reader<kBlocks> reader = {keys + ofHead, values + ofHead,
                            pages + static_cast<size_t>(step->row(index).sequence) * pagesOfSequence,
                            kvHeads, last, fluxccl::dynamicShared() + warp * kPageBytes, place, 0};
  reader.readNumber();
  reader.prefetchNext();
  fluxccl::letNextLaunchBegin();  // after the first reads; no rank waits for another one here
  fluxccl::awaitLaunchBefore();
  reader.fetchNext();
  int4 query[HEAD_DIM / 32];
  loadQueries(qkv + (static_cast<size_t>(index) * (GROUP + 2) * kvHeads + head * GROUP) * HEAD_DIM, query);
  State state;
  state.begin();
  while (!place.isOver()) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    if (place.hasPage()) {
      Page page;
      page.load(reader.shared);
      state.add(query, page, last - place.page * kPage);
    }
    __syncwarp();  // the page has been read
    reader.fetchNext();
    const int group = place.group;
    place.next();
    if (place.group != group) {
      state.store(warps[warp]);
      state.begin();
      __syncthreads();
      adder.addGroup(group);
      __syncthreads();
    }
  }
  adder.store(block, groupsOfAll, index, head, kvHeads, tileRows, out);
}

}  // namespace

// The unused argument is the window of attention.cu, which CudaKernels.java chooses for models with sliding windows.
#define ATTEND(blocks)                                                                                             \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(128, kBlocksAtOnce) attend##blocks(  \
      const Step* step, const Element* qkv, const Element* keys, const Element* values, const int* pages,          \
      int pagesOfSequence, int kvHeads, int, int tileRows, Element* out) {                                         \
    attendTo<blocks>(step, qkv, keys, values, pages, pagesOfSequence, kvHeads, tileRows, out);                     \
  }
ATTEND(1)
ATTEND(8)
