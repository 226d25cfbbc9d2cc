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

  // A trigger of type 0 reports an argument that does not fit. The first word holds the argument, the
  // low bits of the second word hold its kind. The proxy fails the channel of such a trigger.
  static constexpr uint64_t kRefusedSize = 1;
  static constexpr uint64_t kRefusedSourceOffset = 2;
  static constexpr uint64_t kRefusedDestinationOffset = 3;
  static constexpr uint64_t kRefusedSourceMemory = 4;
  static constexpr uint64_t kRefusedDestinationMemory = 5;

  // Packs a request, with the commit bit clear. Size and offsets in bytes; the id is below kMaxIds.
  // If an argument does not fit, returns a trigger of type 0, with which the proxy fails the channel.
  FLUXCCL_HOST_DEVICE static ProxyTrigger pack(uint64_t size, uint64_t sourceOffset,
                                               uint64_t destinationOffset, uint32_t sourceMemory,
                                               uint32_t destinationMemory, uint32_t type,
                                               uint32_t id) {
    const uint64_t channel = static_cast<uint64_t>(id) << kIdShift;
    if (((size | sourceOffset | destinationOffset) & ~(kMaxBytes - 1)) != 0 ||
        ((sourceMemory | destinationMemory) & ~(kMaxMemories - 1)) != 0) {
      if (size >= kMaxBytes) {
        return {size, channel | kRefusedSize};
      }
      if (sourceOffset >= kMaxBytes) {
        return {sourceOffset, channel | kRefusedSourceOffset};
      }
      if (destinationOffset >= kMaxBytes) {
        return {destinationOffset, channel | kRefusedDestinationOffset};
      }
      if (sourceMemory >= kMaxMemories) {
        return {sourceMemory, channel | kRefusedSourceMemory};
      }
      return {destinationMemory, channel | kRefusedDestinationMemory};
    }
    return {sourceOffset << 32 | size,
            destinationOffset | static_cast<uint64_t>(sourceMemory) << kSourceMemoryShift |
                static_cast<uint64_t>(destinationMemory) << kDestinationMemoryShift |
                static_cast<uint64_t>(type) << kTypeShift | channel};
  }

  // Returns the type of a trigger; 0 if an argument did not fit.
  FLUXCCL_HOST_DEVICE static uint32_t type(const ProxyTrigger& trigger) {
    return static_cast<uint32_t>(trigger.second >> kTypeShift) & (kData | kSignal | kFlush);
  }
};

}  // namespace fluxccl
