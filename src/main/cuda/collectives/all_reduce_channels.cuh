// All-pairs all-reduce over channels, where some ranks can't map each other's memory: SM channels
// to those that can, proxy channels to the others.
//
//   put chunk[j] into this rank's slot of rank j's scratch, signal     for every other rank j
//   wait for all; reduce chunk[rank] and the slots, in rank order
//   put chunk[rank] into everybody's buffer, signal; wait for all; flush
//
// Blocks share out every chunk: each does all of this for a part of it, over channels of its own,
// and never waits for another block. No barrier is needed between launches: a slot is written again
// only when the launch before has ended, and so behind its owner's second signals, which it sends
// when it has read the slot. The flush is for the source, which the caller may overwrite then.
#pragma once

#include <fluxccl/proxy_channel.cuh>
#include <fluxccl/sm_channel.cuh>

#include "accumulator.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.ChannelRanksHandle.
struct ChannelRanks {
  uint8_t* buffer;
  // A slot for each other rank, in rank order.
  uint8_t* scratch;
  uint64_t slotLength;
  // For each block, and there for each rank: the channel to its scratch and that to its buffer. Of
  // a rank to which there are channels of the other kind, zeros.
  const SmChannel* smChannels;
  const ProxyChannel* proxyChannels;
  int32_t rank;
  int32_t nRanks;
};
FLUXCCL_ASSERT_OFFSET(ChannelRanks, smChannels, 24);
FLUXCCL_ASSERT_OFFSET(ChannelRanks, rank, 40);
FLUXCCL_ASSERT_SIZE(ChannelRanks, 48);

enum class Target { SCRATCH, BUFFER };

FLUXCCL_DEVICE uint64_t channelIndex(const ChannelRanks& ranks, int peer, Target target) {
  return (blockIdx.x * static_cast<uint64_t>(ranks.nRanks) + peer) * 2 + static_cast<int>(target);
}

FLUXCCL_DEVICE const SmChannel& smChannel(const ChannelRanks& ranks, int peer, Target target) {
  return ranks.smChannels[channelIndex(ranks, peer, target)];
}

FLUXCCL_DEVICE const ProxyChannel& proxyChannel(const ChannelRanks& ranks, int peer,
                                                Target target) {
  return ranks.proxyChannels[channelIndex(ranks, peer, target)];
}

FLUXCCL_DEVICE bool isMapped(const ChannelRanks& ranks, int peer) {
  return smChannel(ranks, peer, Target::BUFFER).target != nullptr;
}

// Where a rank's part lies in the scratch memory of another, which has no slot for itself.
FLUXCCL_DEVICE uint64_t slot(const ChannelRanks& ranks, int from, int at) {
  return (from < at ? from : from - 1) * ranks.slotLength;
}

// This block's part of a chunk, in bytes of the buffer.
struct Part {
  uint64_t begin;
  uint64_t size;
  // From the beginning of the chunk, and so of a slot.
  uint64_t offset;
};

FLUXCCL_DEVICE Part partOf(int chunk, uint64_t chunkSize, uint64_t size) {
  constexpr uint64_t kCacheLine = 64;
  const uint64_t even = (chunkSize + gridDim.x - 1) / gridDim.x;
  const uint64_t length = (even + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t chunkBegin = min(chunk * chunkSize, size);
  const uint64_t chunkEnd = min(chunkBegin + chunkSize, size);
  const uint64_t begin = min(chunkBegin + blockIdx.x * length, chunkEnd);
  const uint64_t end = min(begin + length, chunkEnd);
  return Part{begin, end - begin, begin - chunkBegin};
}

// What a thread has to wait for until the source may be overwritten.
struct PendingFlush {
  const ProxyChannel* channel = nullptr;
  int64_t position = 0;

  FLUXCCL_DEVICE bool wait() const { return channel == nullptr || channel->waitFlush(position); }
};

// Puts a part into another rank's memory, and signals, for every other rank. partFor(peer) gives
// the part, targetOf(peer, part) where it goes. All threads call it, behind a __syncthreads().
template <typename PartFor, typename TargetOf>
FLUXCCL_DEVICE PendingFlush putToAll(const ChannelRanks& ranks, Target target, PartFor partFor,
                                     TargetOf targetOf) {
  PendingFlush flush;
  // The proxy first, whose way is longer. Each thread asks it for one rank.
  const int asked = threadIdx.x;
  if (asked < ranks.nRanks && asked != ranks.rank && !isMapped(ranks, asked)) {
    const ProxyChannel& channel = proxyChannel(ranks, asked, target);
    const Part part = partFor(asked);
    if (part.size == 0) {
      channel.signal();
    } else if (target == Target::SCRATCH) {
      channel.putWithSignal(targetOf(asked, part), part.begin, part.size);
    } else {
      flush.channel = &channel;
      flush.position =
          channel.putWithSignalAndRequestFlush(targetOf(asked, part), part.begin, part.size);
    }
  }
  for (int i = 1; i < ranks.nRanks; ++i) {
    const int peer = (ranks.rank + i) % ranks.nRanks;
    if (isMapped(ranks, peer)) {
      const SmChannel& channel = smChannel(ranks, peer, target);
      const Part part = partFor(peer);
      channel.put(targetOf(peer, part), part.begin, part.size, threadIdx.x, blockDim.x);
      // The signal stands for what all threads have put.
      __syncthreads();
      if (threadIdx.x == 0) {
        channel.signal();
      }
    }
  }
  return flush;
}

// Takes one signal of every other rank, one thread a rank. False, for all threads, when the job was
// aborted.
FLUXCCL_DEVICE bool waitForAll(const ChannelRanks& ranks) {
  const int peer = threadIdx.x;
  bool arrived = true;
  if (peer < ranks.nRanks && peer != ranks.rank) {
    arrived = isMapped(ranks, peer) ? smChannel(ranks, peer, Target::BUFFER).wait()
                                    : proxyChannel(ranks, peer, Target::BUFFER).wait();
  }
  return __syncthreads_and(arrived);
}

// Reduces this block's part of this rank's chunk out of the buffer and the slots into the buffer.
template <typename T>
FLUXCCL_DEVICE void reducePart(const ChannelRanks& ranks, const Part& part, ReduceOp op) {
  const auto reduce = [&](auto word, uint64_t offset) {
    using Word = decltype(word);
    *reinterpret_cast<Word*>(ranks.buffer + part.begin + offset) =
        reduceWords<T, Word>(ranks.nRanks, op, [&](int rank) {
          const uint8_t* source =
              rank == ranks.rank
                  ? ranks.buffer + part.begin
                  : ranks.scratch + slot(ranks, rank, ranks.rank) + part.offset;
          return reinterpret_cast<const Word*>(source + offset);
        });
  };
  // Slots begin at multiples of 64 bytes; the buffer may be any slice.
  const bool aligned = reinterpret_cast<uint64_t>(ranks.buffer) % sizeof(uint4) == 0;
  const uint64_t whole = aligned ? part.size / sizeof(uint4) * sizeof(uint4) : 0;
  for (uint64_t at = threadIdx.x * sizeof(uint4); at < whole; at += blockDim.x * sizeof(uint4)) {
    reduce(uint4{}, at);
  }
  for (uint64_t at = whole + threadIdx.x * sizeof(T); at < part.size;
       at += blockDim.x * sizeof(T)) {
    reduce(T{}, at);
  }
}

// chunkElements is Partition.chunkElements(count, type, nRanks). A block has at least as many
// threads as there are ranks.
template <typename T>
FLUXCCL_DEVICE void allReduceChannels(const ChannelRanks& ranks, uint64_t count,
                                      uint64_t chunkElements, ReduceOp op) {
  const uint64_t size = count * sizeof(T);
  const uint64_t chunkSize = chunkElements * sizeof(T);
  putToAll(
      ranks, Target::SCRATCH, [&](int peer) { return partOf(peer, chunkSize, size); },
      [&](int peer, const Part& part) { return slot(ranks, ranks.rank, peer) + part.offset; });
  if (!waitForAll(ranks)) {
    return;
  }
  const Part own = partOf(ranks.rank, chunkSize, size);
  reducePart<T>(ranks, own, op);
  // What all threads have reduced is what is put.
  __syncthreads();
  const PendingFlush flush = putToAll(
      ranks, Target::BUFFER, [&](int) { return own; },
      [](int, const Part& part) { return part.begin; });
  if (waitForAll(ranks)) {
    flush.wait();
  }
}

}  // namespace collectives
}  // namespace fluxccl
