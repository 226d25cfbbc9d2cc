// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A struct of CUDA, little-endian, as a kernel's argument or as the content of device memory.
 * Fields are written consecutively, from the start or from another offset. One thread at a time.
 */
@Experimental
public class KernelStruct implements DeviceHandle {
  private final UnsafeBuffer bytes;
  private int next;

  /** Creates a struct of zeros. */
  public KernelStruct(int length) {
    bytes = new UnsafeBuffer(new byte[length]);
  }

  /** Moves to an offset, where the next field is written. */
  public final KernelStruct at(int offset) {
    next = offset;
    return this;
  }

  /** Writes a field of 8 bytes. */
  public final KernelStruct putLong(long value) {
    bytes.putLong(next, value, ByteOrder.LITTLE_ENDIAN);
    next += Long.BYTES;
    return this;
  }

  /** Writes a field of 4 bytes. */
  public final KernelStruct putInt(int value) {
    bytes.putInt(next, value, ByteOrder.LITTLE_ENDIAN);
    next += Integer.BYTES;
    return this;
  }

  /** Writes a pointer to a buffer; a null pointer for null. */
  public final KernelStruct putAddress(DeviceBuffer buffer) {
    return putLong(buffer == null ? 0 : buffer.address());
  }

  /** Returns the field of 8 bytes at an offset. */
  public final long getLong(int offset) {
    return bytes.getLong(offset, ByteOrder.LITTLE_ENDIAN);
  }

  /** Returns the field of 4 bytes at an offset. */
  public final int getInt(int offset) {
    return bytes.getInt(offset, ByteOrder.LITTLE_ENDIAN);
  }

  /** Writes a field that is a struct. */
  public final KernelStruct put(DeviceHandle field) {
    field.writeHandle(bytes, next);
    next += field.handleLength();
    return this;
  }

  /** Copies the struct to device memory, and returns when it is there. */
  public final void upload(DeviceBuffer target, long offset) {
    target.upload(offset, bytes.byteArray());
  }

  @Override
  public final int handleLength() {
    return bytes.capacity();
  }

  @Override
  public final void writeHandle(MutableDirectBuffer target, int offset) {
    target.putBytes(offset, bytes, 0, bytes.capacity());
  }
}
