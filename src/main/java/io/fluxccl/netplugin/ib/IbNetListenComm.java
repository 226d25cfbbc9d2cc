package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.transport.ib.LinkEvents;
import java.security.SecureRandom;

/**
 * Waits for the one request that knows its token. Used by one thread at a time, but for what says
 * otherwise.
 */
final class IbNetListenComm implements NetListenComm {
  /** Random for all listeners of the process; seeding one each would take long. */
  private static final SecureRandom RANDOM = new SecureRandom();

  private final IbNetPlugin plugin;
  private final int device;
  private final IbNetPort port;
  private final byte[] token = new byte[SetupDescriptor.TOKEN_LENGTH];
  private final Mailbox mailbox;
  private final LinkState link;
  private final byte[] handle;

  /** Who has come, or null; written within the port's turn. */
  private volatile SetupDescriptor.Greeting greeting;

  private long askedNanos;
  private boolean asked;
  private volatile boolean accepted;
  private volatile boolean closed;

  IbNetListenComm(IbNetPlugin plugin, int device) {
    this.plugin = plugin;
    this.device = device;
    port = plugin.port(device);
    link = new LinkState(plugin.options().rdma());
    RANDOM.nextBytes(token);
    mailbox = new Mailbox(port);
    handle = SetupDescriptor.handle(port.device().address(), port.number(), token, mailbox.place());
    port.expect(this);
  }

  /** Any thread. */
  byte[] token() {
    return token;
  }

  /** Somebody knows the token. Called by whoever looks at the port. */
  LinkEvents admit(SetupDescriptor.Greeting who) {
    greeting = who;
    return link;
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  @Override
  public NetRecvComm accept() {
    if (closed || accepted) {
      throw new InvalidUsage(
          "accept: the listener " + (closed ? "is closed" : "has accepted its connection"));
    }
    port.look();
    SetupDescriptor.Greeting who = greeting;
    if (who != null && (link.failure() != null || link.isDisconnected())) {
      String why = link.failure() == null ? "it disconnected" : link.failure();
      throw new RemoteFailure(
          FluxCclException.NO_RANK, "accept on " + text() + ": " + who.text() + ": " + why);
    }
    if (!link.isEstablished()) {
      checkTime();
      return null;
    }
    IbNetRecvComm comm =
        plugin.remember(
            new IbNetRecvComm(plugin, device, who.text(), link, mailbox, who.mailbox()));
    // From here on they are the comm's to close, which the plugin knows by now.
    accepted = true;
    return comm;
  }

  private void checkTime() {
    long now = System.nanoTime();
    if (!asked) {
      asked = true;
      askedNanos = now;
    }
    long limit = plugin.options().connectNanos();
    if (limit > 0 && now - askedNanos > limit) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "accept on %s: the sender did not connect in %.1f s; does it live, and does the"
                  + " network carry RDMA (rping)?",
              text(), limit / 1e9));
    }
  }

  private String text() {
    return port.device().name()
        + ", "
        + port.device().address().getHostAddress()
        + ":"
        + port.number();
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    port.forget(this);
    plugin.forget(this);
    if (!accepted) {
      Closing.all(() -> port.close(link), mailbox::close);
    }
  }
}
