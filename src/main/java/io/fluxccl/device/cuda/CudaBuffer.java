// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.device.DmaBuf;
import io.fluxccl.device.PartBuffer;
import java.nio.ByteBuffer;
import java.util.Optional;

/**
 * A part of a {@link CudaMemory}. Thread-safe.
 *
 * <p>Closing it releases the allocation after the work enqueued so far is done, without waiting for
 * it. Other users, such as a registration, retain the {@link #allocation()}. {@link #upload} and
 * {@link #download} wait only for the copy.
 *
 * <p>The owner of wrapped memory ({@link CudaDevice#wrap(long, long)}) frees it after all ranks
 * have stopped using it:
 *
 * <pre>{@code
 * // BAD: peers may still map it, and write to a later allocation at its address
 * registration.close();
 * cuMemFree(pointer);
 *
 * // GOOD: when every rank has done the same
 * registration.close();
 * buffer.close();
 * group.close();
 * cuMemFree(pointer);
 * }</pre>
 */
public final class CudaBuffer extends PartBuffer<CudaDevice, CudaMemory> {
  /** Takes over one use of the allocation. */
  CudaBuffer(CudaDevice device, CudaMemory allocation, long allocationOffset, long size) {
    super(device, allocation, allocation.address(), allocationOffset, size);
  }

  private CudaBuffer(CudaBuffer of, long offset, long size) {
    super(of, offset, size);
  }

  /** Returns the allocation that it is a part of. */
  public CudaMemory allocation() {
    return memory();
  }

  /** Returns its offset in {@link #allocation()}, in bytes. */
  public long allocationOffset() {
    return memoryOffset();
  }

  @Override
  public Optional<DmaBuf> exportDmaBuf() {
    return use(() -> memory().exportDmaBuf(memoryOffset()));
  }

  @Override
  public CudaBuffer slice(long offset, long sliceSize) {
    return new CudaBuffer(this, offset, sliceSize);
  }

  @Override
  public Optional<String> unshareableReason() {
    return use(memory()::unshareableReason);
  }

  @Override
  protected void copyIn(long targetAddress, ByteBuffer source) {
    device().context().copyStream.upload(targetAddress, source);
  }

  @Override
  protected void copyOut(long sourceAddress, ByteBuffer target) {
    device().context().copyStream.download(sourceAddress, target);
  }
}
