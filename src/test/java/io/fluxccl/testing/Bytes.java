// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.device.DeviceBuffer;
import java.util.SplittableRandom;

/** Bytes of buffers, and bytes that every rank can compute. */
public final class Bytes {
  private Bytes() {}

  /** Returns the content of a buffer. */
  public static byte[] of(DeviceBuffer buffer) {
    return of(buffer, 0, (int) buffer.size());
  }

  /** Returns a part of the content of a buffer. */
  public static byte[] of(DeviceBuffer buffer, long offset, int length) {
    byte[] bytes = new byte[length];
    buffer.download(offset, bytes);
    return bytes;
  }

  /** Returns bytes that the seed decides. */
  public static byte[] random(long seed, int length) {
    byte[] bytes = new byte[length];
    new SplittableRandom(seed).nextBytes(bytes);
    return bytes;
  }
}
