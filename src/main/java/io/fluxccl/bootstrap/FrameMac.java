// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.util.Arrays;
import javax.crypto.Mac;

/**
 * Authenticates the frames of one direction of a connection: each carries an HMAC-SHA-256 over its
 * number and its bytes, cut to 16 bytes. So no frame can be forged, changed, left out, repeated or
 * sent back. Only on the event loop.
 */
final class FrameMac {
  static final int BYTES = 16;

  private final Mac mac;
  private final ByteBuffer number = ByteBuffer.allocate(Long.BYTES);
  private long frames;

  /**
   * @param key of one direction of one connection
   */
  FrameMac(byte[] key) {
    mac = SessionKey.macOf(key);
  }

  /** Returns the code of the next frame, whose bytes lie between the buffer's indices. */
  byte[] next(ByteBuf frame) {
    mac.update(number.putLong(0, frames++).rewind());
    for (ByteBuffer part : frame.nioBuffers()) {
      mac.update(part);
    }
    return Arrays.copyOf(mac.doFinal(), BYTES);
  }
}
