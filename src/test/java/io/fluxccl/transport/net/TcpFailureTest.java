// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Failures of ETHERNET, and of NET over the built-in TCP network. */
@ParameterizedClass
@EnumSource(
    value = Network.class,
    names = {"ETHERNET", "ETHERNET_STAGED", "TCP_STREAMS"})
class TcpFailureTest extends NetFailureContract {
  TcpFailureTest(Network network) {
    super(network::open);
  }
}
