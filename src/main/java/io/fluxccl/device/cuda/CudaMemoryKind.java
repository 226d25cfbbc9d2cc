// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** The way in which GPU memory is allocated, which determines how other processes map it. */
public enum CudaMemoryKind {
  /** {@code cuMemAlloc}, shared by legacy IPC handles. Needs nothing else. */
  PLAIN,
  /**
   * {@code cuMemCreate}, shared by file descriptors over a local socket. Needs FluxCCL's native
   * library.
   */
  VMM,
  /**
   * A memory pool that its owner made shareable ({@code cuMemPoolCreate} with POSIX file
   * descriptors). Only {@linkplain CudaDevice#wrap wrapped} memory has this kind. Needs FluxCCL's
   * native library.
   */
  POOL
}
