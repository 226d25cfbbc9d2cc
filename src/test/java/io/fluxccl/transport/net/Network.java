// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.NativeLibrary;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.testing.TestNet;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.plugin.NetChoice;
import java.net.InetAddress;
import java.nio.file.Path;
import java.util.Optional;

/** Networks that connect two ranks on the host. */
enum Network {
  ETHERNET(folder -> NetRanks.ethernet(false)),
  ETHERNET_STAGED(folder -> NetRanks.ethernet(true)),
  ETHERNET_TLS(folder -> NetRanks.ethernetOverTls()),
  /** The built-in TCP network, whose I/O threads move the bodies of long writes in parts. */
  TCP_STREAMS(folder -> tcpStreams(Optional.empty())),
  TCP_STREAMS_TLS(folder -> tcpStreams(Optional.of(Tls.selfSigned()))),
  /** Eight requests, sizes that are ints, one rail. */
  PLUGIN_V6(folder -> plugin(TestNet.library(folder, 6), "0")),
  PLUGIN_V11(folder -> plugin(TestNet.library(folder, 11), null)),
  /** The newest interface, two rails, and requests that are null at first. */
  PLUGIN_V12(folder -> plugin(TestNet.library(folder, 12, "NULL_REQUESTS=500"), null));

  /** Opens two ranks, whose plugin may be built in the folder. */
  interface Opener {
    NetRanks open(Path folder) throws Exception;
  }

  private final Opener opener;

  Network(Opener opener) {
    this.opener = opener;
  }

  NetRanks open(Path folder) throws Exception {
    return opener.open(folder);
  }

  private static NetRanks tcpStreams(Optional<Tls> tls) {
    TcpOptions options = TcpOptions.DEFAULT.withStreams(3, 2).withTls(tls);
    return new NetRanks(TcpNetPlugin.at(InetAddress.getLoopbackAddress(), options));
  }

  private static NetRanks plugin(Path library, String devices) {
    Optional<String> missing = NativeLibrary.unavailableBecause();
    assumeTrue(missing.isEmpty(), () -> "no libfluxccl.so: " + missing.orElseThrow());
    return new NetRanks(new NetChoice(null, library.toString(), devices));
  }
}
