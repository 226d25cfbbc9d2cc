// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SpinWait;

/**
 * Streams of bytes to all peers and from them at once, through pipes. The bytes are read from
 * ranges of memory and written to others. Both ends of a stream know its number of bytes. Used by
 * one kernel thread.
 */
final class PeerStreams {
  /** Names the ranges of memory of a stream, in their order. */
  interface Ranges {
    /**
     * Returns the next range, which may be empty.
     *
     * @param peer the rank at the other end
     * @param index 0 for the first range, then one more for each
     * @param range receives address and length
     * @return false if there are no more
     */
    boolean next(int peer, int index, Range range);
  }

  /** A range of memory. */
  static final class Range {
    private long address;
    private long length;
    private int index;
    private boolean isOver;

    void set(long newAddress, long newLength) {
      address = newAddress;
      length = newLength;
    }

    private void begin() {
      length = 0;
      index = 0;
      isOver = false;
    }

    /** Moves to the next range if this one is done; returns whether there are bytes. */
    private boolean hasBytes(Ranges ranges, int peer) {
      while (length == 0 && !isOver) {
        isOver = !ranges.next(peer, index++, this);
      }
      return !isOver;
    }

    private long take(long most) {
      long taken = Math.min(most, length);
      address += taken;
      length -= taken;
      return taken;
    }
  }

  private final int rank;
  private final MappedPipe[] pipes;
  private final Range[] out;
  private final Range[] in;

  PeerStreams(int rank, MappedPipe[] pipes) {
    this.rank = rank;
    this.pipes = pipes;
    this.out = new Range[pipes.length];
    this.in = new Range[pipes.length];
    for (int peer = 0; peer < pipes.length; peer++) {
      out[peer] = new Range();
      in[peer] = new Range();
    }
  }

  /** Begins a call with a signature. */
  void begin(int signature) {
    for (MappedPipe pipe : pipes) {
      if (pipe != null) {
        pipe.begin(signature, signature);
      }
    }
  }

  /**
   * Sends to all peers and receives from all of them.
   *
   * @return false if the communicator was aborted
   */
  boolean exchange(Ranges sent, Ranges received, long abortAddress) {
    for (int peer = 0; peer < pipes.length; peer++) {
      out[peer].begin();
      in[peer].begin();
    }
    int step = 0;
    while (true) {
      boolean moved = false;
      int open = -1;
      for (int ahead = 1; ahead < pipes.length; ahead++) {
        int peer = (rank + ahead) % pipes.length;
        moved |= send(peer, sent);
        moved |= receive(peer, received);
        open = out[peer].hasBytes(sent, peer) || in[peer].hasBytes(received, peer) ? peer : open;
      }
      if (open < 0) {
        return true;
      }
      step = moved ? 0 : SpinWait.step(step, abortAddress, open);
      if (step < 0) {
        return false;
      }
    }
  }

  /** Fills one slot, if there is room; returns whether it has. */
  private boolean send(int peer, Ranges ranges) {
    MappedPipe pipe = pipes[peer];
    Range range = out[peer];
    if (!range.hasBytes(ranges, peer) || !pipe.hasRoom()) {
      return false;
    }
    long slot = pipe.slotToSend() + SlotRing.PAYLOAD_OFFSET;
    long filled = 0;
    while (filled < pipe.payloadBytes() && range.hasBytes(ranges, peer)) {
      long from = range.address;
      long bytes = range.take(pipe.payloadBytes() - filled);
      HostMemory.copy(slot + filled, from, bytes);
      filled += bytes;
    }
    pipe.publish(filled);
    return true;
  }

  /** Empties one slot, if there is a message; returns whether it has. */
  private boolean receive(int peer, Ranges ranges) {
    MappedPipe pipe = pipes[peer];
    Range range = in[peer];
    if (!range.hasBytes(ranges, peer) || !pipe.hasMessage()) {
      return false;
    }
    long slot = pipe.slotToTake() + SlotRing.PAYLOAD_OFFSET;
    // Limited to a slot, because the sender's length is not trusted.
    long bytes = Math.max(0, Math.min(pipe.payloadBytes(), pipe.wordToTake()));
    for (long done = 0; done < bytes && range.hasBytes(ranges, peer); ) {
      long to = range.address;
      long taken = range.take(bytes - done);
      HostMemory.copy(to, slot + done, taken);
      done += taken;
    }
    pipe.release();
    return true;
  }
}
