// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.PostQueue;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;

/**
 * The registered words of one end of a connection: a state word and, for each request, the value of
 * a signal in flight. The other end writes to the state word when it is connected, and later when
 * it leaves. Used by one thread at a time, except for methods that are marked otherwise.
 */
final class ControlWords implements AutoCloseable {
  /** The state of an end that is connected. */
  static final long HELLO = 1;

  /** The state of an end that leaves. */
  static final long GOODBYE = 2;

  private static final int CACHE_LINE = 64;

  /** Keeps the memory. */
  private final ByteBuffer words;

  private final long address;
  private final Verbs.Memory registration;

  // The peer's state word.
  private long peerAddress;
  private int peerKey;

  ControlWords(Verbs.Port port, int requests) throws IOException {
    int length = (1 + requests) * Long.BYTES;
    this.words = BufferUtil.allocateDirectAligned(length, CACHE_LINE);
    this.address = BufferUtil.address(words);
    this.registration = port.register(address, length);
  }

  /** Returns the address of the state word. Any thread. */
  long greeting() {
    return address;
  }

  /** Returns the key by which the peer names the state word. Any thread. */
  int remoteKey() {
    return registration.remoteKey();
  }

  /** Returns the key of all words, by which requests of this rank name them. */
  int localKey() {
    return registration.localKey();
  }

  /** Returns the address of the value of the next request, if that is a signal. */
  long signal(InFlight inFlight) {
    // It is free: the request that used it is complete.
    return address + (1L + inFlight.nextSlot()) * Long.BYTES;
  }

  /** Sets the address of the peer's state word. */
  void setPeer(IbEndpoint.End peer) {
    peerAddress = peer.word();
    peerKey = peer.wordKey();
  }

  /** Posts a write of a state to the peer, and requests its completion. */
  void postState(Verbs.Link link, InFlight inFlight, long value) throws IOException {
    long word = signal(inFlight);
    HostMemory.putLong(word, value);
    long id = inFlight.nextId();
    inFlight.add(PostQueue.UPDATE, 0, Long.BYTES);
    int inline = link.inlineLimit() >= Long.BYTES ? Verbs.Link.INLINE : 0;
    link.postWrite(
        id, Verbs.Link.SIGNALED | inline, word, Long.BYTES, localKey(), peerAddress, peerKey);
  }

  /** Returns whether the peer has announced that it leaves. */
  boolean hasPeerLeft() {
    // Pairs with the peer's write, which this device orders after the peer's earlier writes.
    return HostMemory.getLongAcquire(address) == GOODBYE;
  }

  /** Ends the registration. */
  @Override
  public void close() {
    registration.close();
  }
}
