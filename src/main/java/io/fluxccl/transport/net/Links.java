package io.fluxccl.transport.net;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.NetWaiter;
import java.util.Arrays;

/** The plugin's connections that make one of this transport's. Confined to the agent. */
final class Links {
  /** For control messages first, then of each rail. */
  final NetSendComm[] senders;

  final NetRecvComm[] receivers;

  Links(int rails) {
    senders = new NetSendComm[rails + 1];
    receivers = new NetRecvComm[rails + 1];
  }

  /** How many connections carry only bytes; 0 if long writes are bodies of control messages. */
  int rails() {
    return senders.length - 1;
  }

  boolean areComplete() {
    return Arrays.stream(senders).allMatch(comm -> comm != null)
        && Arrays.stream(receivers).allMatch(comm -> comm != null);
  }

  /** Has the waiter end its sleep when a connection can go on; false where one must be polled. */
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
