package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;

/**
 * The parts that a kernel moves, one for each peer: the twin of {@code exchange_parts.cuh}. Filled
 * in for each launch; used by the one thread that enqueues.
 */
final class ExchangeParts extends KernelStruct {
  private static final int MAX_PARTS = MappedPeers.MAX_RANKS - 1;

  private static final int FROM = 0;
  private static final int TO = 8;
  private static final int SEND_BYTES = 16;
  private static final int RECEIVE_BYTES = 24;
  private static final int SEND_UNITS = 32;
  private static final int RECEIVE_UNITS = 36;
  private static final int SEND_ROWS = 40;
  private static final int RECEIVE_ROWS = 44;
  private static final int PEER = 48;
  private static final int IS_LARGE = 52;
  private static final int OFFER = 56;
  private static final int PART_LENGTH = 64;

  private static final int OWN_FROM = MAX_PARTS * PART_LENGTH;
  private static final int OWN_TO = OWN_FROM + 8;
  private static final int OWN_BYTES = OWN_TO + 8;
  private static final int RINGS_OFFSET = OWN_BYTES + 8;
  private static final int SLOTS = RINGS_OFFSET + 8;
  private static final int N_PARTS = SLOTS + 4;
  private static final int MAX_UNITS = N_PARTS + 4;
  private static final int REGISTRATIONS = MAX_UNITS + 8;
  private static final int LENGTH = REGISTRATIONS + 8;

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
    putLong(OWN_BYTES, 0);
    putInt(N_PARTS, 0);
    putInt(MAX_UNITS, 0);
    if (through != null) {
      putLong(RINGS_OFFSET, through.offset());
      putInt(SLOTS, through.slots());
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
            address(call.input()) + call.sendOffset(peer),
            call.sendBytes(rank, peer),
            address(call.output()) + call.receiveOffset(peer),
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
    putLong(REGISTRATIONS, registrations);
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
    int at = (count - 1) * PART_LENGTH;
    putInt(at + IS_LARGE, isLarge ? 1 : 0);
    putLong(at + OFFER, offer);
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
        address(call.input()) + call.sendOffset(rank),
        address(call.output()) + call.receiveOffset(rank),
        Math.min(call.sendBytes(rank, rank), call.receiveBytes(rank, rank)));
  }

  /** Fills in what is copied on this rank; nothing if it is in place. */
  ExchangeParts own(long from, long to, long size) {
    boolean inPlace = from == to;
    putLong(OWN_FROM, from);
    putLong(OWN_TO, to);
    putLong(OWN_BYTES, inPlace ? 0 : size);
    bytes = Math.max(bytes, inPlace ? 0 : size);
    return this;
  }

  /** Adds a part for a peer, unless it is empty. */
  ExchangeParts add(int peer, long from, long sendBytes, long to, long receiveBytes) {
    if (sendBytes == 0 && receiveBytes == 0) {
      return this;
    }
    int at = count++ * PART_LENGTH;
    putLong(at + FROM, from);
    putLong(at + TO, to);
    putLong(at + SEND_BYTES, sendBytes);
    putLong(at + RECEIVE_BYTES, receiveBytes);
    putInt(at + PEER, peer);
    putInt(at + IS_LARGE, 0);
    if (ring != null) {
      putInt(at + SEND_UNITS, ring.units(sendBytes));
      putInt(at + RECEIVE_UNITS, ring.units(receiveBytes));
      putInt(at + SEND_ROWS, ring.rows(sendBytes));
      putInt(at + RECEIVE_ROWS, ring.rows(receiveBytes));
      maxUnits = Math.max(maxUnits, ring.units(Math.max(sendBytes, receiveBytes)));
    }
    bytes = Math.max(bytes, Math.max(sendBytes, receiveBytes));
    putInt(N_PARTS, count);
    putInt(MAX_UNITS, maxUnits);
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

  private static long address(DeviceBuffer buffer) {
    return buffer == null ? 0 : buffer.address();
  }
}
