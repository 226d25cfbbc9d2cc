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

  private static final int PART_LENGTH = 64;
  private static final int PEER_OFFSET = 48;
  private static final int IS_LARGE_OFFSET = PEER_OFFSET + Integer.BYTES;

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
    at(OWN_OFFSET).putLong(0).putLong(0).putLong(0);
    at(N_PARTS_OFFSET).putInt(0).putInt(0);
    if (through != null) {
      at(RINGS_OFFSET).putLong(through.offset()).putInt(through.slots());
    }
    return this;
  }

  /**
   * Fills in what a call exchanges with each peer through the rings.
   *
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
        add(
            peer,
            ownState + through.nothingOffset(rank),
            Integer.BYTES,
            ownState + through.nothingOffset(peer),
            Integer.BYTES);
      } else {
        add(
            peer,
            call.inputAddress() + call.sendOffset(peer),
            call.sendBytes(rank, peer),
            call.outputAddress() + call.receiveOffset(peer),
            call.receiveBytes(rank, peer));
      }
    }
    return own(bound);
  }

  /**
   * Fills in what a send-receive exchanges: a part for each direction, also if both are with one
   * rank. A large message may go into the receiver's output if that is registered.
   *
   * @param largeBytes from how many bytes on a message is large
   * @param registrations address of the table of registrations
   * @param known how many registrations the table holds
   */
  ExchangeParts ofSendReceive(
      BoundCall bound, ExchangeRing through, long largeBytes, long registrations, int known) {
    clear(through);
    at(REGISTRATIONS_OFFSET).putLong(registrations);
    CollectiveCall call = bound.call();
    int rank = bound.rank();
    int to = call.destination();
    int from = call.source();
    if (to != rank && to != CollectiveCall.NO_PEER && call.sendBytes(rank, to) > 0) {
      long bytes = call.sendBytes(rank, to);
      add(to, call.input().address(), bytes, 0, 0);
      markLarge(bytes >= largeBytes, 0);
    }
    if (from != rank && from != CollectiveCall.NO_PEER && call.receiveBytes(rank, from) > 0) {
      long bytes = call.receiveBytes(rank, from);
      add(from, 0, 0, call.output().address(), bytes);
      markLarge(bytes >= largeBytes, offer(bound.outputRegistration(), call.output(), known));
    }
    return own(bound);
  }

  private void markLarge(boolean isLarge, long offer) {
    at((count - 1) * PART_LENGTH + IS_LARGE_OFFSET).putInt(isLarge ? 1 : 0).putLong(offer);
  }

  private static long offer(Registration registration, DeviceBuffer output, int known) {
    if (registration == null || registration.id() >= known) {
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

  /** Fills in what is copied on this rank; nothing if it is in place. */
  ExchangeParts own(long from, long to, long size) {
    boolean inPlace = from == to;
    at(OWN_OFFSET).putLong(from).putLong(to).putLong(inPlace ? 0 : size);
    bytes = Math.max(bytes, inPlace ? 0 : size);
    return this;
  }

  /** Adds a part for a peer, unless it is empty. */
  ExchangeParts add(int peer, long from, long sendBytes, long to, long receiveBytes) {
    if (sendBytes == 0 && receiveBytes == 0) {
      return this;
    }
    int start = count++ * PART_LENGTH;
    at(start).putLong(from).putLong(to).putLong(sendBytes).putLong(receiveBytes);
    if (ring != null) {
      putInt(ring.units(sendBytes)).putInt(ring.units(receiveBytes));
      putInt(ring.rows(sendBytes)).putInt(ring.rows(receiveBytes));
      maxUnits = Math.max(maxUnits, ring.units(Math.max(sendBytes, receiveBytes)));
    }
    at(start + PEER_OFFSET).putInt(peer).putInt(0);
    bytes = Math.max(bytes, Math.max(sendBytes, receiveBytes));
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

  /** Returns how many slots the parts take, as if each were as long as the longest. */
  long positions() {
    return (long) maxUnits * count;
  }
}
