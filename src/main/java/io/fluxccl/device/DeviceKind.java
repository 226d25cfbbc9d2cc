// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/** The kinds of devices. */
public enum DeviceKind {
  /** The CPU: kernels run on threads of this process, memory is shared between processes. */
  HOST,
  /** An NVIDIA GPU. */
  CUDA
}
