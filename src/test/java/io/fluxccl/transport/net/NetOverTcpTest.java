// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.transport.tcp.TcpHandle;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/** NET over the built-in TCP network. */
class NetOverTcpTest extends NetConnectionContract {
  NetOverTcpTest() {
    super(folder -> NetRanks.overTcp(false));
  }

  @Test
  void shouldListenAtTheJobsAddressOnly() {
    byte[] wire = ranks.endpoint(0, 1, 9).wire();
    byte[] address = EndpointWire.decode(wire, 0).address();
    byte[] handle = Arrays.copyOfRange(address, 8 + 2 + 32, address.length);
    assertThat(TcpHandle.decode(ByteBuffer.wrap(handle)).address().getAddress())
        .isEqualTo(InetAddress.getLoopbackAddress());
    assertThat(address).as("one rail").hasSize(8 + 2 + 32 + 2 * NetPlugin.HANDLE_BYTES);
  }
}
