// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.NetWaiter;
import java.util.Arrays;

/** The plugin connections that form one connection of this transport. Confined to the agent. */
final class Links {
  /** Index 0 is for control messages; the others are the rails. */
  final NetSendComm[] senders;

  final NetRecvComm[] receivers;

  Links(int rails) {
    senders = new NetSendComm[rails + 1];
    receivers = new NetRecvComm[rails + 1];
  }

  /**
   * Returns the number of rails, the connections that carry only bytes; 0 if long writes are bodies
   * of control messages.
   */
  int rails() {
    return senders.length - 1;
  }

  boolean areComplete() {
    return Arrays.stream(senders).allMatch(comm -> comm != null)
        && Arrays.stream(receivers).allMatch(comm -> comm != null);
  }

  /**
   * Registers the connections with a waiter, which wakes up when one is ready. Returns false if a
   * connection must be polled.
   */
  boolean watchedBy(NetWaiter waiter) {
    boolean watched = true;
    for (int i = 0; i < senders.length; i++) {
      watched &= senders[i].watchedBy(waiter) & receivers[i].watchedBy(waiter);
    }
    return watched;
  }

  void close() {
    Closing.all(() -> Closing.all(senders), () -> Closing.all(receivers));
  }
}
