// SPDX-License-Identifier: Apache-2.0
// Places the blocks' shared memory. In a kernel's source __shared__ is thread_local, and to find such a variable the
// compiler calls __tls_get_addr; in this library that is the function here, which gives the running block's own.
#include <elf.h>
#include <link.h>

#include "emulation.h"

extern "C" __attribute__((visibility("hidden"))) const ElfW(Ehdr) __ehdr_start;

namespace {

struct Variable {
  unsigned long module;
  unsigned long offset;
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* __tls_get_addr(const Variable* variable) {
  return emulated_self->block->static_shared + variable->offset;
}

// The compiler calls this function, by this name, if an address is not aligned.
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(const void*, const void*) {
  emulation_misaligned();
}

// Size of the static shared memory of all kernels together.
__attribute__((visibility("hidden"))) int fluxcclEmulatedStaticShared() {
  const auto* headers =
      reinterpret_cast<const ElfW(Phdr)*>(reinterpret_cast<const char*>(&__ehdr_start) + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; ++i) {
    if (headers[i].p_type == PT_TLS) {
      return static_cast<int>(headers[i].p_memsz);
    }
  }
  return 0;
}
