package io.fluxccl.collective.channel;

import io.fluxccl.device.DeviceHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/** A kernel's argument that is written field by field. */
final class KernelPlan implements DeviceHandle {
  private final ByteBuffer bytes;

  KernelPlan(int length) {
    bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  KernelPlan put(long value) {
    bytes.putLong(value);
    return this;
  }

  KernelPlan put(int value) {
    bytes.putInt(value);
    return this;
  }

  KernelPlan put(Spread spread) {
    return put(spread.total())
        .put(spread.stride())
        .put(spread.each())
        .put(spread.only())
        .put(spread.except());
  }

  @Override
  public int handleLength() {
    return bytes.capacity();
  }

  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    target.putBytes(offset, bytes.array());
  }
}
