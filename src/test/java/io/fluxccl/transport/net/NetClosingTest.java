// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.awaitility.Awaitility.await;
import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A failed close does not prevent closing the other resources. */
@Timeout(60)
class NetClosingTest {
  @Test
  void shouldGiveThePluginBackWhenAStreamCannotBeClosed() {
    Device device = mock(Device.class);
    DeviceStream[] streams = {mock(DeviceStream.class), mock(DeviceStream.class)};
    when(device.kind()).thenReturn(DeviceKind.CUDA);
    when(device.createPreferredStream(anyString())).thenReturn(streams[0], streams[1]);
    doThrow(new IllegalStateException("of a test")).when(streams[0]).close();
    FaultyNet net = new FaultyNet();
    NetContext context = NetRanks.open(NetRanks.environment(0, device), net, 1, net::close);
    context.close();
    await().until(() -> net.closed);
    verify(streams[1]).close();
  }
}
