package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;

/**
 * Settings of a {@link CudaDevice}. Immutable.
 *
 * @param memory how its memory is allocated
 */
public record CudaDeviceOptions(CudaMemoryKind memory) {
  /** Plain memory. */
  public static final CudaDeviceOptions DEFAULT = new CudaDeviceOptions(CudaMemoryKind.PLAIN);

  /** Refuses null. */
  public CudaDeviceOptions {
    if (memory == null) {
      throw new InvalidUsage("memory=null; give one of CudaMemoryKind");
    }
  }

  /** Returns these options with another kind of memory. */
  public CudaDeviceOptions withMemory(CudaMemoryKind kind) {
    return new CudaDeviceOptions(kind);
  }
}
