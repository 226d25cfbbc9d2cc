// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

/** Where kernels run. */
public enum DeviceKind {
  /** Threads of this process on the CPU, memory shared between processes. */
  HOST,
  /** An NVIDIA GPU. */
  CUDA
}
