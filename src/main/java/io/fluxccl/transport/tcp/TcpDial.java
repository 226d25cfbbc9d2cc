// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.tls.Tls;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Optional;
import javax.net.ssl.SSLException;

/**
 * A socket that connects to a listener, begins TLS if the listener uses it, and sends a hello. Used
 * by one thread at a time; never blocks.
 */
public final class TcpDial implements AutoCloseable {
  private final TcpHandle to;
  private final String device;
  private final Optional<Tls> tls;
  private final TcpSocket socket;
  private boolean connected;
  private boolean greeted;

  /**
   * Begins to connect.
   *
   * @param device the name of the local interface, for messages
   * @param tls of this process, if it uses TLS
   * @throws FluxCclException if the system refuses the connect
   */
  public TcpDial(TcpHandle to, String device, Optional<Tls> tls) {
    this.to = to;
    this.device = device;
    this.tls = tls;
    TcpSocket opened = null;
    try {
      opened = new TcpSocket(SocketChannel.open());
      opened.channel().connect(to.address());
    } catch (IOException | IllegalArgumentException e) {
      if (opened != null) {
        opened.close();
      }
      // An address that this system does not support is an illegal argument.
      throw failure(e instanceof IOException failure ? failure : new IOException(e.toString(), e));
    }
    socket = opened;
  }

  /** Returns the socket. */
  public TcpSocket socket() {
    return socket;
  }

  /** Returns how many steps are done: the connect, and the hello. */
  public int steps() {
    return (connected ? 1 : 0) + (greeted ? 1 : 0);
  }

  /**
   * Advances the connect.
   *
   * @param hello the bytes to send once, which the empty buffer of a new socket accepts in one call
   * @return whether the hello is sent
   * @throws FluxCclException if the connect has failed
   */
  public boolean sendHello(ByteBuffer hello) {
    try {
      if (!greeted && isConnected() && socket.isSecured()) {
        checkCertificate();
        socket.write(hello);
        greeted = true;
      }
      return greeted;
    } catch (IOException e) {
      throw failure(e);
    }
  }

  /**
   * Reads the listener's answer.
   *
   * @return whether the buffer is full
   * @throws FluxCclException if the listener has closed the socket, or the socket has failed
   */
  public boolean readAnswer(ByteBuffer answer) {
    try {
      if (answer.hasRemaining() && socket.read(answer) < 0) {
        throw new EndOfStream();
      }
      return !answer.hasRemaining();
    } catch (IOException e) {
      throw failure(e);
    }
  }

  private boolean isConnected() throws IOException {
    if (connected || !socket.channel().finishConnect()) {
      return connected;
    }
    connected = true;
    socket.limitLocalSends();
    if (to.fingerprint() != null) {
      socket.secure(
          tls.orElseThrow(() -> mismatch("its process uses TLS and this one does not"))
              .connecting());
    }
    return true;
  }

  private void checkCertificate() throws IOException {
    if (to.fingerprint() == null && tls.isPresent()) {
      throw mismatch("this process uses TLS and its process does not");
    }
    if (to.fingerprint() != null && !socket.isCertified(to.fingerprint())) {
      throw new SSLException("it has another certificate than the one of its address");
    }
  }

  private InvalidUsage mismatch(String difference) {
    return InvalidUsage.of("connect to %s: %s; give %s to all", to, difference, Tls.VARIABLE);
  }

  private FluxCclException failure(IOException e) {
    String message =
        Text.of(
            "connect to %s on %s: %s",
            to,
            device,
            OpenFiles.explain(
                e,
                e.getMessage()
                    + "; is its process alive, and is this interface the one that reaches it"
                    + " (FLUXCCL_ADDR, of a plug-in FLUXCCL_NET_IFNAME)?"));
    // No process listens there, or not for this token, or not the peer. Else the path may have
    // failed.
    boolean refused =
        e instanceof ConnectException || e instanceof EndOfStream || e instanceof SSLException;
    return refused
        ? new RemoteFailure(FluxCclException.NO_RANK, message)
        : new TransportFailure(FluxCclException.NO_RANK, message, e);
  }

  @Override
  public void close() {
    socket.close();
  }
}
