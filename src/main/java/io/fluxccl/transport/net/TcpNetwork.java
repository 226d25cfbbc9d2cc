// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.TransportFailure;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.tcp.PortRange;
import io.fluxccl.transport.tcp.TcpDial;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpServer;
import java.net.InetAddress;
import java.time.Duration;
import java.util.Optional;

/** The TCP network of ETHERNET: one listening socket, which all links of a context share. */
final class TcpNetwork implements LinkNetwork {
  private static final Duration HANDSHAKE = Duration.ofSeconds(10);

  private final int rank;
  private final InetAddress address;
  private final Optional<Tls> tls;
  private final TcpServer server;

  /**
   * Opens the network.
   *
   * @throws TransportFailure if there is no port to listen on
   */
  TcpNetwork(int rank, InetAddress address, PortRange ports, Optional<Tls> tls) {
    this.rank = rank;
    this.address = address;
    this.tls = tls;
    TcpServer.Options options =
        new TcpServer.Options(ports, tls, HANDSHAKE, TcpLink.Hello.MAGIC, TcpLink.Hello.LENGTH);
    this.server = new TcpServer(address.getHostAddress(), address, options);
  }

  @Override
  public String name() {
    return "TCP";
  }

  @Override
  public boolean reachesGpus() {
    return false;
  }

  @Override
  public ResumableLink listen(int peer, EndpointConfig config) {
    return new TcpLink(this, rank, peer);
  }

  TcpServer server() {
    return server;
  }

  TcpDial dial(TcpHandle to) {
    return new TcpDial(to, address.getHostAddress(), tls);
  }

  @Override
  public void tend(long nowNs) {
    try {
      server.tend(nowNs);
    } catch (TransportFailure e) {
      // The server has logged it. A link that connects polls the server itself, and reports it.
      return;
    }
  }

  @Override
  public void close() {
    server.close();
  }
}
