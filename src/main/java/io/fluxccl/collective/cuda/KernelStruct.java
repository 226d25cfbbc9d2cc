package io.fluxccl.collective.cuda;

import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** A kernel's argument: the bytes of a struct in CUDA, at whose offsets a subclass writes. */
abstract class KernelStruct implements DeviceHandle {
  private final UnsafeBuffer bytes;

  /** Creates a struct of zeros. */
  KernelStruct(int length) {
    bytes = new UnsafeBuffer(new byte[length]);
  }

  final void putLong(int offset, long value) {
    bytes.putLong(offset, value, ByteOrder.LITTLE_ENDIAN);
  }

  final void putInt(int offset, int value) {
    bytes.putInt(offset, value, ByteOrder.LITTLE_ENDIAN);
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
