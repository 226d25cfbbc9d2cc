// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.NativeLibrary;
import io.fluxccl.testing.TestJvms;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class ResourceLeaksTest {
  /** Loads the library's native code after a snapshot, and prints what it counts as left. */
  static final class Loading {
    public static void main(String[] args) {
      ResourceLeaks leaks = ResourceLeaks.snapshot();
      String found = NativeLibrary.isAvailable() ? "nothing" : "no library";
      try {
        leaks.assertNone(Duration.ofSeconds(30));
      } catch (AssertionError e) {
        found = e.getMessage();
      }
      System.out.println(found);
    }
  }

  @Test
  void shouldNotCountTheNativeLibraryThatTheTestHasLoaded() {
    assumeTrue(NativeLibrary.isAvailable(), "there is no native library");
    try (ProcessRank process = TestJvms.start(Loading.class)) {
      assertThat(process.readLine()).isEqualTo("nothing");
    }
  }
}
