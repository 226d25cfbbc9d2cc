// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * The description of a buffer that a rank sends its peers before any of them maps it, so that all
 * agree whether the buffer is used directly.
 *
 * @param size bytes
 * @param unshareable why peers can't map it; empty if they can
 */
record SharedBuffer(long size, String unshareable) {
  private static final int MAGIC = 0x46584253; // FXBS
  private static final int VERSION = 1;
  private static final int MOST_TEXT = 4096;

  static SharedBuffer of(DeviceBuffer buffer) {
    String reason = buffer.unshareableReason().orElse("");
    return new SharedBuffer(
        buffer.size(), reason.substring(0, Math.min(reason.length(), MOST_TEXT / 4)));
  }

  byte[] encode() {
    return new WireWriter().header(MAGIC, VERSION).int64(size).string(unshareable).toBytes();
  }

  /** Reads what all ranks sent, by rank; a malformed one fails and names its sender. */
  static List<SharedBuffer> decodeAll(List<byte[]> messages) {
    List<SharedBuffer> all = new ArrayList<>();
    for (int rank = 0; rank < messages.size(); rank++) {
      WireReader in =
          WireReader.ofPeer(messages.get(rank), "description of a buffer", rank)
              .header(MAGIC, VERSION);
      all.add(
          new SharedBuffer(in.int64("size", 0, Long.MAX_VALUE), in.string("reason", MOST_TEXT)));
      in.end();
    }
    return all;
  }

  /** Returns the first reason of a rank that can't share its buffer, the same on every rank. */
  static Optional<String> stagedReason(List<SharedBuffer> all) {
    for (int rank = 0; rank < all.size(); rank++) {
      if (!all.get(rank).unshareable.isEmpty()) {
        return Optional.of("rank " + rank + ": " + all.get(rank).unshareable);
      }
    }
    return Optional.empty();
  }
}
