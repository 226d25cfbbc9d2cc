// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.AbstractStream;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.Recording;

/** A stream of the host device. It runs its work on its own thread, or records it for a graph. */
@Experimental
public abstract class HostStream extends AbstractStream<HostDevice, HostStream> {
  HostStream(HostDevice device, String name, Recording recording) {
    super(device, name, recording);
  }

  /** Enqueues a task. Refuses it if the stream is closed or its recording has ended. */
  abstract void enqueue(StreamTask task);

  @Override
  protected final boolean canUse(DeviceBuffer buffer) {
    return buffer instanceof HostBuffer;
  }

  @Override
  protected final HostStream enqueueCopy(long target, long source, long size) {
    enqueue(new StreamTask.Copy(target, source, size));
    return this;
  }

  @Override
  protected final HostStream enqueueWrite(long target, long value) {
    enqueue(new StreamTask.WriteValue(target, value));
    return this;
  }

  /**
   * {@inheritDoc}
   *
   * <p>{@link KernelThread#abortAddress()} returns the address of the {@link AbortFlag} among the
   * arguments.
   */
  @Override
  public HostStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args) {
    if (!(kernel instanceof HostKernel launched)) {
      throw InvalidUsage.of(
          "kernel %s is for %s, this is the host device; make it with HostKernel.of",
          kernel.name(), kernel.kind());
    }
    if (gridDim < 1 || blockDim < 1 || blockDim > HostKernel.MAX_BLOCK_DIM) {
      throw InvalidUsage.of(
          "gridDim=%s blockDim=%s of kernel %s; a grid has 1 block or more, a block 1"
              + " to %s threads",
          gridDim, blockDim, kernel.name(), HostKernel.MAX_BLOCK_DIM);
    }
    keep(args);
    enqueue(new StreamTask.Launch(launched, gridDim, blockDim, args, abortAddress(args)));
    return this;
  }

  private static long abortAddress(KernelArgs args) {
    for (int i = 0; i < args.count(); i++) {
      Object value = args.get(i, Object.class);
      if (value instanceof AbortFlag flag) {
        return flag.deviceAddress();
      }
    }
    return 0;
  }

  @Override
  public String toString() {
    return "HostStream(" + name + ")";
  }
}
