// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import com.code_intelligence.jazzer.junit.FuzzTest;

/** Any bytes of a rank are refused as malformed, or printed in every form. */
class SnapshotFuzzTest {
  @FuzzTest(maxDuration = "75s")
  void snapshot(byte[] bytes) {
    JobDumpTest.show(bytes);
  }
}
