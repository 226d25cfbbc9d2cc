// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetPlugin;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/** Large messages over four sockets, which two threads drive. */
class TcpStreamsTest extends TcpNetworkContract {
  TcpStreamsTest() {
    super(streams(4));
  }

  private static TcpOptions streams(int streams) {
    return OPTIONS.withStreams(streams, 2);
  }

  @Test
  void shouldSpreadByTheSendersNumberOfStreams() {
    int total = Arrays.stream(SIZES).sum();
    NetPlugin two = network(streams(2));
    NetPlugin one = network(streams(1));
    link(two, one, total).moveAll(SIZES, 2);
    link(one, two, total).moveAll(SIZES, 2);
  }

  /**
   * An I/O thread may deliver the last part between the checks of the request and of the
   * connection.
   */
  @Test
  void shouldDeliverPartsThatArriveWhileTheDisconnectIsDetected() {
    NetPlugin from = network(streams(4));
    NetPlugin to = network(streams(4));
    for (int i = 0; i < 300; i++) {
      MessageLink link = link(from, to, 400_000);
      assertDelivered(link);
    }
  }
}
