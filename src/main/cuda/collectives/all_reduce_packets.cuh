// All-reduces by packets, for small inputs: each 8 bytes of payload carry the flags that tell the
// receiver that they are there, so nothing else is waited for.
//
// The packets of a state are slots, one for each rank that writes there, in two sets that take
// turns by epoch:
//
//   one shot   [2 sets][nRanks][oneShotPackets]      a rank's input
//   scatter    [2 sets][nRanks][chunkPackets]        a rank's input for this rank's chunk
//   gather     [2 sets][nRanks][chunkPackets]        a rank's reduced chunk
//
// Who writes a set again has finished the launch before; so every peer had begun that launch, and
// was done with the set, which it read in launches before that. For this to hold every launch of
// every kind waits for something of every peer.
#pragma once

#include <fluxccl/packet.cuh>

#include "accumulator.cuh"
#include "mapped_ranks.cuh"

namespace fluxccl {
namespace collectives {

constexpr int kWarpSize = 32;

// What a packet carries.
using Payload = Ll16Packet::Payload;

// How often packets are polled together before they are waited for one by one; some hundred
// microseconds.
constexpr int kEagerRounds = 512;

FLUXCCL_DEVICE Ll16Packet* packets(const MappedRanks& ranks, int at) {
  return reinterpret_cast<Ll16Packet*>(ranks.states[at] + kPacketsOffset);
}

FLUXCCL_DEVICE Ll16Packet* oneShotSlot(const MappedRanks& ranks, int at, int from, uint32_t epoch) {
  const uint64_t slot = (epoch & 1) * ranks.nRanks + from;
  return packets(ranks, at) + slot * ranks.oneShotPackets;
}

enum class Phase { SCATTER, GATHER };

FLUXCCL_DEVICE Ll16Packet* chunkSlot(const MappedRanks& ranks, Phase phase, int at, int from,
                                     uint32_t epoch) {
  const uint64_t slot = (static_cast<int>(phase) * 2 + (epoch & 1)) * ranks.nRanks + from;
  return packets(ranks, at) + 2ull * ranks.nRanks * ranks.oneShotPackets +
         slot * ranks.chunkPackets;
}

// The bytes of this rank's buffer that are reduced.
template <typename T>
class Elements {
 public:
  FLUXCCL_DEVICE Elements(uint8_t* begin, uint64_t count)
      : begin_(begin),
        size_(count * sizeof(T)),
        aligned_(reinterpret_cast<uint64_t>(begin) % sizeof(Payload) == 0) {}

  FLUXCCL_DEVICE uint64_t size() const { return size_; }

  // What lies at a multiple of the payload's size; zeros behind the end.
  FLUXCCL_DEVICE Payload load(uint64_t offset) const {
    if (isWhole(offset)) {
      return *reinterpret_cast<const Payload*>(begin_ + offset);
    }
    T elements[kPerPayload] = {};
#pragma unroll
    for (int i = 0; i < kPerPayload; ++i) {
      if (offset + i * sizeof(T) < size_) {
        elements[i] = reinterpret_cast<const T*>(begin_ + offset)[i];
      }
    }
    Payload payload;
    memcpy(&payload, elements, sizeof(Payload));
    return payload;
  }

  // Puts there what was loaded from there or reduced; nothing behind the end.
  FLUXCCL_DEVICE void store(uint64_t offset, Payload payload) const {
    if (isWhole(offset)) {
      *reinterpret_cast<Payload*>(begin_ + offset) = payload;
      return;
    }
    T elements[kPerPayload];
    memcpy(elements, &payload, sizeof(Payload));
#pragma unroll
    for (int i = 0; i < kPerPayload; ++i) {
      if (offset + i * sizeof(T) < size_) {
        reinterpret_cast<T*>(begin_ + offset)[i] = elements[i];
      }
    }
  }

 private:
  static constexpr int kPerPayload = sizeof(Payload) / sizeof(T);

  FLUXCCL_DEVICE bool isWhole(uint64_t offset) const {
    return aligned_ && offset + sizeof(Payload) <= size_;
  }

  uint8_t* begin_;
  uint64_t size_;
  bool aligned_;
};

// Everybody sends its whole input to everybody, and reduces what comes. A block has one warp a
// rank: it sends to that rank and receives from it; the first warp reduces.
template <typename T>
FLUXCCL_DEVICE void allReduceOneShot(const MappedRanks& ranks, uint64_t count, ReduceOp op) {
  __shared__ Payload inputs[kMaxRanks][kWarpSize];
  const Elements<T> buffer(ranks.buffers[ranks.rank], count);
  const uint64_t nPackets = (buffer.size() + sizeof(Payload) - 1) / sizeof(Payload);
  const uint32_t epoch = beginEpoch(ranks);
  const int peer = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  Ll16Packet* outbound = oneShotSlot(ranks, peer, ranks.rank, epoch);
  const Ll16Packet* inbound = oneShotSlot(ranks, ranks.rank, peer, epoch);
  for (uint64_t first = blockIdx.x * kWarpSize; first < nPackets; first += gridDim.x * kWarpSize) {
    const uint64_t i = first + lane;
    bool arrived = true;
    if (i < nPackets) {
      Payload payload = buffer.load(i * sizeof(Payload));
      if (peer != ranks.rank) {
        outbound[i].write(payload, epoch);
        arrived = waitUntil(ranks.abort, peer,
                            [&] { return inbound[i].tryRead(epoch, payload); });
      }
      inputs[peer][lane] = payload;
    }
    if (!__syncthreads_and(arrived)) {
      return;
    }
    if (peer == 0 && i < nPackets) {
      Accumulator<T, Payload> result;
      result.begin(inputs[0][lane]);
      for (int rank = 1; rank < ranks.nRanks; ++rank) {
        result.combine(inputs[rank][lane], op);
      }
      buffer.store(i * sizeof(Payload), result.finish(op, ranks.nRanks));
    }
    // The inputs have been read, and may be overwritten.
    __syncthreads();
  }
  endEpoch(ranks, epoch);
}

// Calls what(peer, i) for every packet i of the chunks of the other ranks; a warp's lanes take
// neighbours. False as soon as one of this thread's calls was.
template <typename What>
FLUXCCL_DEVICE bool forEachPeersPacket(const MappedRanks& ranks, uint32_t nPackets, What what) {
  const uint32_t warp = threadIdx.x / kWarpSize * gridDim.x + blockIdx.x;
  const uint32_t warps = blockDim.x / kWarpSize * gridDim.x;
  const uint32_t nPeers = ranks.nRanks - 1;
  const uint32_t rows = (nPackets + kWarpSize - 1) / kWarpSize * nPeers;
  for (uint32_t row = warp; row < rows; row += warps) {
    const int peer = (ranks.rank + 1 + row % nPeers) % ranks.nRanks;
    const uint32_t i = row / nPeers * kWarpSize + threadIdx.x % kWarpSize;
    if (i < nPackets && !what(peer, i)) {
      return false;
    }
  }
  return true;
}

// Receives packet i of this rank's chunk from some ranks, first and the next ones. False if the job
// was aborted.
FLUXCCL_DEVICE bool receiveChunk(const MappedRanks& ranks, int first, uint32_t i, uint32_t epoch,
                                 Payload (&payloads)[kBatch]) {
  const auto tryRead = [&](int k) {
    const int from = first + k;
    return from >= ranks.nRanks || from == ranks.rank ||
           chunkSlot(ranks, Phase::SCATTER, ranks.rank, from, epoch)[i].tryRead(epoch, payloads[k]);
  };
  // All of them in each round: waiting for one after the other would cost a round trip each.
  for (int round = 0; round < kEagerRounds; ++round) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      all &= tryRead(k);
    }
    if (all) {
      return true;
    }
  }
  // Now one by one, so that the abort flag tells whom this waits for.
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    if (!waitUntil(ranks.abort, first + k, [&] { return tryRead(k); })) {
      return false;
    }
  }
  return true;
}

// Receives packet i of this rank's chunk from everybody and reduces it, in rank order. False if
// the job was aborted.
template <typename T>
FLUXCCL_DEVICE bool reducePacket(const MappedRanks& ranks, uint32_t i, uint32_t epoch, ReduceOp op,
                                 Payload own, Payload& result) {
  Accumulator<T, Payload> sum;
  for (int first = 0; first < ranks.nRanks; first += kBatch) {
    Payload payloads[kBatch];
    if (!receiveChunk(ranks, first, i, epoch, payloads)) {
      return false;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const Payload payload = first + k == ranks.rank ? own : payloads[k];
      if (first + k == 0) {
        sum.begin(payload);
      } else if (first + k < ranks.nRanks) {
        sum.combine(payload, op);
      }
    }
  }
  result = sum.finish(op, ranks.nRanks);
  return true;
}

// Everybody sends each rank its chunk, reduces its own, and sends the result to everybody.
// chunkElements is Partition.chunkElements(count, type, nRanks); where the last chunks are shorter,
// or empty, as many packets are sent all the same.
template <typename T>
FLUXCCL_DEVICE void allReduceTwoPhases(const MappedRanks& ranks, uint64_t count,
                                       uint64_t chunkElements, ReduceOp op) {
  const Elements<T> buffer(ranks.buffers[ranks.rank], count);
  const uint64_t chunkSize = chunkElements * sizeof(T);
  const uint32_t nPackets = static_cast<uint32_t>(chunkSize / sizeof(Payload));
  const uint32_t epoch = beginEpoch(ranks);
  forEachPeersPacket(ranks, nPackets, [&](int peer, uint32_t i) {
    const Payload payload = buffer.load(peer * chunkSize + i * sizeof(Payload));
    chunkSlot(ranks, Phase::SCATTER, peer, ranks.rank, epoch)[i].write(payload, epoch);
    return true;
  });
  bool arrived = true;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; arrived && i < nPackets;
       i += gridDim.x * blockDim.x) {
    const uint64_t offset = ranks.rank * chunkSize + i * sizeof(Payload);
    Payload result;
    arrived = reducePacket<T>(ranks, i, epoch, op, buffer.load(offset), result);
    if (arrived) {
      for (int k = 1; k < ranks.nRanks; ++k) {
        const int peer = (ranks.rank + k) % ranks.nRanks;
        chunkSlot(ranks, Phase::GATHER, peer, ranks.rank, epoch)[i].write(result, epoch);
      }
      buffer.store(offset, result);
    }
  }
  arrived = arrived && forEachPeersPacket(ranks, nPackets, [&](int peer, uint32_t i) {
    const Ll16Packet* slot = chunkSlot(ranks, Phase::GATHER, ranks.rank, peer, epoch);
    Payload payload;
    if (!waitUntil(ranks.abort, peer, [&] { return slot[i].tryRead(epoch, payload); })) {
      return false;
    }
    buffer.store(peer * chunkSize + i * sizeof(Payload), payload);
    return true;
  });
  if (__syncthreads_and(arrived)) {
    endEpoch(ranks, epoch);
  }
}

}  // namespace collectives
}  // namespace fluxccl
