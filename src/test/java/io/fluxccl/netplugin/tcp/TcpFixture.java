// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.netplugin.MessageLink.LONG;

import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetPlugin;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;

/** Networks of the loopback and their connections, closed after each test. */
abstract class TcpFixture {
  static final TcpOptions OPTIONS =
      TcpOptions.DEFAULT.withInterfaces("=lo").withStreams(1, 1).withTimeouts(LONG, LONG);

  /** Sizes of messages that go different ways. */
  static final int[] SIZES = {0, 1, 15, 4096, 16_384, 65_535, 65_536, 65_537, 1_000_003};

  private final List<NetPlugin> networks = new ArrayList<>();
  private final List<MessageLink> links = new ArrayList<>();

  final TcpNetPlugin network(TcpOptions options) {
    TcpNetPlugin network = new TcpNetPlugin(options);
    networks.add(network);
    return network;
  }

  /** Opens two networks with these options and connects them. */
  final MessageLink link(TcpOptions options, int bytes) {
    return link(network(options), network(options), bytes);
  }

  final MessageLink link(NetPlugin from, NetPlugin to, int bytes) {
    MessageLink link = new MessageLink(from, to, bytes);
    links.add(link);
    return link;
  }

  @AfterEach
  void closeNetworks() {
    links.forEach(MessageLink::close);
    networks.forEach(NetPlugin::close);
  }
}
