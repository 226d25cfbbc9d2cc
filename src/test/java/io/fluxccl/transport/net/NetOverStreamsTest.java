// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import java.nio.file.Path;

/** NET over the built-in TCP network, whose I/O threads move the bodies of long writes in parts. */
class NetOverStreamsTest extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) {
    return new NetRanks(
        new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo").withStreams(3, 2)));
  }
}
