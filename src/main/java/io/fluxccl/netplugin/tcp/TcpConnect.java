// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.tcp.TcpDial;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpSocket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.ThreadLocalRandom;

/** A connect in progress. Used by one thread at a time. */
final class TcpConnect implements AutoCloseable {
  private final TcpNetPlugin plugin;
  private final int device;
  private final TcpHandle handle;
  private final long startNanos = System.nanoTime();
  private final TcpDial[] dials;
  private final ByteBuffer[] hellos;
  private final ByteBuffer welcome = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
  private boolean done;

  TcpConnect(TcpNetPlugin plugin, int device, TcpHandle handle) {
    this.plugin = plugin;
    this.device = device;
    this.handle = handle;
    int streams = plugin.options().streams();
    long connection = ThreadLocalRandom.current().nextLong();
    dials = new TcpDial[WireDescriptor.sockets(streams)];
    hellos = new ByteBuffer[dials.length];
    Closing.onFailure(
        this,
        () -> {
          for (int i = 0; i < dials.length; i++) {
            dials[i] = new TcpDial(handle, plugin.deviceName(device), plugin.options().tls());
            hellos[i] = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
            WireDescriptor.putHello(
                hellos[i],
                new WireDescriptor.Hello(
                    handle.token(), connection, i, streams, WireDescriptor.ownName()));
          }
        });
  }

  /**
   * Advances the connect as far as possible without blocking.
   *
   * @return the sending end, or null if the connect is not complete yet
   */
  TcpSendComm poll() {
    boolean greeted = true;
    for (int i = dials.length - 1; i >= 0; i--) {
      greeted = dials[i].sendHello(hellos[i]);
    }
    if (!greeted || !dials[0].readAnswer(welcome)) {
      checkTime();
      return null;
    }
    String name = WireDescriptor.readWelcome(welcome);
    if (name == null) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "connect to " + handle + ": it answered with no welcome");
    }
    TcpSocket[] sockets = Arrays.stream(dials).map(TcpDial::socket).toArray(TcpSocket[]::new);
    TcpSendComm comm = new TcpSendComm(plugin, device, handle + " (" + name + ")", sockets);
    done = true;
    return comm;
  }

  private void checkTime() {
    long limit = plugin.options().connectNanos();
    if (limit > 0 && System.nanoTime() - startNanos > limit) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          Text.of(
              "connect to %s on %s: no answer in %.1f s; does it accept, and does a firewall let"
                  + " its port through?",
              handle, plugin.deviceName(device), limit / 1e9));
    }
  }

  /** Abandons the connect and closes its sockets, unless the connect is complete. */
  @Override
  public void close() {
    plugin.forget(this);
    if (!done) {
      Closing.all(dials);
    }
  }
}
