// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.concurrent.UseCount;

/**
 * A mapping of GPU memory for kernels of one device of this process. The memory belongs to this
 * process or to another one. The mapping covers the whole allocation, even if only a part is used.
 *
 * <p>Counts its users. It starts with one user. After the last user has released it, a thread of
 * the library unmaps it. If kernels may still use it, release it through {@link
 * CudaDevice#whenEnqueuedWorkIsDone}. Thread-safe.
 */
public final class CudaMapping extends UseCount {
  private final PrimaryContext context;
  private final CudaMemoryName name;
  private final long address;
  private final Runnable unmap;

  /**
   * Creates a mapping with one user.
   *
   * @param context the context whose kernels use it
   * @param name the mapped memory
   * @param address of its first byte
   * @param unmap called once, on the deferred-free thread, with the context current
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
