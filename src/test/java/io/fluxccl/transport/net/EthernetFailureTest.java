// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(
    value = Network.class,
    names = {"ETHERNET", "ETHERNET_STAGED"})
class EthernetFailureTest extends NetFailureContract {
  EthernetFailureTest(Network network) {
    super(network::open);
  }
}
