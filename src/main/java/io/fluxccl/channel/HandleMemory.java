package io.fluxccl.channel;

import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The bytes of a device handle that the host made for its own kernels; lives as long as somebody
 * holds this.
 */
final class HandleMemory {
  private static final int CACHE_LINE = 64;

  private final ByteBuffer memory;
  private final UnsafeBuffer buffer;

  HandleMemory(int length) {
    memory = BufferUtil.allocateDirectAligned(length, CACHE_LINE);
    buffer = new UnsafeBuffer(memory);
  }

  UnsafeBuffer buffer() {
    return buffer;
  }

  long address() {
    return buffer.addressOffset();
  }
}
