// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.nio.ByteBuffer;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Runs synchronous copies on their own stream, so that they wait for no other work. Other streams
 * may run kernels that wait for the caller. Copies through page-locked memory, one piece at a time;
 * one caller at a time.
 */
final class CopyStream {
  private static final int STAGING_LENGTH = 1 << 20;

  private final PrimaryContext context;

  // All guarded by this; made before the first copy.
  private final CudaPointer target = new CudaPointer();
  private final CudaPointer source = new CudaPointer();
  private CUstream stream;
  private PinnedBlock memory;
  private UnsafeBuffer staging;

  CopyStream(PrimaryContext context) {
    this.context = context;
  }

  /** Copies the remaining bytes to device memory; returns when the copy is done. */
  synchronized void upload(long address, ByteBuffer bytes) {
    open();
    long to = address;
    while (bytes.hasRemaining()) {
      int length = Math.min(bytes.remaining(), STAGING_LENGTH);
      staging.putBytes(0, bytes, length);
      copy(to, memory.deviceAddress, length);
      to += length;
    }
  }

  /** Fills the buffer from device memory; returns when the copy is done. */
  synchronized void download(long address, ByteBuffer bytes) {
    open();
    long from = address;
    while (bytes.hasRemaining()) {
      int length = Math.min(bytes.remaining(), STAGING_LENGTH);
      copy(memory.deviceAddress, from, length);
      staging.getBytes(0, bytes, length);
      from += length;
    }
  }

  /** Zeroes device memory; returns when it is done. */
  synchronized void zero(long address, long size) {
    open();
    context.check(
        JCudaDriver.cuMemsetD8Async(target.set(address), (byte) 0, size, stream),
        "cuMemsetD8Async(" + size + ")");
    await();
  }

  private void copy(long to, long from, int length) {
    context.check(
        JCudaDriver.cuMemcpyAsync(target.set(to), source.set(from), length, stream),
        "cuMemcpyAsync(" + length + ")");
    await();
  }

  private void await() {
    context.check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  /**
   * Allocates the stream and the staging memory, so that nothing is allocated later, while kernels
   * run.
   */
  synchronized void open() {
    context.makeCurrent();
    if (stream == null) {
      stream = context.createStream(true);
    }
    if (memory == null) {
      memory = PinnedBlock.allocateUncounted(context, STAGING_LENGTH);
      staging = memory.view(0, STAGING_LENGTH);
    }
  }

  /** Frees the stream and the memory. Called once, by the context's deferred-free thread. */
  synchronized void close() {
    if (stream != null) {
      JCudaDriver.cuStreamDestroy(stream);
    }
    if (memory != null) {
      memory.free();
    }
  }
}
