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
 * wait here until {@link #flush()}, which sends as many in a slot as fit, and until the peer's ring
 * has a free slot. Confined to one thread. Unlike a {@code Pipe} it also works over connections
 * between hosts.
 *
 * <pre>
 *   part  [0, 8)     number of slots that the peer has written
 *         [8, 16)    number of slots that the peer has read
 *         [64, ...)  ring of slots that the peer writes
 *                    ring of slots from which this end writes to the peer
 *   slot  uint16 length of all records; for each, uint16 length, and the record
 * </pre>
 */
final class NamedLink implements AutoCloseable {
  private static final int SLOT_BYTES = 512;

  /** The most bytes of a record. */
  static final int MOST_BYTES = SLOT_BYTES - 2 * Short.BYTES;

  /** Slots of all rings together, in one direction: rank 0 has a ring for each rank. */
  private static final int ALL_SLOTS = 1024;

  private static final int MOST_SLOTS = 64;
  private static final int LEAST_SLOTS = 8;
  private static final int READ_OFFSET = 8;
  private static final int HEADER_BYTES = 64;

  private final Connection connection;
  private final RegisteredMemory own;
  private final RegisteredMemory remote;
  private final long ownOffset;
  private final long remoteOffset;
  private final int slots;
  private final int ringBytes;
  private final ByteBuffer bytes;
  private final long counterAddress;
  private final AtomicLong written = new AtomicLong();
  private final AtomicLong told = new AtomicLong();
  private final Queue<byte[]> outgoing = new ArrayDeque<>();
  private final Queue<byte[]> incoming = new ArrayDeque<>();
  private long read;
  private int calls;

  /**
   * @param buffer this end's part of its memory
   * @param own all of it
   * @param ownOffset of the part in it
   * @param remoteOffset of the peer's part in its memory
   */
  NamedLink(
      Connection connection,
      DeviceBuffer buffer,
      RegisteredMemory own,
      long ownOffset,
      RegisteredMemory remote,
      long remoteOffset) {
    this.connection = connection;
    this.own = own;
    this.remote = remote;
    this.ownOffset = ownOffset;
    this.remoteOffset = remoteOffset;
    this.ringBytes = (int) (buffer.size() - HEADER_BYTES) / 2;
    this.slots = ringBytes / SLOT_BYTES;
    this.bytes = buffer.asByteBuffer().orElseThrow();
    this.counterAddress = buffer.address();
  }

  /** Returns the bytes of a part, among a number of ranks: fewer if there are many. */
  static int partBytes(int nRanks) {
    return HEADER_BYTES + 2 * slots(nRanks) * SLOT_BYTES;
  }

  /** Returns the slots of a ring, among a number of ranks. */
  static int slots(int nRanks) {
    return Math.max(LEAST_SLOTS, Math.min(MOST_SLOTS, ALL_SLOTS / nRanks));
  }

  int peer() {
    return connection.remoteRank();
  }

  /** Adds a record of at most {@link #MOST_BYTES}, which the next {@link #flush()} sends. */
  void add(byte[] record) {
    outgoing.add(record);
  }

  boolean hasWaiting() {
    return !outgoing.isEmpty();
  }

  /** Drops the records that wait. */
  void clear() {
    outgoing.clear();
  }

  /** Sends waiting records into free slots, and how many were read. Returns the slots sent. */
  int flush() {
    int sent = 0;
    // After each quarter of the ring, so that the peer seldom waits for a slot.
    if (read - told.get() >= slots / 4) {
      connection.updateAndSync(remote, remoteOffset + READ_OFFSET, told, read);
    }
    // Pairs with the release by which the peer's update becomes visible.
    while (!outgoing.isEmpty()
        && written.get() - HostMemory.getLongAcquire(counterAddress + READ_OFFSET) < slots) {
      writeSlot();
      sent++;
    }
    return sent;
  }

  private void writeSlot() {
    int slot = HEADER_BYTES + (int) (written.get() % slots) * SLOT_BYTES;
    int start = slot + ringBytes;
    int end = start + Short.BYTES;
    for (byte[] next = outgoing.peek();
        next != null && end + Short.BYTES + next.length <= start + SLOT_BYTES;
        next = outgoing.peek()) {
      bytes.putShort(end, (short) next.length);
      bytes.put(end + Short.BYTES, next);
      end += Short.BYTES + next.length;
      outgoing.remove();
    }
    bytes.putShort(start, (short) (end - start - Short.BYTES));
    connection.write(remote, remoteOffset + slot, own, ownOffset + start, end - start);
    connection.updateAndSync(remote, remoteOffset, written, written.get() + 1);
  }

  /** Returns the next record, or null if there is none. */
  byte[] receive() {
    // Pairs with the release by which the peer's update becomes visible.
    if (incoming.isEmpty() && HostMemory.getLongAcquire(counterAddress) > read) {
      readSlot();
    }
    return incoming.poll();
  }

  private void readSlot() {
    int slot = HEADER_BYTES + (int) (read++ % slots) * SLOT_BYTES;
    int length = Short.toUnsignedInt(bytes.getShort(slot));
    int end = slot + Math.min(SLOT_BYTES, Short.BYTES + length);
    for (int at = slot + Short.BYTES; at + Short.BYTES <= end; ) {
      byte[] record = new byte[Math.min(Short.toUnsignedInt(bytes.getShort(at)), end - at - 2)];
      bytes.get(at + Short.BYTES, record);
      incoming.add(record);
      at += Short.BYTES + record.length;
    }
  }

  /** Returns the number of the next call that the peer announces; the peer counts alike. */
  long nextNumber() {
    return Integer.toUnsignedLong(calls++);
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
