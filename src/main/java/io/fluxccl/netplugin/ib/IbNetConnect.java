package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import java.io.IOException;

/** How far a connect has come. Used by one thread at a time. */
final class IbNetConnect implements AutoCloseable {
  private final IbNetPlugin plugin;
  private final int device;
  private final IbNetPort port;
  private final SetupDescriptor.Handle handle;
  private final LinkState link;
  private final Mailbox mailbox;
  private final long startNanos = System.nanoTime();
  private volatile boolean done;

  IbNetConnect(IbNetPlugin plugin, int device, SetupDescriptor.Handle handle) {
    this.plugin = plugin;
    this.device = device;
    this.handle = handle;
    port = plugin.port(device);
    link = new LinkState(plugin.options().rdma());
    mailbox = new Mailbox(port);
    try {
      port.connect(
          handle.address(),
          SetupDescriptor.greeting(handle.token(), mailbox.place(), port.device().address()),
          link);
    } catch (IOException e) {
      mailbox.close();
      throw failure(e.getMessage());
    } catch (RuntimeException e) {
      mailbox.close();
      throw e;
    }
  }

  /**
   * Goes on as far as it can.
   *
   * @return the connection, or null: not yet
   */
  IbNetSendComm poll() {
    port.look();
    if (link.failure() != null || link.isDisconnected()) {
      throw failure(link.failure() == null ? "it disconnected" : link.failure());
    }
    if (!link.isEstablished()) {
      checkTime();
      return null;
    }
    IbNetSendComm comm =
        plugin.remember(
            new IbNetSendComm(plugin, device, handle.text(), link, mailbox, handle.mailbox()));
    // From here on they are the comm's to close, which the plugin knows by now.
    done = true;
    return comm;
  }

  private void checkTime() {
    long limit = plugin.options().connectNanos();
    if (limit > 0 && System.nanoTime() - startNanos > limit) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          String.format(
              "connect to %s on %s: no answer in %.1f s; does it accept, and does the network carry"
                  + " RDMA (rping)?",
              handle.text(), port.device().name(), limit / 1e9));
    }
  }

  private FluxCclException failure(String what) {
    return new RemoteFailure(
        FluxCclException.NO_RANK,
        "connect to "
            + handle.text()
            + " on "
            + port.device().name()
            + ": "
            + what
            + "; is its process alive, and is this device the one that reaches it"
            + " (FLUXCCL_IB_DEVICES)?");
  }

  /** Gives up, unless it is done. */
  @Override
  public void close() {
    plugin.forget(this);
    if (!done) {
      Closing.all(() -> port.close(link), mailbox::close);
    }
  }
}
