// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.transport.Transport;

class SetupMessagesFuzzTest {
  @FuzzTest(maxDuration = "75s")
  void fuzzConnectionOverSharedMemory(byte[] bytes) {
    LyingPeer.connect(Transport.SHM, bytes);
  }

  @FuzzTest(maxDuration = "75s")
  void fuzzConnectionOverEthernet(byte[] bytes) {
    LyingPeer.connect(Transport.ETHERNET, bytes);
  }

  @FuzzTest(maxDuration = "75s")
  void fuzzMemory(byte[] bytes) {
    LyingPeer.receive(bytes);
  }
}
