// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import com.code_intelligence.jazzer.junit.FuzzTest;

class RegisteredMemoryFuzzTest {
  @FuzzTest(maxDuration = "75s")
  void fuzzMemories(byte[] bytes) {
    RegisteredMemoryCodecTest.decodeOrRefuse(bytes);
  }
}
