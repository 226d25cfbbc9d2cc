// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.RemoteFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginContract;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.TableOptions;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Large messages over four sockets, which two threads drive. */
class TcpStreamsTest extends NetPluginContract {
  @Override
  protected NetPlugin network(Duration requests, Duration connects) {
    return network(4, requests, connects);
  }

  private NetPlugin network(int streams, Duration requests, Duration connects) {
    return closing(new TcpNetPlugin(options(streams).withTimeouts(requests, connects)));
  }

  private static TcpOptions options(int streams) {
    return TcpNetPluginTest.OPTIONS.withStreams(streams, 2);
  }

  @Override
  protected NetPlugin network(TableOptions table) {
    return closing(new TcpNetPlugin(options(4).withTable(table)));
  }

  @Override
  protected List<ConnectionState> connections(NetPlugin network) {
    return ((TcpNetPlugin) network).connections();
  }

  @Override
  protected String address() {
    return "127.0.0.1:";
  }

  @Override
  protected int[] sizes() {
    return TcpNetPluginTest.SIZES;
  }

  @Test
  void shouldSpreadByTheSendersNumberOfStreams() {
    int total = Arrays.stream(sizes()).sum();
    NetPlugin two = network(2, MessageLink.LONG, MessageLink.LONG);
    NetPlugin one = network(1, MessageLink.LONG, MessageLink.LONG);
    try (MessageLink there = new MessageLink(two, one, total);
        MessageLink back = new MessageLink(one, two, total)) {
      there.moveAll(sizes(), 2);
      back.moveAll(sizes(), 2);
    }
  }

  /**
   * An I/O thread may deliver the last part between the checks of the request and of the
   * connection.
   */
  @Test
  void shouldDeliverPartsThatArriveWhileTheDisconnectIsDetected() {
    NetPlugin from = network(4, MessageLink.LONG, MessageLink.LONG);
    NetPlugin to = network(4, MessageLink.LONG, MessageLink.LONG);
    for (int i = 0; i < 300; i++) {
      try (MessageLink link = new MessageLink(from, to, 400_000)) {
        NetRequest first = link.irecv(0, 100_000);
        NetRequest second = link.irecv(100_000, 100_000);
        // Waits for a header, and so detects the disconnect.
        NetRequest none = link.irecv(200_000, 100_000);
        MessageLink.await(link.isend(0, 100_000), link.isend(100_000, 100_000));
        link.send.close();
        MessageLink.await(first, second);
        assertThat(MessageLink.failureOf(none)).isInstanceOf(RemoteFailure.class);
      }
    }
  }
}
