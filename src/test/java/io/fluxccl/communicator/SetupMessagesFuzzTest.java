// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.transport.Transport;

class SetupMessagesFuzzTest {
  @FuzzTest(maxDuration = "75s")
  void fuzzConnectionOverSharedMemory(byte[] bytes) {
    MalformedPeer.connect(Transport.SHM, bytes);
  }

  @FuzzTest(maxDuration = "75s")
  void fuzzConnectionOverEthernet(byte[] bytes) {
    MalformedPeer.connect(Transport.ETHERNET, bytes);
  }

  @FuzzTest(maxDuration = "75s")
  void fuzzMemory(byte[] bytes) {
    MalformedPeer.receive(bytes);
  }
}
