// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;
import java.util.stream.IntStream;

/**
 * Memory by {@code cuMemCreate}, which other processes map by a file descriptor that they receive
 * from the {@link DescriptorServer}. All GPUs of this process that can reach it may read and write
 * it.
 */
final class VmmAllocation extends CudaAllocation {
  private final VmmMapping mapping;
  private final long handle;

  private DescriptorServer.Offer offer; // guarded by this

  private VmmAllocation(CudaDevice device, VmmMapping mapping, long handle) {
    super(device, mapping.address(), mapping.size());
    this.mapping = mapping;
    this.handle = handle;
  }

  /** Returns memory with one user; not zeroed. The size is rounded up to whole pages. */
  static VmmAllocation allocate(CudaDevice device, long size) {
    NativeLibrary.require("VMM memory");
    PrimaryContext context = device.context();
    context.makeCurrent();
    long[] result = new long[1];
    context.check(VmmCalls.granularity(context.ordinal, result), "cuMemGetAllocationGranularity");
    long granularity = Math.max(result[0], PlainAllocation.GRANULARITY);
    long rounded = (size + granularity - 1) / granularity * granularity;
    allocate(
        context,
        () -> VmmCalls.create(context.ordinal, rounded, result),
        "cuMemCreate(" + rounded + ")");
    long handle = result[0];
    try {
      VmmMapping mapping =
          VmmMapping.map(context, new long[] {handle}, rounded, devicesThatReach(device));
      return new VmmAllocation(device, mapping, handle);
    } catch (RuntimeException | Error e) {
      VmmCalls.release(handle);
      throw e;
    }
  }

  private static int[] devicesThatReach(CudaDevice device) {
    return IntStream.range(0, CudaDriver.count())
        .filter(other -> CudaDriver.canReach(other, device.index()))
        .toArray();
  }

  @Override
  synchronized CudaMemoryName share() {
    PrimaryContext context = device().context();
    int[] descriptor = new int[1];
    context.check(VmmCalls.exportDescriptor(handle, descriptor), "cuMemExportToShareableHandle");
    offer = DescriptorServer.PROCESS.offer(descriptor[0]);
    return CudaMemoryName.vmm(id(), size(), context.pciBusId, offer.socketName(), offer.token());
  }

  @Override
  synchronized void free() {
    if (offer != null) {
      offer.close(); // its descriptor would keep the memory
    }
    try {
      mapping.unmap();
    } finally {
      device().context().check(VmmCalls.release(handle), "cuMemRelease");
    }
  }
}
