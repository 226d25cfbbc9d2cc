// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.SplittableRandom;

/** Reads and writes a rank's registered memory, on whichever device it is. */
public final class Contents {
  private Contents() {}

  /** With acquire on the host; a download elsewhere. */
  public static long getLong(RegisteredMemory memory, long offset) {
    if (memory.buffer().device().kind() == DeviceKind.HOST) {
      return HostMemory.getLongAcquire(memory.address() + offset);
    }
    ByteBuffer word = words(1);
    memory.buffer().download(offset, word);
    return word.getLong(0);
  }

  public static void putLong(RegisteredMemory memory, long offset, long value) {
    if (memory.buffer().device().kind() == DeviceKind.HOST) {
      HostMemory.putLong(memory.address() + offset, value);
    } else {
      memory.buffer().upload(offset, words(1).putLong(0, value));
    }
  }

  public static byte[] get(RegisteredMemory memory, long offset, int size) {
    byte[] bytes = new byte[size];
    memory.buffer().download(offset, bytes);
    return bytes;
  }

  public static void put(RegisteredMemory memory, long offset, byte[] bytes) {
    memory.buffer().upload(offset, bytes);
  }

  /** Fills it with bytes that the seed decides. */
  public static byte[] fill(RegisteredMemory memory, long seed) {
    byte[] bytes = new byte[(int) memory.size()];
    new SplittableRandom(seed).nextBytes(bytes);
    put(memory, 0, bytes);
    return bytes;
  }

  /** Asserts that a range of one memory has the bytes of a range of another. */
  public static void assertSame(
      RegisteredMemory target, long targetOffset, RegisteredMemory source, long offset, int size) {
    assertThat(get(target, targetOffset, size)).isEqualTo(get(source, offset, size));
  }

  private static ByteBuffer words(int count) {
    return ByteBuffer.allocateDirect(count * 8).order(ByteOrder.LITTLE_ENDIAN);
  }
}
