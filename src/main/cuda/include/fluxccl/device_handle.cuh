// SPDX-License-Identifier: Apache-2.0
// The structures that represent host objects in kernels. Twin of DeviceHandle.
#pragma once

namespace fluxccl {

// In these headers the name of the host's class is the handle itself: DeviceHandle<SmChannel> is SmChannel.
template <class T>
using DeviceHandle = typename T::DeviceHandle;

}  // namespace fluxccl
