package io.fluxccl.collective.channel;

import io.fluxccl.device.DeviceHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/** A plan as a GPU's kernel takes it, written field by field. */
final class PlanHandle implements DeviceHandle {
  private final ByteBuffer bytes;

  PlanHandle(int length) {
    bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  PlanHandle put(long value) {
    bytes.putLong(value);
    return this;
  }

  PlanHandle put(int value) {
    bytes.putInt(value);
    return this;
  }

  PlanHandle put(Spread spread) {
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
