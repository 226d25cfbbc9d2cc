// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** How memory of a GPU is allocated, which decides how other processes map it. */
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
   * descriptors). Only memory that is {@linkplain CudaDevice#wrap wrapped} is of this kind. Needs
   * FluxCCL's native library.
   */
  POOL
}
