// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.wire.RawView;
import java.util.zip.CRC32C;

/** Computes CRC-32C of memory. Confined to one thread; allocates nothing. */
final class Checksum {
  private final CRC32C crc = new CRC32C();
  private final RawView view = new RawView();

  /** Returns the checksum of bytes at an address, at most {@link RawView#MAX_LENGTH} of them. */
  int of(long address, long length) {
    crc.reset();
    crc.update(view.point(address, length));
    return (int) crc.getValue();
  }
}
