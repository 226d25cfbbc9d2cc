// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.net.OwnedMemory;
import io.fluxccl.transport.net.ProtocolViolation;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import org.agrona.BufferUtil;

/**
 * The two connections of a plug-in that carry messages on one device, one for each direction, in
 * their order. A flush follows each receive into a GPU's memory. Confined to the agent; allocates
 * nothing in steady state.
 */
final class PluginRail {
  private final int capacity;
  private final NetSendComm sender;
  private final NetRecvComm receiver;
  private final CommMemory sources;
  private final CommMemory targets;

  /** The token that is sent, and the one that is received. */
  private ByteBuffer greeting;

  private boolean greeted;

  // Messages to send: the numbers of those put, posted and done.
  private final OwnedMemory[] memories;
  private final long[] addresses;
  private final int[] lengths;
  private final NetRequest[] sends;
  private long put;
  private long posted;
  private long sent;

  // Messages to receive: the numbers of those begun, and of those that have arrived.
  private final OwnedMemory[] places;
  private final NetRequest[] receives;
  private final long[] sizes;
  private final boolean[] flushing;
  private long begun;
  private long arrived;

  // The range of one receive and its flush.
  private final long[][] starts;
  private final long[][] expected;
  private final NetMemory[][] registrations;

  /**
   * Creates a rail over two open connections.
   *
   * @param capacity the most messages in each direction
   */
  PluginRail(NetPlugin plugin, NetSendComm sender, NetRecvComm receiver, int capacity) {
    this.sender = sender;
    this.receiver = receiver;
    this.capacity = capacity;
    this.sources = new CommMemory(plugin, sender);
    this.targets = new CommMemory(plugin, receiver);
    this.memories = new OwnedMemory[capacity];
    this.addresses = new long[capacity];
    this.lengths = new int[capacity];
    this.sends = new NetRequest[capacity];
    this.places = new OwnedMemory[capacity];
    this.receives = new NetRequest[capacity];
    this.sizes = new long[capacity];
    this.flushing = new boolean[capacity];
    this.starts = new long[capacity][1];
    this.expected = new long[capacity][1];
    this.registrations = new NetMemory[capacity][1];
  }

  void register(long address, long size, boolean isSource) {
    (isSource ? sources : targets).register(address, size);
  }

  void forget(OwnedMemory memory) {
    // Deregisters on both sides even if one fails.
    Closing.all(() -> sources.forget(memory), () -> targets.forget(memory));
  }

  /**
   * Exchanges the tokens, before the first message. Returns whether the peer's token has arrived,
   * and the own one is sent.
   *
   * @throws ProtocolViolation if another token has arrived
   */
  boolean isGreeted(byte[] own, byte[] peers) {
    if (greeting == null) {
      greeting = BufferUtil.allocateDirectAligned(own.length + peers.length, 64);
      greeting.put(0, peers);
      long address = BufferUtil.address(greeting);
      register(address, peers.length, true);
      register(address + peers.length, own.length, false);
      send(null, address, peers.length);
    }
    long room = BufferUtil.address(greeting) + peers.length;
    boolean isAwaited = begun > 0 || !greeted && receive(null, room, own.length) > 0;
    if (!greeted && sent() > 0 && isAwaited && arrived() > 0) {
      checkToken(own, peers);
      // The messages are counted from here on.
      put = 0;
      posted = 0;
      sent = 0;
      begun = 0;
      arrived = 0;
      greeted = true;
      // Deregisters on both sides even if one fails.
      Closing.all(sources::forgetLast, targets::forgetLast);
    }
    return greeted;
  }

  private void checkToken(byte[] own, byte[] peers) {
    byte[] said = new byte[own.length];
    greeting.get(peers.length, said);
    if (size(1) != own.length || !MessageDigest.isEqual(said, own)) {
      throw new ProtocolViolation("another process connected to this end, without its token");
    }
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  /** Puts a message to send, for which there must be room; returns its number, from 1. */
  long send(OwnedMemory memory, long address, int length) {
    int slot = slot(put);
    memories[slot] = memory;
    addresses[slot] = address;
    lengths[slot] = length;
    return ++put;
  }

  /** Posts messages, and returns the number of those that the network has taken. */
  long sent() {
    while (posted < put) {
      int slot = slot(posted);
      NetMemory registration = sources.at(memories[slot], addresses[slot]);
      NetRequest request = sender.isend(addresses[slot], lengths[slot], 0, registration);
      if (request == null) {
        break;
      }
      sends[slot] = request;
      posted++;
    }
    while (sent < posted && sends[slot(sent)].test()) {
      sent++;
    }
    return sent;
  }

  /** Begins to receive a message; returns its number, from 1, or 0 if there is no room now. */
  long receive(OwnedMemory memory, long address, int room) {
    if (begun - arrived == capacity) {
      return 0;
    }
    int slot = slot(begun);
    NetMemory registration = targets.at(memory, address);
    NetRequest request = receiver.irecv(address, room, 0, registration);
    if (request == null) {
      return 0;
    }
    receives[slot] = request;
    places[slot] = memory;
    starts[slot][0] = address;
    expected[slot][0] = room;
    registrations[slot][0] = registration;
    flushing[slot] = false;
    return ++begun;
  }

  /** Returns the number of messages that have arrived and are visible in their memory. */
  long arrived() {
    while (arrived < begun && isVisible(slot(arrived))) {
      arrived++;
    }
    return arrived;
  }

  private boolean isVisible(int slot) {
    if (!receives[slot].test()) {
      return false;
    }
    if (flushing[slot]) {
      return true;
    }
    sizes[slot] = receives[slot].size(0);
    if (places[slot] == null || places[slot].isOnHost()) {
      return true;
    }
    receives[slot] = receiver.iflush(1, starts[slot], expected[slot], registrations[slot]);
    flushing[slot] = true;
    return receives[slot] == null;
  }

  /** Returns the length of a message that has arrived. */
  long size(long number) {
    return sizes[slot(number - 1)];
  }

  /**
   * Refuses a body that has another length than its head says.
   *
   * @throws ProtocolViolation if it has
   */
  void checkSize(long number) {
    int slot = slot(number - 1);
    if (sizes[slot] != expected[slot][0]) {
      throw new ProtocolViolation(
          Text.of(
              "write announced with %s bytes, but %s bytes arrived (or the network plugin does"
                  + " not report sizes)",
              expected[slot][0], sizes[slot]));
    }
  }
}
