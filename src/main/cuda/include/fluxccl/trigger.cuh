// SPDX-License-Identifier: Apache-2.0
// A channel's request to the proxy, packed into the two words of a trigger. Twin of ChannelTrigger
// and ProxyTrigger.
//
//   first word    [0-31] size          [32-63] source offset
//   second word   [0-31] destination offset
//                 [32-40] source memory id   [41-49] destination memory id
//                 [50-52] type               [53-62] channel id    [63] the ring's commit bit
#pragma once

#include "config.cuh"

namespace fluxccl {

// A slot of the ring.
struct alignas(16) ProxyTrigger {
  uint64_t first;
  // Bit 63 is the ring's own: the parity of the lap that wrote the slot, (lap & 1) ^ 1.
  uint64_t second;

  static constexpr uint64_t kCommitBit = uint64_t{1} << 63;

  // Returns the second word as it is stored at a position of a ring of that size, a power of two.
  FLUXCCL_HOST_DEVICE static uint64_t commit(uint64_t second, uint64_t position, uint64_t size) {
    return (second & ~kCommitBit) | ((position & size) == 0 ? kCommitBit : 0);
  }
};

FLUXCCL_ASSERT_OFFSET(ProxyTrigger, first, 0);
FLUXCCL_ASSERT_OFFSET(ProxyTrigger, second, 8);
FLUXCCL_ASSERT_SIZE(ProxyTrigger, 16);

struct ChannelTrigger {
  // Types, combined by OR: write to the peer; raise its semaphore after that; notify the device
  // when all earlier writes have arrived.
  static constexpr uint32_t kData = 1;
  static constexpr uint32_t kSignal = 2;
  static constexpr uint32_t kFlush = 4;

  static constexpr uint32_t kMaxMemories = 512;
  static constexpr uint32_t kMaxIds = 1024;
  // Sizes and offsets are below this.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

  static constexpr uint32_t kSourceMemoryShift = 32;
  static constexpr uint32_t kDestinationMemoryShift = 41;
  static constexpr uint32_t kTypeShift = 50;
  static constexpr uint32_t kIdShift = 53;

  // Packs the first word. Bytes.
  FLUXCCL_HOST_DEVICE static uint64_t first(uint64_t size, uint64_t sourceOffset) {
    FLUXCCL_REQUIRE(size < kMaxBytes && sourceOffset < kMaxBytes);
    return sourceOffset << 32 | size;
  }

  // Packs the second word, with the commit bit clear. Offset in bytes.
  FLUXCCL_HOST_DEVICE static uint64_t second(uint64_t destinationOffset, uint32_t sourceMemory,
                                             uint32_t destinationMemory, uint32_t type,
                                             uint32_t id) {
    FLUXCCL_REQUIRE(destinationOffset < kMaxBytes && sourceMemory < kMaxMemories &&
                    destinationMemory < kMaxMemories && id < kMaxIds);
    return destinationOffset | static_cast<uint64_t>(sourceMemory) << kSourceMemoryShift |
           static_cast<uint64_t>(destinationMemory) << kDestinationMemoryShift |
           static_cast<uint64_t>(type) << kTypeShift | static_cast<uint64_t>(id) << kIdShift;
  }
};

}  // namespace fluxccl
