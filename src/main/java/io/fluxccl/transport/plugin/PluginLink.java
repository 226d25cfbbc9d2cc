// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.plugin;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.net.ControlMessage;
import io.fluxccl.transport.net.Link;
import io.fluxccl.transport.net.OwnedMemory;
import io.fluxccl.transport.net.ProtocolViolation;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.agrona.BufferUtil;

/**
 * A link of NET: one {@link PluginRail} for the heads, and one for each device, which carry the
 * bodies in turn. A head says on which rail its body arrives. The first message on each rail is the
 * token of the receiving end, because the plug-in itself admits any process that knows a handle.
 * The plug-in's connections can't be replaced.
 */
final class PluginLink implements Link {
  private static final int HEADS = 0;
  private static final int NO_RAIL = -1;
  private static final int MAX = ControlMessage.MAX_BYTES;

  private final NetPlugin plugin;
  private final int[] devices;
  private final byte[] token;
  private final int peerRank;
  private final NetListenComm[] listeners;
  private final int capacity;

  private PluginAddress peer;

  // One for the heads, and one for each rail.
  private NetHandle[] handles;
  private NetSendComm[] senders;
  private NetRecvComm[] receivers;
  private PluginRail[] rails;

  // The rail of each message's body and its number there; the numbers of messages sent and taken.
  private final int[] bodyRails;
  private final long[] bodyNumbers;
  private long sent;
  private long taken;

  private int nextRail;

  /** The ring that heads are received into. */
  private ByteBuffer ring;

  private long posted;
  private long received;

  // By slot: the rail of a body that is received, and its number there.
  private final int[] slotRails;
  private final long[] slotNumbers;

  /** Starts to listen. Any thread. */
  PluginLink(NetPlugin plugin, int[] devices, byte[] token, int peerRank) {
    this.plugin = plugin;
    this.devices = devices;
    this.token = token;
    this.peerRank = peerRank;
    this.capacity = plugin.maxRequests();
    this.bodyRails = new int[capacity];
    this.bodyNumbers = new long[capacity];
    this.slotRails = new int[capacity];
    this.slotNumbers = new long[capacity];
    this.listeners = new NetListenComm[devices.length + 1];
    Closing.onFailure(
        this::closeListeners, () -> Arrays.setAll(listeners, i -> plugin.listen(deviceOf(i))));
  }

  private int deviceOf(int rail) {
    return devices[Math.max(0, rail - 1)];
  }

  private long maxBytes() {
    return Arrays.stream(devices)
        .mapToLong(device -> plugin.properties(device).maxBytes())
        .min()
        .getAsLong();
  }

  @Override
  public byte[] address() {
    byte[][] own = new byte[listeners.length][];
    Arrays.setAll(own, i -> Arrays.copyOf(listeners[i].handle(), NetPlugin.HANDLE_BYTES));
    return new PluginAddress(maxBytes(), token, own).encode();
  }

  @Override
  public void connect(byte[] address) {
    peer = PluginAddress.decode(address, peerRank);
    int count = Math.min(peer.handles().length, listeners.length);
    senders = new NetSendComm[count];
    receivers = new NetRecvComm[count];
    rails = new PluginRail[count];
    handles = new NetHandle[count];
    Arrays.setAll(handles, i -> new NetHandle(peer.handles()[i]));
  }

  @Override
  public boolean poll(long nowNs) {
    boolean all = true;
    for (int i = 0; i < rails.length; i++) {
      all &= isOpen(i) && rails[i].isGreeted(token, peer.token());
    }
    if (all) {
      closeListeners();
      ring = BufferUtil.allocateDirectAligned(capacity * MAX, 64);
      rails[HEADS].register(BufferUtil.address(ring), ring.capacity(), false);
    }
    return all;
  }

  private boolean isOpen(int rail) {
    if (senders[rail] == null) {
      senders[rail] = plugin.connect(deviceOf(rail), handles[rail]);
    }
    if (receivers[rail] == null) {
      receivers[rail] = listeners[rail].accept();
    }
    if (rails[rail] == null && senders[rail] != null && receivers[rail] != null) {
      rails[rail] = new PluginRail(plugin, senders[rail], receivers[rail], capacity);
    }
    return rails[rail] != null;
  }

  @Override
  public String missing() {
    if (senders == null) {
      return "it has not received its peer's address";
    }
    return Arrays.asList(senders).contains(null)
        ? "it has not answered"
        : "it has not connected to this rank";
  }

  @Override
  public int capacity() {
    return capacity;
  }

  @Override
  public long maxBody() {
    return Math.min(maxBytes(), peer.maxBytes());
  }

  @Override
  public boolean keepsOrder() {
    return false;
  }

  @Override
  public void register(long address, long size, boolean sends) {
    for (PluginRail rail : rails) {
      rail.register(address, size, sends);
    }
  }

  @Override
  public void forget(OwnedMemory memory) {
    Closing.all(
        Arrays.stream(rails).<AutoCloseable>map(rail -> () -> rail.forget(memory)).toList());
  }

  @Override
  public long send(
      long head, int headLength, OwnedMemory source, long body, int bodyLength, boolean more) {
    if (sent - taken == capacity) {
      return 0;
    }
    int slot = (int) (sent % capacity);
    bodyRails[slot] = NO_RAIL;
    if (bodyLength > 0) {
      int rail = nextRail;
      nextRail = (nextRail + 1) % (rails.length - 1);
      HostMemory.putShortOpaque(head + ControlMessage.RAIL, (short) rail);
      bodyRails[slot] = rail + 1;
      bodyNumbers[slot] = rails[rail + 1].send(source, body, bodyLength);
    }
    rails[HEADS].send(null, head, headLength);
    sent++;
    return sent;
  }

  @Override
  public long taken() {
    if (taken < sent) {
      long takenHeads = rails[HEADS].sent();
      for (int i = 1; i < rails.length; i++) {
        rails[i].sent();
      }
      while (taken < takenHeads && isBodyTaken((int) (taken % capacity))) {
        taken++;
      }
    }
    return taken;
  }

  private boolean isBodyTaken(int slot) {
    int rail = bodyRails[slot];
    return rail == NO_RAIL || rails[rail].sent() >= bodyNumbers[slot];
  }

  @Override
  public boolean receiveHead(long place, HeadReader reader) {
    while (posted - received < capacity && rails[HEADS].receive(null, slotOf(posted), MAX) > 0) {
      posted++;
    }
    if (rails[HEADS].arrived() == received) {
      return false;
    }
    long size = rails[HEADS].size(received + 1);
    if (size < ControlMessage.HEADER_BYTES) {
      throw new ProtocolViolation(
          "a message of " + size + " bytes arrived, or the network plugin does not report sizes");
    }
    HostMemory.copy(place, slotOf(received), size);
    received++;
    if (size - ControlMessage.HEADER_BYTES != reader.payload(place)) {
      throw new ProtocolViolation("a head of " + size + " bytes");
    }
    return true;
  }

  /** Returns the address in the ring for a head. */
  private long slotOf(long number) {
    return BufferUtil.address(ring) + number % capacity * MAX;
  }

  @Override
  public boolean receiveBody(int slot, long head, OwnedMemory target, long address, int length) {
    int rail = HostMemory.getShortOpaque(head + ControlMessage.RAIL) + 1;
    if (rail < 1 || rail >= rails.length) {
      throw new ProtocolViolation("a body on rail " + (rail - 1));
    }
    slotRails[slot] = rail;
    slotNumbers[slot] = rails[rail].receive(target, address, length);
    return slotNumbers[slot] > 0;
  }

  @Override
  public boolean isReceived(int slot) {
    for (int i = 1; i < rails.length; i++) {
      rails[i].arrived();
    }
    PluginRail rail = rails[slotRails[slot]];
    if (rail.arrived() < slotNumbers[slot]) {
      return false;
    }
    rail.checkSize(slotNumbers[slot]);
    return true;
  }

  /** Closes the listeners, the pending attempts and the connections. */
  @Override
  public void close() {
    // Closes every resource even if closing one fails.
    Closing.all(
        this::closeListeners,
        handles == null
            ? null
            : () ->
                Closing.all(Arrays.stream(handles).<AutoCloseable>map(h -> h::abandon).toList()),
        senders == null ? null : () -> Closing.all(senders),
        receivers == null ? null : () -> Closing.all(receivers));
  }

  private void closeListeners() {
    Closing.all(listeners);
  }
}
