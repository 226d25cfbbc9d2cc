// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Connections of host devices over each network but that of {@link NetOverTcpTest}. */
@ParameterizedClass
@EnumSource(
    value = Network.class,
    names = {"ETHERNET", "ETHERNET_STAGED", "TCP_STREAMS", "PLUGIN_V6", "PLUGIN_V12"})
class NetConnectionTest extends NetConnectionContract {
  NetConnectionTest(Network network) {
    super(network::open);
  }
}
