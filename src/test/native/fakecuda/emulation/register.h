// SPDX-License-Identifier: Apache-2.0
// Makes a kernel known by its name. build includes a source, and then this with a line for each of its kernels.
#ifndef FLUXCCL_EMULATED_REGISTER_H
#define FLUXCCL_EMULATED_REGISTER_H

#include <tuple>
#include <utility>

#include "emulation.h"

int fluxcclEmulatedStaticShared();

namespace fluxccl_emulated {

// Parameters are consecutive, each aligned as its type requires.
template <class... Parameters>
struct Layout {
  uint32_t sizes[sizeof...(Parameters) + 1] = {static_cast<uint32_t>(sizeof(Parameters))..., 0};
  uint32_t offsets[sizeof...(Parameters) + 1] = {};

  Layout() {
    const uint32_t alignments[] = {static_cast<uint32_t>(alignof(Parameters))..., 1};
    uint32_t at = 0;
    for (size_t i = 0; i < sizeof...(Parameters); ++i) {
      at = (at + alignments[i] - 1) / alignments[i] * alignments[i];
      offsets[i] = at;
      at += sizes[i];
    }
  }
};

template <auto kKernel>
struct Kernel;

template <class... Parameters, void (*kKernel)(Parameters...)>
struct Kernel<kKernel> {
  using Values = Layout<std::remove_cv_t<Parameters>...>;

  static const Values& layout() {
    static const Values layout;
    return layout;
  }

  template <size_t... kIndices>
  static void call(const unsigned char* parameters, std::index_sequence<kIndices...>) {
    const uint32_t* offsets = layout().offsets;
    static_cast<void>(offsets);
    kKernel(*reinterpret_cast<const std::remove_cv_t<Parameters>*>(parameters + offsets[kIndices])...);
  }

  static void body(const unsigned char* parameters) {
    call(parameters, std::make_index_sequence<sizeof...(Parameters)>());
  }

  Kernel(const char* name, int maxThreads) {
    static emulated_kernel kernel;
    kernel = {name, sizeof...(Parameters), layout().sizes, layout().offsets,
              maxThreads, fluxcclEmulatedStaticShared(), body};
    emulation_register(&kernel);
  }
};

}  // namespace fluxccl_emulated

#define FLUXCCL_EMULATED_KERNEL(name, maxThreads) \
  static const fluxccl_emulated::Kernel<&name> name##_emulated(#name, maxThreads);

#endif
