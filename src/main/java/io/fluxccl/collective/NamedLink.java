// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One end of the link between rank 0 and another rank, which carries the records by which they
 * agree on the order of named calls. Each end has a part of memory that the other writes. Records
 * for which the peer's ring has no free slot wait here. Confined to one thread.
 *
 * <pre>
 *   part  [0, 8)     number of records that the peer has written
 *         [8, 16)    number of records that the peer has read
 *         [64, ...)  ring of {@value #SLOTS} slots that the peer writes
 *                    ring of {@value #SLOTS} slots from which this end writes to the peer
 *   slot  uint16 length, then the record
 * </pre>
 */
final class NamedLink implements AutoCloseable {
  static final int SLOTS = 64;
  static final int MOST_BYTES = 510;
  private static final int SLOT_BYTES = 512;
  private static final int READ_OFFSET = 8;
  private static final int HEADER_BYTES = 64;

  /** Records after which an end tells the other how many it has read. */
  private static final int READS_TO_TELL = SLOTS / 4;

  private static final int RING_BYTES = SLOTS * SLOT_BYTES;

  /** The bytes of a part. */
  static final int PART_BYTES = HEADER_BYTES + 2 * RING_BYTES;

  private final Connection connection;
  private final RegisteredMemory own;
  private final RegisteredMemory remote;
  private final long ownOffset;
  private final long remoteOffset;
  private final ByteBuffer bytes;
  private final long counterAddress;
  private final AtomicLong written = new AtomicLong();
  private final AtomicLong told = new AtomicLong();
  private final Queue<byte[]> outgoing = new ArrayDeque<>();
  private long read;
  private long calls;

  /**
   * @param part the number of this end's part in its memory
   * @param remotePart the number of the peer's part in its memory
   */
  NamedLink(
      Connection connection,
      DeviceBuffer buffer,
      RegisteredMemory own,
      int part,
      RegisteredMemory remote,
      int remotePart) {
    this.connection = connection;
    this.own = own;
    this.remote = remote;
    this.ownOffset = (long) part * PART_BYTES;
    this.remoteOffset = (long) remotePart * PART_BYTES;
    this.bytes = buffer.slice(ownOffset, PART_BYTES).asByteBuffer().orElseThrow();
    this.counterAddress = buffer.address() + ownOffset;
  }

  int peer() {
    return connection.remoteRank();
  }

  /** Sends a record of at most {@link #MOST_BYTES}, now or when the peer has a free slot. */
  void send(byte[] message) {
    outgoing.add(message);
    sendWaiting();
  }

  boolean hasWaiting() {
    return !outgoing.isEmpty();
  }

  /** Sends waiting records into free slots, and how many were read. Returns the records sent. */
  int sendWaiting() {
    int sent = 0;
    if (read - told.get() >= READS_TO_TELL) {
      connection.updateAndSync(remote, remoteOffset + READ_OFFSET, told, read);
    }
    // Pairs with the release by which the peer's update becomes visible.
    while (!outgoing.isEmpty()
        && written.get() - HostMemory.getLongAcquire(counterAddress + READ_OFFSET) < SLOTS) {
      write(outgoing.remove());
      sent++;
    }
    return sent;
  }

  private void write(byte[] message) {
    int slot = HEADER_BYTES + (int) (written.get() % SLOTS) * SLOT_BYTES;
    bytes.putShort(slot + RING_BYTES, (short) message.length);
    bytes.put(slot + RING_BYTES + Short.BYTES, message);
    connection.write(
        remote,
        remoteOffset + slot,
        own,
        ownOffset + RING_BYTES + slot,
        Short.BYTES + message.length);
    connection.updateAndSync(remote, remoteOffset, written, written.get() + 1);
  }

  /** Returns the next record, or null if there is none. */
  byte[] receive() {
    // Pairs with the release by which the peer's update becomes visible.
    if (HostMemory.getLongAcquire(counterAddress) <= read) {
      return null;
    }
    int slot = HEADER_BYTES + (int) (read++ % SLOTS) * SLOT_BYTES;
    int length = Short.toUnsignedInt(bytes.getShort(slot));
    byte[] message = new byte[Math.min(length, MOST_BYTES)];
    bytes.get(slot + Short.BYTES, message);
    return message;
  }

  /** Returns the number of the next call that the peer announces; the peer counts alike. */
  long nextNumber() {
    return calls++;
  }

  /** Completes when the peer's memory has all that was written. */
  CompletableFuture<Void> flush(Duration timeout) {
    return connection.flush(timeout);
  }

  /** Closes the connection and the peer's memory; the own memory is the caller's. */
  @Override
  public void close() {
    Closing.all(remote, connection);
  }
}
