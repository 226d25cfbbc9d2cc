// SPDX-License-Identifier: Apache-2.0
// Writes the layouts, as the device's compiler sees them, to out, in the order of the list.
#include <fluxccl/fluxccl.cuh>

#include "layout.cuh"

using namespace fluxccl;

// Measured, because NVRTC has no offsetof.
#define SIZE(type) *out++ = static_cast<uint32_t>(sizeof(type));
#define OFFSET(type, member)                                                        \
  *out++ = static_cast<uint32_t>(                                                   \
      reinterpret_cast<uint64_t>(&reinterpret_cast<const type*>(origin)->member) - \
      reinterpret_cast<uint64_t>(origin));

// out: one word for each value.
extern "C" __global__ void layout(uint32_t* out) {
  const void* origin = out;
  FLUXCCL_LAYOUT(SIZE, OFFSET)
}
