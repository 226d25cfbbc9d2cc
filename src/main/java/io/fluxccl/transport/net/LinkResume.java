// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;

/**
 * Replaces the link of a connection that carries bodies. Each end connects to the other again and
 * sends the number of messages that it has received in full. Attempts have rounds, so that both
 * ends agree on one pair of new sockets: an end stops receiving before it sends the greeting of a
 * round. An end has replaced the link when it has sent and received a greeting of one round. An end
 * that receives the greeting of a later round joins that round. Links of earlier rounds are closed.
 * Confined to the agent.
 */
final class LinkResume {
  private static final long RETRY_NS = TimeUnit.MILLISECONDS.toNanos(100);

  /**
   * The number of refusals in a row that prove that the peer's end is closed. Fewer do not: a
   * listener also drops a connect that an earlier one has overtaken.
   */
  private static final int MOST_REFUSALS = 3;

  /** The time after which a round without progress is given up for the next one. */
  private static final long ROUND_NS = TimeUnit.SECONDS.toNanos(3);

  private final NetPlugin plugin;
  private final int device;
  private final NetListenComm listener;
  private final EndpointWire peer;
  private final byte[] token;
  private final Links links;

  /** True while the link is being replaced. */
  private boolean replacing;

  /** The round that made the link, or the current one. */
  private long round;

  /** The number of messages that this end has received in full, while the link is replaced. */
  private long received;

  private long peersCount;
  private NetHandle handle;
  private NetSendComm sender;
  private Greeting sentHello;
  private NetRecvComm receiver;
  private Greeting receivedHello;
  private long steppedNs;
  private long connectNs;

  private int refusals;

  /** The failure of the last attempt, or null. */
  private FluxCclException hindrance;

  /**
   * Creates the means to replace a link.
   *
   * @param listener belongs to the caller
   * @param links holds the link
   */
  LinkResume(
      NetPlugin plugin,
      int device,
      NetListenComm listener,
      EndpointWire peer,
      byte[] token,
      Links links) {
    this.plugin = plugin;
    this.device = device;
    this.listener = listener;
    this.peer = peer;
    this.token = token;
    this.links = links;
  }

  /** Asks whether the peer's system acknowledges what the link in use has sent. */
  CompletableFuture<Boolean> isAnswered() {
    return links.senders[0].isAnswered();
  }

  /** Returns whether the peer has begun to replace the link. Called while the link is in use. */
  boolean isChallenged(long nowNs) {
    if (receiver == null && !listener.mayAccept()) {
      return false;
    }
    receiveHello(nowNs);
    return receivedHello != null && receivedHello.isDone();
  }

  /**
   * Closes the link and begins to replace it.
   *
   * @param count the number of messages that this end has received in full
   */
  void begin(long count, long nowNs) {
    CloseHelper.quietClose(links::close);
    received = count;
    replacing = true;
    hindrance = null;
    refusals = 0;
    // A peer that has begun has chosen the round.
    if (receivedHello == null || !receivedHello.isDone()) {
      round++;
    }
    steppedNs = nowNs;
    connectNs = nowNs;
  }

  /**
   * Advances the replacement.
   *
   * @return whether the links are replaced
   * @throws RemoteFailure if the peer's end is closed
   */
  boolean poll(long nowNs) {
    if (nowNs - steppedNs > ROUND_NS) {
      dropSender(nowNs);
      dropReceiver();
      round++;
      steppedNs = nowNs;
    }
    receiveHello(nowNs);
    say(nowNs);
    if (sentHello == null
        || !sentHello.isDone()
        || receivedHello == null
        || !receivedHello.isDone()) {
      return false;
    }
    Closing.all(sentHello, receivedHello);
    links.senders[0] = sender;
    links.receivers[0] = receiver;
    peersCount = receivedHello.received();
    sender = null;
    receiver = null;
    sentHello = null;
    receivedHello = null;
    replacing = false;
    return true;
  }

  /** Returns the number of messages that the peer had received in full before the replacement. */
  long peersCount() {
    return peersCount;
  }

  /** Returns the failure of the last attempt, or null. */
  FluxCclException hindrance() {
    return hindrance;
  }

  private void say(long nowNs) {
    try {
      if (sender == null && nowNs - connectNs >= 0) {
        handle = handle == null ? new NetHandle(peer.handles()[0]) : handle;
        sender = plugin.connect(device, handle);
        if (sender != null) {
          refusals = 0;
          sentHello = Greeting.to(sender, peer.token(), round, received);
          steppedNs = nowNs;
        }
      }
      if (sentHello != null) {
        sentHello.poll();
      }
    } catch (RemoteFailure e) {
      if (sender == null && ++refusals == MOST_REFUSALS) {
        throw e;
      }
      hindered(e, nowNs);
    } catch (TransportFailure | Timeout e) {
      refusals = 0;
      hindered(e, nowNs);
    }
  }

  private void hindered(FluxCclException e, long nowNs) {
    hindrance = e;
    dropSender(nowNs + RETRY_NS);
  }

  /** Accepts the peer's latest link, and receives its greeting. */
  private void receiveHello(long nowNs) {
    try {
      if (listener.mayAccept()) {
        NetRecvComm latest = listener.accept();
        if (latest != null) {
          dropReceiver();
          receiver = latest;
          receivedHello = Greeting.from(latest, token);
          steppedNs = nowNs;
        }
      }
      if (receivedHello == null || receivedHello.isDone() || !receivedHello.poll()) {
        return;
      }
    } catch (RemoteFailure | TransportFailure | Timeout | ProtocolViolation e) {
      // The peer has given up this attempt, or another process made it.
      dropReceiver();
      return;
    }
    if (receivedHello.round() < round || receivedHello.round() == round && !replacing) {
      dropReceiver();
    } else if (receivedHello.round() > round) {
      round = receivedHello.round();
      dropSender(nowNs);
    }
  }

  /** Closes the new sending end; another connect begins at the given time. */
  private void dropSender(long againNs) {
    connectNs = againNs;
    CloseHelper.quietClose(sender);
    if (handle != null) {
      handle.abandon();
    }
    sender = null;
    sentHello = null;
    handle = null;
  }

  private void dropReceiver() {
    CloseHelper.quietClose(receiver);
    receiver = null;
    receivedHello = null;
  }

  /** Closes what is not in use. */
  void close() {
    Closing.all(sender, receiver, handle == null ? null : handle::abandon);
  }
}
