// SPDX-License-Identifier: Apache-2.0
// Products with packed matrices of weights on GPUs of compute capability 9.0, launched by PackedKernels.java. A block
// multiplies 128 outputs by 8 to 256 rows: one thread brings tiles of 64 inputs of the weights into shared memory, one
// those of the rows, two warpgroups multiply them. An output is summed in one order, which depends only on the matrix's
// shape. If its inputs are in parts, the next kernel adds their sums, or the last of the blocks of a tile does.

#include <fluxccl/packed_product.cuh>
#include <fluxccl/ptx.cuh>

#include "products/wgmma.cuh"

namespace {

using fluxccl::kSwizzledBytes;
using fluxccl::kTileInputs;

struct Element {  // a bfloat16
  unsigned short bits;
};

__device__ __forceinline__ float gated(float gate, float up) { return gate / (1 + expf(-gate)) * up; }

constexpr int kOutputs = 128;              // of a tile
constexpr int kConsumers = 256;            // threads that multiply; a warp more brings weights, one rows
constexpr int kWeightBytes = 128 * kTileInputs * 2;

__device__ constexpr int stageBytes(int rows) { return kWeightBytes + rows * kTileInputs * 2; }

// Returns how many stages fill the shared memory of a multiprocessor; two blocks of 128 rows share one. A launch whose
// blocks have fewer tiles gives them room for those only, see PackedKernels.java.
__device__ constexpr int stagesOf(int rows) {
  return rows == 256 ? 4 : rows == 128 ? 3 : rows == 64 ? 9 : rows == 32 ? 11 : rows == 16 ? 12 : 13;
}

// Tiles of weights that a block asks for at once: they keep the memory busy, and more would only delay tiles that other
// blocks and launches need sooner.
__device__ constexpr int aheadOf(int stages) { return stages < 3 ? stages : 3; }

// One product: the argument of a launch.
struct Product {
  const Element* weights;  // as pack arranges them
  const Element* in;       // tiled rows
  void* out;               // with gates, elements of silu(gate) * up in tiled rows; otherwise ProductParts
  int outputs;
  int inputs;
  int rows;
  int tileRows;  // per tile of in and of gated rows; also the rows of a part's sums
  int parts;
  int isGated;
  float4* sums;        // of each part, thread by thread, if blocks add the parts
  unsigned* arrivals;  // by a tile's warps: how many of its parts are there; 0 between launches
};

// Goes through this block's tiles of 64 inputs. An item is a part of the inputs for 128 outputs and kRows rows.
template <int kRows>
struct Cursor {
  const Product& product;
  int item;
  int tile;  // among those of the outputs
  int end;

  __device__ __forceinline__ explicit Cursor(const Product& of) : product(of), item(blockIdx.x) { begin(); }

  __device__ __forceinline__ int columns() const { return (product.rows + kRows - 1) / kRows; }
  __device__ __forceinline__ int deep() const { return product.inputs / kTileInputs; }
  __device__ __forceinline__ int part() const { return item / columns() % product.parts; }
  __device__ __forceinline__ int outputs() const { return item / columns() / product.parts; }
  __device__ __forceinline__ int firstRow() const { return item % columns() * kRows; }
  __device__ __forceinline__ bool isOver() const {
    return item >= (product.outputs + kOutputs - 1) / kOutputs * product.parts * columns();
  }

  __device__ __forceinline__ void begin() {
    tile = deep() * part() / product.parts;
    end = deep() * (part() + 1) / product.parts;
  }

  __device__ __forceinline__ void nextItem() {
    item += gridDim.x;
    begin();
  }

  __device__ __forceinline__ void next() {
    if (++tile == end) {
      nextItem();
    }
  }
};

// kJoins: whether blocks add the parts.
template <int kRows, bool kJoins>
struct Block {
  static constexpr int kStages = stagesOf(kRows);
  static constexpr int kStage = stageBytes(kRows);
  static constexpr int kAhead = aheadOf(kStages);

  const Product& product;
  fluxccl::TransactionBarrier* weights;  // by stage: when they are there
  fluxccl::TransactionBarrier* rows;
  fluxccl::TransactionBarrier* empty;
  unsigned char* stages;

  __device__ __forceinline__ const Element* weightsAt(const Cursor<kRows>& at) const {
    return product.weights + (static_cast<size_t>(at.outputs()) * at.deep() + at.tile) * (kWeightBytes / 2);
  }

  // Waits until a stage has been read for the steps before.
  __device__ __forceinline__ void awaitEmpty(int step) const {
    while (step >= kStages && !empty[step % kStages].isOver((step / kStages - 1) & 1)) {
    }
  }

  __device__ __forceinline__ static void awaitFull(fluxccl::TransactionBarrier* full, int step) {
    while (!full[step % kStages].isOver(step / kStages & 1)) {
    }
  }

  // By one thread. Weights don't depend on the launches before.
  __device__ __forceinline__ void loadWeights() const {
    int step = 0;
    for (Cursor<kRows> at(product); !at.isOver(); at.next(), ++step) {
      if (step >= kAhead) {
        awaitFull(weights, step - kAhead);
      }
      awaitEmpty(step);
      const int stage = step % kStages;
      weights[stage].arriveAndExpect(kWeightBytes);
      fluxccl::bulkLoadOnce(stages + stage * kStage, weightsAt(at), kWeightBytes, weights + stage);
    }
  }

  // By one thread. Lets the next launch begin at once: its blocks fit only where a block of this one has ended.
  __device__ __forceinline__ void loadRows() const {
    fluxccl::awaitLaunchBefore();
    fluxccl::letNextLaunchBegin();
    constexpr int kBytes = kRows * kTileInputs * 2;
    int step = 0;
    for (Cursor<kRows> at(product); !at.isOver(); at.next(), ++step) {
      awaitEmpty(step);
      const int stage = step % kStages;
      const size_t row = static_cast<size_t>(at.tile) * product.tileRows + at.firstRow();
      rows[stage].arriveAndExpect(kBytes);
      fluxccl::bulkLoad(stages + stage * kStage + kWeightBytes, product.in + row * kTileInputs, kBytes, rows + stage);
    }
  }

  // By two warpgroups, each of which has 64 of the outputs.
  __device__ __forceinline__ void consume() const {
    const int group = threadIdx.x / 128;
    float sums[kRows / 2];
    int step = 0;
    for (Cursor<kRows> at(product); !at.isOver(); at.nextItem()) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        sums[i] = 0;
      }
      for (int left = at.end - at.tile; left > 0; --left) {
        const int stage = step % kStages;
        awaitFull(weights, step);
        awaitFull(rows, step);
        const fluxccl::uint64_t tile = fluxccl::wgmmaDescriptor(stages + stage * kStage + group * (kWeightBytes / 2));
        const fluxccl::uint64_t in = fluxccl::wgmmaDescriptor(stages + stage * kStage + kWeightBytes);
        fluxccl::keepSums(sums);
        fluxccl::wgmmaFence();
#pragma unroll
        for (int k = 0; k < kTileInputs / 16; ++k) {
          fluxccl::wgmma(sums, tile + 2 * k, in + 2 * k);  // 16 inputs are 32 bytes
        }
        fluxccl::wgmmaCommit();
        fluxccl::wgmmaWait<1>();
        fluxccl::keepSums(sums);
        if (left < at.end - at.tile && threadIdx.x % 32 == 0) {
          empty[(step - 1) % kStages].arrive();  // the group before has read it
        }
        ++step;
      }
      fluxccl::wgmmaWait<0>();
      fluxccl::keepSums(sums);
      if (at.end > at.tile && threadIdx.x % 32 == 0) {
        empty[(step - 1) % kStages].arrive();
      }
      if constexpr (kJoins) {
        join(at, sums);
      } else {
#pragma unroll
        for (int i = 0; i < kRows / 8; ++i) {
          const float4 four = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
          store(at, at.firstRow() + i * 8, at.part(), four);
        }
      }
    }
  }

  // Stores this warp's sums in memory. The last warp of a tile adds all parts in their order and stores the result. No
  // warp waits for another.
  __device__ __forceinline__ void join(const Cursor<kRows>& at, const float (&sums)[kRows / 2]) const {
    constexpr int kFours = kRows / 8 * kConsumers;  // of a part
    const int tile = at.outputs() * at.columns() + at.item % at.columns();
    float4* first = product.sums + static_cast<size_t>(tile) * product.parts * kFours + threadIdx.x;
    float4* own = first + at.part() * kFours;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      own[i * kConsumers] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
    }
    __syncwarp();
    unsigned before = 0;
    if (threadIdx.x % 32 == 0) {
      __threadfence();
      before = atomicInc(product.arrivals + (tile * kConsumers + threadIdx.x) / 32, product.parts - 1);
      __threadfence();
    }
    __syncwarp();  // so that all lanes load after the fence
    if (__shfl_sync(0xffffffff, before, 0) != product.parts - 1) {
      return;
    }
#pragma unroll 4
    for (int i = 0; i < kRows / 8; ++i) {
      float4 sum = __ldcg(first + i * kConsumers);
#pragma unroll 2
      for (int part = 1; part < product.parts; ++part) {
        const float4 more = __ldcg(first + part * kFours + i * kConsumers);
        sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
      }
      store(at, at.firstRow() + i * 8, 0, sum);
    }
  }

  // Stores a thread's sums of 8 rows in wgmma's layout: two rows of one output, and two of the output 8 places after
  // it.
  __device__ __forceinline__ void store(const Cursor<kRows>& at, int eightRows, int part, float4 sums) const {
    const int lane = threadIdx.x % 32;
    const int first = at.outputs() * kOutputs + threadIdx.x / 32 * 16;
    if (product.isGated) {
      const unsigned two = fluxccl::transposeBfloat16(fluxccl::packBfloat16(gated(sums.x, sums.z), gated(sums.y, sums.w)));
      const int row = eightRows + lane / 4;
      const int unit = first / 2 + lane % 4 * 2;
      if (row < product.rows && unit < product.outputs / 2) {
        Element* out = static_cast<Element*>(product.out);
        *reinterpret_cast<unsigned*>(out + fluxccl::placeInTiles(row, unit, 0, product.tileRows)) = two;
      }
      return;
    }
    const int row = eightRows + lane % 4 * 2;
    const int output = first + lane / 4;
    const size_t matrix = static_cast<size_t>(part) * product.tileRows;
    float* to = static_cast<float*>(product.out) + (matrix + row) * product.outputs + output;
    for (int i = 0; i < 2; ++i) {
      if (row + i < product.rows && output < product.outputs) {
        to[i * product.outputs] = i == 0 ? sums.x : sums.y;
      }
      if (row + i < product.rows && output + 8 < product.outputs) {
        to[i * product.outputs + 8] = i == 0 ? sums.z : sums.w;
      }
    }
  }
};

template <int kRows, bool kJoins>
__device__ __forceinline__ void multiply(const Product& product) {
  constexpr int kStages = stagesOf(kRows);
  __shared__ fluxccl::TransactionBarrier barriers[3 * kStages];
  unsigned char* dynamic = fluxccl::dynamicShared();
  dynamic += (kSwizzledBytes - fluxccl::sharedAddress(dynamic) % kSwizzledBytes) % kSwizzledBytes;
  const Block<kRows, kJoins> block = {product, barriers, barriers + kStages, barriers + 2 * kStages, dynamic};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      block.weights[i].init(1);
      block.rows[i].init(1);
      block.empty[i].init(kConsumers / 32);
    }
    fluxccl::fenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    fluxccl::awaitLaunchBefore();  // without polling
    block.consume();
  } else if (threadIdx.x == kConsumers) {
    block.loadWeights();
  } else if (threadIdx.x == kConsumers + 32) {
    block.loadRows();
  }
}

}  // namespace

// They are two kernels: the code that joins would slow the other one.
#define PRODUCT_KERNEL(name, rows, blocks, joins)                                                            \
  extern "C" __global__ void __launch_bounds__(kConsumers + 64, blocks)                                      \
      name##rows(const Element* weights, const Element* in, void* out, int outputs, int inputs, int count,   \
                 int tileRows, int parts, int isGated, float4* sums, unsigned* arrivals) {                   \
    multiply<rows, joins>({weights, in, out, outputs, inputs, count, tileRows, parts, isGated, sums, arrivals}); \
  }
#define PRODUCT(rows, blocks)                   \
  PRODUCT_KERNEL(product, rows, blocks, false)  \
  PRODUCT_KERNEL(joined, rows, blocks, true)
PRODUCT(8, 1)
PRODUCT(16, 1)
PRODUCT(32, 1)
PRODUCT(64, 1)
PRODUCT(128, 2)
PRODUCT(256, 1)

// Arranges weights, rows of inputs, as tiles of 128 outputs x 64 inputs, swizzled for wgmma. If they are gates and ups,
// half of the rows each, 8 gates and their 8 ups take turns, so that one thread of a product gets both.
extern "C" __global__ void pack(const Element* from, int outputs, int inputs, int isGated, Element* to) {
  const int tilesOfInputs = inputs / kTileInputs;
  const size_t tiles = static_cast<size_t>((outputs + kOutputs - 1) / kOutputs) * tilesOfInputs;
  const size_t chunks = tiles * kOutputs * 8;
  for (size_t chunk = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; chunk < chunks;
       chunk += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const int row = static_cast<int>(chunk / 8 % kOutputs);
    const size_t tile = chunk / 8 / kOutputs;
    const size_t position = tile / tilesOfInputs * kOutputs + row;
    size_t output = position;
    if (isGated) {
      output = position / 16 * 8 + position % 8 + (position % 16 < 8 ? 0 : outputs / 2);
    }
    const size_t input = tile % tilesOfInputs * kTileInputs + ((chunk ^ row) & 7) * 8;
    int4 value = {0, 0, 0, 0};
    if (position < static_cast<size_t>(outputs)) {
      value = *reinterpret_cast<const int4*>(from + output * inputs + input);
    }
    reinterpret_cast<int4*>(to)[chunk] = value;
  }
}

// Adds a product's parts; a block for each 1024 elements.
extern "C" __global__ void addParts(fluxccl::ProductParts parts, long long count, Element* out) {
  fluxccl::awaitLaunchBefore();
  fluxccl::letNextLaunchBegin();
  const size_t four = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (four < static_cast<size_t>(count)) {
    const float4 sum = parts.four(four);
    *reinterpret_cast<uint2*>(out + four) = {fluxccl::packBfloat16(sum.x, sum.y), fluxccl::packBfloat16(sum.z, sum.w)};
  }
}
