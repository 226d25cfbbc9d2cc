// SPDX-License-Identifier: Apache-2.0
// Scratch memory: memory of every rank in which its peers place inputs to reduce and reduced parts. Only
// large calls use it, so it is allocated separately from the regions.
#pragma once

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.Scratch.
struct Scratch {
  // Address of each rank's scratch memory as mapped on this rank, by rank.
  uint8_t* areas[MappedPeers::kMaxRanks];
  uint64_t slotBytes;
  // Whether results go through scratch memory too, because outputs are not mapped.
  int32_t staged;
  int32_t padding;
};
FLUXCCL_ASSERT_OFFSET(Scratch, slotBytes, 128);
FLUXCCL_ASSERT_SIZE(Scratch, 144);

}  // namespace collectives
}  // namespace fluxccl
