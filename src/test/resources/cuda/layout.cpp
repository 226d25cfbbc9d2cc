// SPDX-License-Identifier: Apache-2.0
// Prints the layouts, and words packed as kernels pack them, as a C++ compiler sees them.
#include <fluxccl/fluxccl.cuh>

#include <cstdio>

#include "layout.cuh"

using namespace fluxccl;

#define SIZE(type) std::printf("%s=%zu\n", #type, sizeof(type));
#define OFFSET(type, member) std::printf("%s.%s=%zu\n", #type, #member, offsetof(type, member));

int main() {
  FLUXCCL_LAYOUT(SIZE, OFFSET)
  // What is packed here, LayoutTest packs too.
  std::printf("first=%llu\n",
              static_cast<unsigned long long>(ChannelTrigger::first(0xfedcba98u, 0x89abcdefu)));
  std::printf("second=%llu\n",
              static_cast<unsigned long long>(ChannelTrigger::second(
                  0x87654321u, 511, 256, ChannelTrigger::kData | ChannelTrigger::kFlush, 1023)));
  for (unsigned long long position = 0; position < 40; position += 8) {
    std::printf("commit%llu=%llu\n", position,
                static_cast<unsigned long long>(ProxyTrigger::commit(~0ull, position, 16)));
  }
  return 0;
}
