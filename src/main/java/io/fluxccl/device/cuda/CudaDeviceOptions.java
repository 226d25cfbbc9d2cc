// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;

/**
 * Settings of a {@link CudaDevice}. Immutable.
 *
 * @param memory the kind of its allocations
 */
public record CudaDeviceOptions(CudaMemoryKind memory) {
  /** Plain memory. */
  public static final CudaDeviceOptions DEFAULT = new CudaDeviceOptions(CudaMemoryKind.PLAIN);

  /** Refuses null, and a kind that the library does not allocate. */
  public CudaDeviceOptions {
    if (memory == null) {
      throw new InvalidUsage("memory=null; give one of CudaMemoryKind");
    }
    if (memory == CudaMemoryKind.POOL) {
      throw new InvalidUsage("memory=POOL; the library allocates PLAIN or VMM memory");
    }
  }

  /** Returns these options with another kind of memory. */
  public CudaDeviceOptions withMemory(CudaMemoryKind kind) {
    return new CudaDeviceOptions(kind);
  }
}
