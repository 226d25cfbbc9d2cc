// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;

/**
 * The parts that a kernel moves, one for each peer: the twin of {@code exchange_parts.cuh}. Filled
 * in for each launch; used by the one thread that enqueues.
 */
final class ExchangeParts extends KernelStruct {
  private static final int MAX_PARTS = MappedPeers.MAX_RANKS - 1;

  /**
   * At most one in this many units of a large message takes the ring before the receiver's offer.
   */
  private static final int MIN_UNITS_OF_FIRST = 4;

  /** The least bytes for which a sender asks its receiver for the address: one more round trip. */
  private static final long LARGE_MESSAGE = 4 << 20;

  /** Registrations whose addresses kernels can look up; for later ones data goes through rings. */
  static final int KNOWN_REGISTRATIONS = 1024;

  private static final int NOT_LARGE = -1;

  private static final int PART_LENGTH = 64;
  private static final int PEER_OFFSET = 48;
  private static final int FIRST_UNITS_OFFSET = PEER_OFFSET + Integer.BYTES;

  private static final int OWN_OFFSET = MAX_PARTS * PART_LENGTH;
  private static final int RINGS_OFFSET = OWN_OFFSET + 3 * Long.BYTES;
  private static final int N_PARTS_OFFSET = RINGS_OFFSET + Long.BYTES + Integer.BYTES;
  private static final int REGISTRATIONS_OFFSET = N_PARTS_OFFSET + 3 * Integer.BYTES;
  private static final int LENGTH = REGISTRATIONS_OFFSET + Long.BYTES;

  /** {@code ExchangeParts::kOfferOffsetBits}. */
  private static final int OFFER_OFFSET_BITS = 40;

  private ExchangeRing ring;
  private int count;
  private int maxUnits;
  private long bytes;

  ExchangeParts() {
    super(LENGTH);
  }

  /** Removes all parts, for a launch that uses some rings, or null. */
  ExchangeParts clear(ExchangeRing through) {
    ring = through;
    count = 0;
    maxUnits = 0;
    bytes = 0;
    own(0, 0, 0);
    at(N_PARTS_OFFSET).putInt(0).putInt(0);
    if (through != null) {
      at(RINGS_OFFSET).putLong(through.offset()).putInt(through.slots());
    }
    return this;
  }

  /**
   * Fills in the parts that a call exchanges with each peer.
   *
   * @param through the rings; null if ranks store into the peers' registered outputs, so that the
   *     writer has the address and the peer receives nothing
   * @param ownState this rank's state, for calls without bytes
   */
  ExchangeParts of(BoundCall bound, ExchangeRing through, long ownState) {
    clear(through);
    CollectiveCall call = bound.call();
    int rank = bound.rank();
    int nRanks = bound.nRanks();
    for (int ahead = 1; ahead < nRanks; ahead++) {
      int peer = (rank + ahead) % nRanks;
      if (call.collective() == Collective.BARRIER) {
        long nothing = ownState + through.nothingOffset(rank);
        add(peer, nothing, Integer.BYTES, ownState + through.nothingOffset(peer), Integer.BYTES);
        continue;
      }
      long from = call.inputAddress() + call.sendOffset(peer);
      long size = call.sendBytes(rank, peer);
      if (through == null) {
        add(peer, from, size, bound.outputOn(peer) + call.receiveOffset(rank), 0);
      } else {
        long to = call.outputAddress() + call.receiveOffset(peer);
        add(peer, from, size, to, call.receiveBytes(rank, peer));
      }
    }
    return own(bound);
  }

  /**
   * Fills in the parts of a send-receive: one for each direction, also if both are with one rank. A
   * large message may go into the receiver's output if that is registered.
   *
   * @param firstUnits the most units of a large message that take the ring before the sender awaits
   *     the receiver's offer; the same on both ranks
   * @param registrations address of the table of registrations
   */
  void ofSendReceive(BoundCall bound, ExchangeRing through, int firstUnits, long registrations) {
    clear(through);
    at(REGISTRATIONS_OFFSET).putLong(registrations);
    CollectiveCall call = bound.call();
    int rank = bound.rank();
    int to = call.destination();
    int from = call.source();
    if (to != rank && to != CollectiveCall.NO_PEER && call.sendBytes(rank, to) > 0) {
      long size = call.sendBytes(rank, to);
      add(to, call.input().address(), size, 0, 0);
      markIfLarge(size, firstUnits, 0);
    }
    if (from != rank && from != CollectiveCall.NO_PEER && call.receiveBytes(rank, from) > 0) {
      long size = call.receiveBytes(rank, from);
      add(from, 0, 0, call.output().address(), size);
      markIfLarge(size, firstUnits, offer(bound.outputRegistration(), call.output()));
    }
    own(bound);
  }

  private void markIfLarge(long size, int firstUnits, long offer) {
    if (size >= LARGE_MESSAGE) {
      at((count - 1) * PART_LENGTH + FIRST_UNITS_OFFSET)
          .putInt(Math.min(firstUnits, ring.units(size) / MIN_UNITS_OF_FIRST))
          .putLong(offer);
    }
  }

  private static long offer(Registration registration, DeviceBuffer output) {
    if (registration == null || registration.id() >= KNOWN_REGISTRATIONS) {
      return 0;
    }
    long offset = output.address() - registration.buffer().address();
    return offset >>> OFFER_OFFSET_BITS != 0
        ? 0
        : (registration.id() + 1L) << OFFER_OFFSET_BITS | offset;
  }

  /** Fills in this rank's own part of a call, if it has one. */
  ExchangeParts own(BoundCall bound) {
    CollectiveCall call = bound.call();
    int rank = bound.rank();
    return own(
        call.inputAddress() + call.sendOffset(rank),
        call.outputAddress() + call.receiveOffset(rank),
        Math.min(call.sendBytes(rank, rank), call.receiveBytes(rank, rank)));
  }

  /** Fills in the copy on this rank; none if it is in place. */
  ExchangeParts own(long from, long to, long size) {
    long copied = from == to ? 0 : size;
    at(OWN_OFFSET).putLong(from).putLong(to).putLong(copied);
    bytes = Math.max(bytes, copied);
    return this;
  }

  /** Adds a part for a peer, unless it is empty. */
  ExchangeParts add(int peer, long from, long toSend, long to, long toReceive) {
    if (toSend == 0 && toReceive == 0) {
      return this;
    }
    int i = count++;
    at(i * PART_LENGTH).putLong(from).putLong(to).putLong(toSend).putLong(toReceive);
    if (ring != null) {
      putInt(ring.units(toSend)).putInt(ring.units(toReceive));
      putInt(ring.rows(toSend)).putInt(ring.rows(toReceive));
      // The longer message may have fewer units, of more rows.
      maxUnits = Math.max(maxUnits, Math.max(ring.units(toSend), ring.units(toReceive)));
    }
    at(i * PART_LENGTH + PEER_OFFSET).putInt(peer).putInt(NOT_LARGE).putLong(0);
    bytes = Math.max(bytes, Math.max(toSend, toReceive));
    at(N_PARTS_OFFSET).putInt(count).putInt(maxUnits);
    return this;
  }

  /** Returns the number of parts. */
  int count() {
    return count;
  }

  /** Returns the bytes of the largest part. */
  long bytes() {
    return bytes;
  }

  /** Returns how many slots the parts take, as if each took as many as the one with most. */
  long positions() {
    return (long) maxUnits * count;
  }

  /** Returns the largest number of slots that a part takes, in either direction. */
  int maxUnits() {
    return maxUnits;
  }

  /** Returns whether there are two parts, of one peer, of which the second alone receives. */
  boolean isOneExchange() {
    return count == 2 && peer(0) == peer(1) && receiveBytes(0) == 0 && sendBytes(1) == 0;
  }

  int peer(int part) {
    return getInt(part * PART_LENGTH + PEER_OFFSET);
  }

  long from(int part) {
    return getLong(part * PART_LENGTH);
  }

  long to(int part) {
    return getLong(part * PART_LENGTH + Long.BYTES);
  }

  long sendBytes(int part) {
    return getLong(part * PART_LENGTH + 2 * Long.BYTES);
  }

  long receiveBytes(int part) {
    return getLong(part * PART_LENGTH + 3 * Long.BYTES);
  }

  long ownFrom() {
    return getLong(OWN_OFFSET);
  }

  long ownTo() {
    return getLong(OWN_OFFSET + Long.BYTES);
  }

  long ownBytes() {
    return getLong(OWN_OFFSET + 2 * Long.BYTES);
  }
}
