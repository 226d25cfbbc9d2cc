// Memory of every rank in which the others put what is to be reduced or handed on: made for large calls, and
// so apart from the family's state.
#pragma once

#include "mapped_peers.cuh"

namespace fluxccl {
namespace collectives {

// The twin of io.fluxccl.collective.cuda.Scratch.
struct Scratch {
  // By rank, as this one maps it.
  uint8_t* areas[MappedPeers::kMaxRanks];
  uint64_t slotBytes;
  // Whether outputs are reached by way of scratch.
  int32_t staged;
  int32_t padding;
};
FLUXCCL_ASSERT_OFFSET(Scratch, slotBytes, 128);
FLUXCCL_ASSERT_SIZE(Scratch, 144);

}  // namespace collectives
}  // namespace fluxccl
