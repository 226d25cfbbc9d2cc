// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.concurrent.UseCount;

/**
 * Memory of a GPU as kernels of one device of this process reach it: another process's, mapped, or
 * this process's own. The whole allocation, however small the part that is wanted.
 *
 * <p>Counts its users: made with one, unmapped with the last, on a thread of the library. A release
 * while kernels may still use it belongs in {@link CudaDevice#whenEnqueuedWorkIsDone}. Thread-safe.
 */
public final class CudaMapping extends UseCount {
  private final PrimaryContext context;
  private final CudaMemoryName name;
  private final long address;
  private final Runnable unmap;

  /**
   * With one user.
   *
   * @param context whose kernels reach it
   * @param name what is mapped
   * @param address of its first byte
   * @param unmap called once, on the reaper's thread, with the context current
   */
  CudaMapping(PrimaryContext context, CudaMemoryName name, long address, Runnable unmap) {
    this.context = context;
    this.name = name;
    this.address = address;
    this.unmap = unmap;
    context.retain();
  }

  /** Returns the memory that is mapped. */
  public CudaMemoryName name() {
    return name;
  }

  /** Returns the address of its first byte for kernels of this device. */
  public long address() {
    return address;
  }

  /** Returns its length in bytes. */
  public long size() {
    return name.size();
  }

  @Override
  protected void lastUserLeft() {
    context.mappings.remove(this);
    context.freeLater(unmap);
  }

  @Override
  public String toString() {
    return "CudaMapping(" + name + " for GPU " + context.ordinal + ")";
  }
}
