package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** Puts an array of device handles into device memory. */
public final class DeviceHandles {
  private DeviceHandles() {}

  /** Writes the handle of one index. */
  public interface Writer {
    void write(MutableDirectBuffer out, int offset, int index);
  }

  /** Fills it with {@code count} handles of {@code handleLength} bytes each. */
  public static void fill(DeviceBuffer target, int handleLength, int count, Writer writer) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(handleLength * count).order(ByteOrder.LITTLE_ENDIAN);
    UnsafeBuffer out = new UnsafeBuffer(bytes);
    for (int i = 0; i < count; i++) {
      writer.write(out, i * handleLength, i);
    }
    target.upload(0, bytes);
  }
}
