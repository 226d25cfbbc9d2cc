// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testkit.ProcessRank;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

@Tag("multiprocess")
class TestJvmsTest {
  /** Logs a warning and then prints a line. */
  static final class Speaker {
    public static void main(String[] arguments) {
      LoggerFactory.getLogger(Speaker.class).warn("a warning, on purpose");
      System.out.println("for the test");
    }
  }

  @Test
  void shouldKeepWarningsOfTheJvmAndOfTheLibraryOutOfTheLines() {
    String warns = "-XX:NewSize=1g"; // more than the heap
    try (ProcessRank rank = TestJvms.of(1, Speaker.class).jvmOptions(warns).startRank(0)) {
      assertThat(rank.readLine()).isEqualTo("for the test");
      assertThat(rank.readLine()).isNull();
    }
  }
}
