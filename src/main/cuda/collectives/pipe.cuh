// SPDX-License-Identifier: Apache-2.0
// The pipes of a lane: rings of slots through which pieces go to and from the other ranks. Twin of Pipe and
// PipeLayout, which describe how they work.
#pragma once

#include <fluxccl/copy.cuh>
#include <fluxccl/proxy_channel.cuh>
#include <fluxccl/sm_channel.cuh>

namespace fluxccl {
namespace collectives {
namespace pipes {

// As in PipeLayout.
constexpr uint64_t kSlots = 16;
constexpr uint64_t kSlotsPerCredit = 8;
constexpr int kDepth = 3;
constexpr int kSingleDepth = 8;
constexpr int kRingPieces = 4;
constexpr uint64_t kLeastShare = 32 << 10;
constexpr uint64_t kLeastPiece = 16 << 10;
constexpr uint64_t kPieces = 8;
constexpr uint64_t kLine = 64;

// Threads of a block; each handles the pipe to one rank.
constexpr int kThreads = 512;
constexpr int kMaxRanks = kThreads;

FLUXCCL_DEVICE uint64_t roundUp(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Copies by all threads of the block.
FLUXCCL_DEVICE_CALL inline void copyBlock(void* to, const void* from, uint64_t bytes) {
  copy(to, from, bytes, threadIdx.x, blockDim.x);
}

// The division of bytes among lanes, and into pieces. Part of every plan.
struct Layout {
  uint32_t lanes;
  uint32_t slotBytes;

  FLUXCCL_DEVICE uint64_t begin(uint64_t bytes) const { return min(bytes, share(bytes) * blockIdx.x); }

  FLUXCCL_DEVICE uint64_t length(uint64_t bytes) const {
    return min(bytes, share(bytes) * (blockIdx.x + 1)) - begin(bytes);
  }

  FLUXCCL_DEVICE uint64_t piece(uint64_t shareBytes) const {
    return min(static_cast<uint64_t>(slotBytes),
               max(kLeastPiece, roundUp((shareBytes + kPieces - 1) / kPieces)));
  }

  FLUXCCL_DEVICE uint64_t ringPiece(uint64_t shareBytes) const {
    return max(kLine, min(static_cast<uint64_t>(slotBytes),
                          roundUp((shareBytes + kRingPieces - 1) / kRingPieces)));
  }

  // Returns the number of this lane's pieces of a pair's bytes; 0 if bytes is negative.
  FLUXCCL_DEVICE int64_t pieces(int64_t bytes) const {
    if (bytes <= 0) {
      return 0;
    }
    const uint64_t whole = length(bytes);
    const uint64_t one = piece(whole);
    return static_cast<int64_t>((whole + one - 1) / one);
  }

  // Returns where this lane's piece of a number begins in a pair's bytes.
  FLUXCCL_DEVICE uint64_t pieceBegin(uint64_t bytes, int64_t number) const {
    return begin(bytes) + number * piece(length(bytes));
  }

  FLUXCCL_DEVICE uint64_t pieceBytes(uint64_t bytes, int64_t number) const {
    const uint64_t whole = length(bytes);
    const uint64_t one = piece(whole);
    return min(one, whole - number * one);
  }

 private:
  FLUXCCL_DEVICE uint64_t share(uint64_t bytes) const {
    const uint64_t sharing = max(uint64_t{1}, min(static_cast<uint64_t>(lanes), bytes / kLeastShare));
    return roundUp((bytes + sharing - 1) / sharing);
  }
};
FLUXCCL_ASSERT_SIZE(Layout, 8);

// Lies in device memory. One thread at a time uses it. Its counts continue from launch to launch.
struct Pipe {
  // If the peer's memory is not mapped, for waiting only.
  SmDevice2DeviceSemaphore filled;
  SmDevice2DeviceSemaphore emptied;
  // If the peer's memory is mapped, all zeros.
  ProxyChannel filling;
  ProxyChannel emptying;
  uint8_t* outbox;
  const uint8_t* inbox;
  uint64_t outboxOffset;
  uint64_t remoteInboxOffset;
  uint64_t slotBytes;
  uint64_t sent;
  // Initially kSlots.
  uint64_t credited;
  uint64_t taken;

  FLUXCCL_DEVICE bool isMapped() const { return filled.remoteInbound != nullptr; }

  // Waits for a free slot and returns its address; null if the communicator was aborted.
  FLUXCCL_DEVICE_CALL uint8_t* claim() {
    while (sent == credited) {
      if (!emptied.wait()) {
        return nullptr;
      }
      credited += kSlotsPerCredit;
    }
    return outbox + at(sent);
  }

  // Sends the first bytes of the claimed slot. This thread has written them, or has synchronised with the
  // threads that did.
  FLUXCCL_DEVICE_CALL void publish(uint64_t bytes) {
    if (isMapped()) {
      filled.signal();
    } else if (bytes == 0) {
      filling.signal();
    } else {
      filling.putWithSignal(remoteInboxOffset + at(sent), outboxOffset + at(sent), bytes);
    }
    ++sent;
  }

  // Waits for the next piece and returns its address; null if the communicator was aborted.
  FLUXCCL_DEVICE_CALL const uint8_t* take() const { return filled.wait() ? inbox + at(taken) : nullptr; }

  // Releases the piece's slot. This thread has read it, or has synchronised with the threads that did.
  FLUXCCL_DEVICE_CALL void release() {
    ++taken;
    if (taken % kSlotsPerCredit == 0) {
      if (isMapped()) {
        emptied.signal();
      } else {
        emptying.signal();
      }
    }
  }

 private:
  FLUXCCL_DEVICE uint64_t at(uint64_t count) const { return count % kSlots * slotBytes; }
};
FLUXCCL_ASSERT_OFFSET(Pipe, emptied, 48);
FLUXCCL_ASSERT_OFFSET(Pipe, filling, 96);
FLUXCCL_ASSERT_OFFSET(Pipe, emptying, 216);
FLUXCCL_ASSERT_OFFSET(Pipe, outbox, 336);
FLUXCCL_ASSERT_OFFSET(Pipe, credited, 384);
FLUXCCL_ASSERT_SIZE(Pipe, 400);

// Slots that a block has claimed and pieces that it has taken, by rank; in shared memory.
struct Slots {
  uint8_t* out[kMaxRanks];
  const uint8_t* in[kMaxRanks];
};

// A block's access to its lane's pipes. All threads call its methods together; thread i handles the pipe to
// rank i. claim is followed by publish, and take by release, for the same ranks. The addresses that claim and
// take provide are valid until then.
class Lane {
 public:
  // pipes: for each lane, those to all ranks.
  FLUXCCL_DEVICE Lane(Pipe* pipes, int rank, int nRanks, Slots& slots)
      : mine_(pipes + blockIdx.x * static_cast<uint64_t>(nRanks) + threadIdx.x),
        isMine_(static_cast<int>(threadIdx.x) < nRanks && static_cast<int>(threadIdx.x) != rank),
        rank_(rank),
        nRanks_(nRanks),
        slots_(slots) {}

  FLUXCCL_DEVICE int rank() const { return rank_; }
  FLUXCCL_DEVICE int nRanks() const { return nRanks_; }

  // Returns the rank that is `distance` places after this one.
  FLUXCCL_DEVICE int peer(int distance) const { return (rank_ + distance) % nRanks_; }

  FLUXCCL_DEVICE uint8_t* out(int peer) const { return slots_.out[peer]; }
  FLUXCCL_DEVICE const uint8_t* in(int peer) const { return slots_.in[peer]; }

  // Claims a slot to each rank for which wants(rank) is true. Returns false, to all threads, if the
  // communicator was aborted.
  template <typename Wants>
  FLUXCCL_DEVICE bool claim(Wants wants) {
    bool alive = true;
    if (isMine_ && wants(static_cast<int>(threadIdx.x))) {
      uint8_t* slot = mine_->claim();
      slots_.out[threadIdx.x] = slot;
      alive = slot != nullptr;
    }
    return __syncthreads_and(alive) != 0;
  }

  // Sends the data that all threads have written to the slots: bytesOf(peer) bytes, or nothing if that is
  // negative.
  template <typename BytesOf>
  FLUXCCL_DEVICE void publish(BytesOf bytesOf) {
    __syncthreads();
    if (isMine_) {
      const int64_t bytes = bytesOf(static_cast<int>(threadIdx.x));
      if (bytes >= 0) {
        mine_->publish(bytes);
      }
    }
  }

  // Waits for a piece from each rank for which wants(rank) is true. Returns false, to all threads, if the
  // communicator was aborted.
  template <typename Wants>
  FLUXCCL_DEVICE bool take(Wants wants) {
    bool alive = true;
    if (isMine_ && wants(static_cast<int>(threadIdx.x))) {
      const uint8_t* piece = mine_->take();
      slots_.in[threadIdx.x] = piece;
      alive = piece != nullptr;
    }
    return __syncthreads_and(alive) != 0;
  }

  // Releases the slots, which all threads have read.
  template <typename Wants>
  FLUXCCL_DEVICE void release(Wants wants) {
    __syncthreads();
    if (isMine_ && wants(static_cast<int>(threadIdx.x))) {
      mine_->release();
    }
  }

 private:
  Pipe* mine_;
  bool isMine_;
  int rank_;
  int nRanks_;
  Slots& slots_;
};

}  // namespace pipes
}  // namespace collectives
}  // namespace fluxccl
