// SPDX-License-Identifier: Apache-2.0
// An all-to-all-v whose counts and offsets lie in device memory. Headers carry the counts, so receivers learn
// them from the senders.
#pragma once

#include <fluxccl/copy.cuh>

#include "exchange_units.cuh"
#include "routing.cuh"

namespace fluxccl {
namespace collectives {

// io.fluxccl.collective.cuda.Routes fills it in.
struct CountedParts {
  RouteArea area;
  // Number and offset, in the input, of the elements for each rank. Offset, in the output, of the elements from
  // each rank, and their number, which the kernel writes. Null offsets: the parts are contiguous, in rank
  // order.
  const int64_t* sendCounts;
  const int64_t* sendOffsets;
  const int64_t* receiveOffsets;
  int64_t* receiveCounts;
  // In elements: the bound of a count, and the sizes of the buffers.
  int64_t most;
  int64_t inputElements;
  int64_t outputElements;
  uint32_t elementBytes;
  uint32_t sliceRows;
};
FLUXCCL_ASSERT_SIZE(CountedParts, 104);

#if defined(FLUXCCL_CUDA)

class CountedExchange {
 public:
  FLUXCCL_DEVICE CountedExchange(const MappedPeers& peers, const CountedParts& task) : peers_(peers), task_(task) {}

  FLUXCCL_DEVICE void run() {
    uint32_t faulty;
    uint32_t epoch = beginEpoch(peers_, [&] { faulty = task_.area.faultyEpoch(peers_); });
    bool going = !RouteArea::hasFailed(faulty, epoch);
    const uint32_t first = epoch;
    uint32_t slices = 1;
    if (going) {
      readOwn(epoch);
    }
    for (uint32_t slice = 0; going && slice < slices; ++slice) {
      if (slice > 0) {
        epoch = nextEpoch(epoch);
      }
      beginSlice(peers_, epoch);
      send(slice, epoch);
      if (slice == 0) {
        going = receiveHeaders(first, slices);
      }
      if (going && slice == 0) {
        copyOwn();
      }
      going = endSlice(peers_, epoch, going && receive(slice, epoch));
    }
    // The threads of an aborted block may have left at different places.
    endEpoch(peers_, epoch, __syncthreads_and(going));
  }

 private:
  struct Part {
    int64_t count;
    int64_t offset;
  };
  struct Shared {
    Part sent[MappedPeers::kMaxRanks];
    Part received[MappedPeers::kMaxRanks];
    uint32_t header[MappedPeers::kMaxRanks][RouteArea::kHeaderWords + 2];
    Fault fault;
    uint64_t value;
  };

  static FLUXCCL_DEVICE Shared& shared() {
    __shared__ Shared memory;
    return memory;
  }

  // Reads and checks the counts and offsets of this rank's parts. If one is invalid, this rank sends nothing.
  FLUXCCL_DEVICE void readOwn(uint32_t epoch) {
    Shared& s = shared();
    if (threadIdx.x == 0) {
      s.fault = Fault::NONE;
      s.value = 0;
      int64_t packed = 0;
      for (int peer = 0; peer < peers_.nRanks; ++peer) {
        const int64_t count = task_.sendCounts[peer];
        const int64_t offset = task_.sendOffsets == nullptr ? packed : task_.sendOffsets[peer];
        if (count < 0 || count > task_.most) {
          fail(Fault::COUNT, count);
        } else if (count > 0 && (offset < 0 || offset > task_.inputElements - count)) {
          fail(Fault::RANGE, offset);
        }
        s.sent[peer] = Part{count, offset};
        packed += count;
      }
      if (s.fault != Fault::NONE) {
        for (int peer = 0; peer < peers_.nRanks; ++peer) {
          s.sent[peer].count = 0;
        }
        if (blockIdx.x == 0) {
          task_.area.report(peers_, epoch, s.fault, peers_.rank, s.value);
        }
      }
    }
    __syncthreads();
    const int peer = threadIdx.x;
    if (blockIdx.x == 0 && peer < peers_.nRanks && peer != peers_.rank) {
      sendHeader(peer, epoch);
    }
  }

  FLUXCCL_DEVICE static void fail(Fault fault, int64_t value) {
    if (shared().fault == Fault::NONE) {
      shared().fault = fault;
      shared().value = static_cast<uint64_t>(value);
    }
  }

  FLUXCCL_DEVICE void sendHeader(int peer, uint32_t epoch) const {
    const Shared& s = shared();
    uint64_t most = 0;
    for (int other = 0; other < peers_.nRanks; ++other) {
      most = max(most, static_cast<uint64_t>(other == peers_.rank ? 0 : s.sent[other].count));
    }
    const uint64_t value = s.fault != Fault::NONE ? s.value : static_cast<uint64_t>(s.sent[peer].count);
    Ll8Packet* header = task_.area.header(peers_, peer, peers_.rank, epoch);
    header[0].write(static_cast<uint32_t>(s.fault), epoch);
    header[1].write(static_cast<uint32_t>(value), epoch);
    header[2].write(static_cast<uint32_t>(value >> 32), epoch);
    header[3].write(static_cast<uint32_t>(most), epoch);
    header[4].write(static_cast<uint32_t>(most >> 32), epoch);
  }

  // Receives all headers, and finds the number of slices, which is the same on all ranks. Returns false, to all
  // threads, if the job was aborted.
  FLUXCCL_DEVICE bool receiveHeaders(uint32_t epoch, uint32_t& slices) {
    constexpr uint32_t kWords = RouteArea::kHeaderWords + 2;
    Shared& s = shared();
    bool going = true;
    for (uint32_t i = threadIdx.x; i < kWords * peers_.nRanks; i += blockDim.x) {
      const int from = i / kWords;
      if (from != peers_.rank) {
        const Ll8Packet* packet = task_.area.header(peers_, peers_.rank, from, epoch) + i % kWords;
        uint32_t* word = &s.header[from][i % kWords];
        going = going && waitUntil(peers_.abort, from, [=] { return packet->tryRead(epoch, *word); });
      }
    }
    if (!__syncthreads_and(going)) {
      return false;
    }
    if (threadIdx.x == 0) {
      readHeaders(epoch);
    }
    __syncthreads();
    uint64_t most = 0;
    for (int other = 0; other < peers_.nRanks; ++other) {
      most = max(most, other == peers_.rank ? mostOfOwn()
                                            : s.header[other][3] | static_cast<uint64_t>(s.header[other][4]) << 32);
    }
    const uint64_t sliceBytes = static_cast<uint64_t>(task_.sliceRows) * Ll128Rows::kPayload;
    slices = static_cast<uint32_t>((most * task_.elementBytes + sliceBytes - 1) / sliceBytes);
    slices = slices == 0 ? 1 : slices;
    return true;
  }

  FLUXCCL_DEVICE uint64_t mostOfOwn() const {
    uint64_t most = 0;
    for (int peer = 0; peer < peers_.nRanks; ++peer) {
      most = max(most, static_cast<uint64_t>(peer == peers_.rank ? 0 : shared().sent[peer].count));
    }
    return most;
  }

  // By one thread: determines the place of each received part. A part without room is not received.
  FLUXCCL_DEVICE void readHeaders(uint32_t epoch) {
    Shared& s = shared();
    int64_t packed = 0;
    for (int from = 0; from < peers_.nRanks; ++from) {
      const uint32_t* words = s.header[from];
      const Fault fault = from == peers_.rank ? s.fault : static_cast<Fault>(words[0]);
      const uint64_t value = words[1] | static_cast<uint64_t>(words[2]) << 32;
      int64_t count = from == peers_.rank ? s.sent[from].count : static_cast<int64_t>(value);
      const int64_t offset = task_.receiveOffsets == nullptr ? packed : task_.receiveOffsets[from];
      if (fault != Fault::NONE) {
        if (blockIdx.x == 0 && from != peers_.rank) {
          task_.area.report(peers_, epoch, fault, from, value);
        }
        count = 0;
      } else if (count > 0 && (offset < 0 || offset > task_.outputElements - count)) {
        if (blockIdx.x == 0) {
          task_.area.report(peers_, epoch, Fault::ROOM, from, static_cast<uint64_t>(count));
        }
        count = 0;
      }
      s.received[from] = Part{count, offset};
      packed += count;
      if (blockIdx.x == 0) {
        task_.receiveCounts[from] = count;
      }
    }
  }

  FLUXCCL_DEVICE void copyOwn() const {
    const Part& part = shared().received[peers_.rank];
    if (part.count > 0) {
      copy<16, true, 2>(peers_.outputs[peers_.rank] + part.offset * task_.elementBytes,
                        peers_.inputs[peers_.rank] + shared().sent[peers_.rank].offset * task_.elementBytes,
                        static_cast<uint64_t>(part.count) * task_.elementBytes,
                        blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
    }
  }

  // The bytes of one row of a part: those from `begin` on, `size` of them.
  struct Range {
    uint64_t begin;
    uint32_t size;
  };

  FLUXCCL_DEVICE Range range(const Part& part, uint32_t slice, uint32_t row) const {
    const uint64_t bytes = static_cast<uint64_t>(part.count) * task_.elementBytes;
    const uint64_t begin = (static_cast<uint64_t>(slice) * task_.sliceRows + row) * Ll128Rows::kPayload;
    return {begin, begin >= bytes ? 0 : static_cast<uint32_t>(min(bytes - begin, uint64_t{Ll128Rows::kPayload}))};
  }

  FLUXCCL_DEVICE void send(uint32_t slice, uint32_t epoch) const {
    const uint32_t others = peers_.nRanks - 1;
    for (uint32_t i = warpOfLaunch(); i < task_.sliceRows * others; i += warpsOfLaunch()) {
      const int peer = peers_.successor(1 + i % others);
      const uint32_t row = i / others;
      const Part& part = shared().sent[peer];
      const Range bytes = range(part, slice, row);
      if (bytes.size > 0) {
        Ll128Unit unit;
        unit.load(1, peers_.inputs[peers_.rank] + part.offset * task_.elementBytes + bytes.begin, bytes.size);
        unit.send(1, task_.area.row(peers_, peer, peers_.rank, epoch, row), bytes.size, epoch);
      }
    }
  }

  FLUXCCL_DEVICE bool receive(uint32_t slice, uint32_t epoch) const {
    const uint32_t others = peers_.nRanks - 1;
    for (uint32_t i = warpOfLaunch(); i < task_.sliceRows * others; i += warpsOfLaunch()) {
      const int from = peers_.predecessor(1 + i % others);
      const uint32_t row = i / others;
      const Part& part = shared().received[from];
      const Range bytes = range(part, slice, row);
      if (bytes.size > 0) {
        Ll128Unit unit;
        if (!unit.receive(1, task_.area.row(peers_, peers_.rank, from, epoch, row), bytes.size, epoch, peers_.abort,
                          from)) {
          return false;
        }
        unit.store(1, peers_.outputs[peers_.rank] + part.offset * task_.elementBytes + bytes.begin, bytes.size);
      }
    }
    return true;
  }

  const MappedPeers& peers_;
  const CountedParts& task_;
};

#endif  // FLUXCCL_CUDA

}  // namespace collectives
}  // namespace fluxccl
