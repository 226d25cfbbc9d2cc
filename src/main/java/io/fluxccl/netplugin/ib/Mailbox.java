package io.fluxccl.netplugin.ib;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.transport.ib.VerbsMemory;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;

/**
 * The registered memory by which two ends agree on messages, laid out the same on both. What an end
 * sends it writes here first, to the place in which it arrives over there.
 *
 * <pre>
 * 32 offers, receiver to sender:   address 8, key 4, room 4, number + 1 as 8, 8 free
 * 32 reports, sender to receiver:  size 31 bits, whether refused 1 bit, number + 1 as 32 bits
 * </pre>
 *
 * Message n has offer and report n modulo 32. An offer's number goes in a write of its own behind
 * the rest, which reliable queue pairs keep in order; a report is one word. A place is free again
 * before it is used again: there are never more than 32 messages from the first offer without a
 * report.
 */
final class Mailbox {
  /** Places for offers, and for reports; a power of two. */
  static final int PLACES = NetPlugin.MAX_REQUESTS;

  /** What goes ahead of an offer's number. */
  static final int OFFER_BODY = 16;

  private static final int NUMBER = 16;
  private static final int OFFER_LENGTH = 32;
  private static final int REPORTS = PLACES * OFFER_LENGTH;
  private static final int LENGTH = REPORTS + PLACES * Long.BYTES;
  private static final int ALIGNMENT = 64;
  private static final long SIZE_MASK = 0x7fff_ffffL;
  private static final long REFUSED = 0x8000_0000L;

  private final IbNetPort port;
  private final ByteBuffer memory = BufferUtil.allocateDirectAligned(LENGTH, ALIGNMENT);
  private final long base = BufferUtil.address(memory);
  private final VerbsMemory registered;

  Mailbox(IbNetPort port) {
    this.port = port;
    registered = port.register(base, LENGTH);
  }

  SetupDescriptor.Place place() {
    return new SetupDescriptor.Place(base, registered.remoteKey());
  }

  int localKey() {
    return registered.localKey();
  }

  /** Where something that has an offset is in this one. */
  long at(int offset) {
    return base + offset;
  }

  static int offer(long message) {
    return ((int) message & PLACES - 1) * OFFER_LENGTH;
  }

  static int offerNumber(long message) {
    return offer(message) + NUMBER;
  }

  static int report(long message) {
    return REPORTS + ((int) message & PLACES - 1) * Long.BYTES;
  }

  void putOffer(long message, long address, int key, int room) {
    long at = at(offer(message));
    HostMemory.putLong(at, address);
    HostMemory.putInt(at + Long.BYTES, key);
    HostMemory.putInt(at + Long.BYTES + Integer.BYTES, room);
    HostMemory.putLong(at + NUMBER, message + 1);
  }

  /** Whether a message's offer is there; acquire, pairs with the device's write of its number. */
  boolean hasOffer(long message) {
    return HostMemory.getLongAcquire(at(offerNumber(message))) == message + 1;
  }

  long offeredAddress(long message) {
    return HostMemory.getLong(at(offer(message)));
  }

  int offeredKey(long message) {
    return HostMemory.getInt(at(offer(message)) + Long.BYTES);
  }

  int offeredRoom(long message) {
    return HostMemory.getInt(at(offer(message)) + Long.BYTES + Integer.BYTES);
  }

  void putReport(long message, long size, boolean refused) {
    HostMemory.putLong(
        at(report(message)), (message + 1) << Integer.SIZE | (refused ? REFUSED : 0) | size);
  }

  /** Whether a message's report is there; acquire, pairs with the device's write of it. */
  boolean hasReport(long message) {
    return (int) (HostMemory.getLongAcquire(at(report(message))) >>> Integer.SIZE)
        == (int) (message + 1);
  }

  /** Of a message whose report is there. */
  long reportedSize(long message) {
    return HostMemory.getLong(at(report(message))) & SIZE_MASK;
  }

  /** Whether it was too long to be sent; of a message whose report is there. */
  boolean isRefused(long message) {
    return (HostMemory.getLong(at(report(message))) & REFUSED) != 0;
  }

  /** After the queue pairs that write here are gone. Idempotent. */
  void close() {
    port.close(registered);
  }
}
