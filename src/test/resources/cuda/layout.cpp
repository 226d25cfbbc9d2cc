// SPDX-License-Identifier: Apache-2.0
// Prints the layouts, and words packed as kernels pack them, as a C++ compiler sees them.
#include <fluxccl/fluxccl.cuh>

#include <cstdio>

#include "layout.cuh"

using namespace fluxccl;

#define SIZE(type) std::printf("%s=%zu\n", #type, sizeof(type));
#define OFFSET(type, member) std::printf("%s.%s=%zu\n", #type, #member, offsetof(type, member));

static void print(const char* name, const ProxyTrigger& trigger) {
  std::printf("%s.first=%llu\n%s.second=%llu\n", name,
              static_cast<unsigned long long>(trigger.first), name,
              static_cast<unsigned long long>(trigger.second));
}

int main() {
  FLUXCCL_LAYOUT(SIZE, OFFSET)
  // LayoutTest packs these values too.
  const uint32_t type = ChannelTrigger::kData | ChannelTrigger::kFlush;
  print("trigger", ChannelTrigger::pack(0xfedcba98u, 0x89abcdefu, 0x87654321u, 511, 256, type, 1023));
  const uint64_t limit = uint64_t{1} << 32;
  print("size", ChannelTrigger::pack(limit, 0, 0, 0, 0, type, 1023));
  print("sourceOffset", ChannelTrigger::pack(0, limit + 16, 0, 0, 0, type, 1023));
  print("destinationOffset", ChannelTrigger::pack(0, 0, ~uint64_t{0}, 0, 3, type, 1023));
  print("sourceMemory", ChannelTrigger::pack(8, 0, 0, 512, 0, type, 1023));
  print("destinationMemory", ChannelTrigger::pack(8, 0, 0, 0, 513, type, 1023));
  for (unsigned long long position = 0; position < 40; position += 8) {
    std::printf("commit%llu=%llu\n", position,
                static_cast<unsigned long long>(ProxyTrigger::commit(~0ull, position, 16)));
  }
  return 0;
}
