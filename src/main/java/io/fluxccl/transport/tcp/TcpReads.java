// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.wire.RawView;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * Reads bytes from a socket: short ranges through a staging buffer, several in one system call, and
 * long ones directly to their place. Used by one thread; allocates nothing.
 */
public final class TcpReads {
  /** The length from which on a range is read to its place. */
  private static final int LONG = 1024;

  private static final int STAGING_LENGTH = 16 * 1024;

  private final ByteBuffer staging = ByteBuffer.allocateDirect(STAGING_LENGTH);
  private final long stagingAddress = BufferUtil.address(staging);
  private final RawView view = new RawView();
  private final ByteBuffer[] scattered = {view.buffer(), staging};

  /** The start of the bytes that are not used; they end at the buffer's position. */
  private int used;

  private boolean isShort;

  /** Forgets the bytes that have been read and not been moved. */
  public void clear() {
    staging.clear();
    used = 0;
  }

  /** Returns whether bytes have been read and not been moved. */
  public boolean hasBytes() {
    return staging.position() > used;
  }

  /** Returns whether the last system call read less than it could. */
  public boolean isDrained() {
    return isShort;
  }

  /**
   * Moves bytes to an address: those that were read before, or else those that one system call
   * reads.
   *
   * @param wanted the most bytes to move
   * @return their number; 0 if there are none now
   * @throws EndOfStream if the peer has closed the socket
   */
  public long move(TcpSocket socket, long address, long wanted) throws IOException {
    if (!hasBytes()) {
      clear();
      boolean inPlace = wanted >= LONG;
      ByteBuffer place = view.point(address, wanted);
      boolean whole = wanted <= RawView.MAX_LENGTH;
      long n =
          !inPlace ? socket.read(staging) : whole ? socket.read(scattered) : socket.read(place);
      if (n < 0) {
        throw new EndOfStream();
      }
      isShort = staging.hasRemaining();
      if (inPlace) {
        return Math.min(n, wanted);
      }
    }
    int n = (int) Math.min(wanted, staging.position() - used);
    UnsafeApi.copyMemory(stagingAddress + used, address, n);
    used += n;
    return n;
  }
}
