// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.tls.Tls;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ThreadLocalRandom;
import javax.net.ssl.SSLException;

/** A connect in progress. Used by one thread at a time. */
final class TcpConnect implements AutoCloseable {
  private final TcpNetPlugin plugin;
  private final int device;
  private final WireDescriptor.Handle handle;
  private final long startNanos = System.nanoTime();
  private final long connection = ThreadLocalRandom.current().nextLong();
  private final TcpSocket[] sockets;
  private final boolean[] connected;
  private final boolean[] greeted;
  private final ByteBuffer welcome = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
  private boolean done;

  TcpConnect(TcpNetPlugin plugin, int device, WireDescriptor.Handle handle) {
    this.plugin = plugin;
    this.device = device;
    this.handle = handle;
    sockets = new TcpSocket[WireDescriptor.sockets(plugin.options().streams())];
    connected = new boolean[sockets.length];
    greeted = new boolean[sockets.length];
    try {
      for (int i = 0; i < sockets.length; i++) {
        sockets[i] = new TcpSocket(SocketChannel.open());
        sockets[i].channel().connect(handle.address());
      }
    } catch (IOException e) {
      close();
      throw failure(e);
    }
  }

  /**
   * Advances the connect as far as possible without blocking.
   *
   * @return the sending end, or null if the connect is not complete yet
   */
  TcpSendComm poll() {
    try {
      for (int i = 0; i < sockets.length; i++) {
        if (!greeted[i] && isConnected(i) && sockets[i].isSecured()) {
          greet(i);
        }
      }
      if (!greeted[0]) {
        checkTime();
        return null;
      }
      if (sockets[0].read(welcome) < 0) {
        throw new EndOfStream();
      }
      if (welcome.hasRemaining()) {
        checkTime();
        return null;
      }
    } catch (IOException e) {
      throw failure(e);
    }
    String name = WireDescriptor.readWelcome(welcome);
    if (name == null) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "connect to " + text() + ": it answered with no welcome");
    }
    TcpSendComm comm = new TcpSendComm(plugin, device, text() + " (" + name + ")", sockets);
    done = true;
    return comm;
  }

  private boolean isConnected(int stream) throws IOException {
    TcpSocket socket = sockets[stream];
    if (connected[stream] || !socket.channel().finishConnect()) {
      return connected[stream];
    }
    connected[stream] = true;
    socket.limitLocalSends();
    if (handle.fingerprint() != null) {
      socket.secure(tls().connecting());
    }
    return true;
  }

  private Tls tls() {
    return plugin
        .options()
        .tls()
        .orElseThrow(
            () ->
                InvalidUsage.of(
                    "connect to %s: its process uses TLS and this one does not; give %s to all",
                    text(), Tls.VARIABLE));
  }

  private void greet(int stream) throws IOException {
    if (handle.fingerprint() == null && plugin.options().tls().isPresent()) {
      throw InvalidUsage.of(
          "connect to %s: this process uses TLS and its process does not; give %s to all",
          text(), Tls.VARIABLE);
    }
    if (handle.fingerprint() != null && !sockets[stream].isCertified(handle.fingerprint())) {
      throw new SSLException("it has another certificate than the one of its address");
    }
    ByteBuffer hello = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
    WireDescriptor.putHello(
        hello,
        new WireDescriptor.Hello(
            handle.token(),
            connection,
            stream,
            plugin.options().streams(),
            WireDescriptor.ownName()));
    // The socket's buffer is empty, so the hello fits.
    sockets[stream].write(hello);
    greeted[stream] = true;
  }

  private void checkTime() {
    long limit = plugin.options().connectNanos();
    if (limit > 0 && System.nanoTime() - startNanos > limit) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          Text.of(
              "connect to %s on %s: no answer in %.1f s; does it accept, and does a firewall let"
                  + " its port through?",
              text(), plugin.deviceName(device), limit / 1e9));
    }
  }

  private FluxCclException failure(IOException e) {
    String message =
        Text.of(
            "connect to %s on %s: %s",
            text(),
            plugin.deviceName(device),
            OpenFiles.explain(
                e,
                e.getMessage()
                    + "; is its process alive, and is this interface the one that reaches it"
                    + " (FLUXCCL_NET_IFNAME)?"));
    // No process listens there, or not for this token, or not the peer. Else the path may have
    // failed.
    boolean refused =
        e instanceof ConnectException || e instanceof EndOfStream || e instanceof SSLException;
    return refused
        ? new RemoteFailure(FluxCclException.NO_RANK, message)
        : new TransportFailure(FluxCclException.NO_RANK, message, e);
  }

  private String text() {
    return handle.address().getAddress().getHostAddress() + ":" + handle.address().getPort();
  }

  /** Abandons the connect and closes its sockets, unless the connect is complete. */
  @Override
  public void close() {
    plugin.forget(this);
    if (!done) {
      TcpSocket.close(sockets);
    }
  }
}
