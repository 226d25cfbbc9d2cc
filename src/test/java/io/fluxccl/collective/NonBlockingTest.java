// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("multiprocess")
@Tag("jdk")
class NonBlockingTest {
  private static final Duration LIMIT = Duration.ofSeconds(120);

  @Test
  void shouldNotBlockNonBlockingThreads() {
    List<String> options = new ArrayList<>(TestJvms.ofBuild());
    // BlockHound needs this to change classes of the JDK.
    options.add("-XX:+AllowRedefinitionToAddDeleteMethods");
    if (Runtime.version().feature() >= 21) {
      options.add("-XX:+EnableDynamicAgentLoading");
    }
    try (ProcessRank process =
        ProcessRanks.builder(1, NonBlockingRun.class)
            .jvmOptions(options.toArray(String[]::new))
            .limit(LIMIT)
            .startRank(0)) {
      int code = process.end();
      assertThat(process.output()).contains("watching: true", "idled: true", "nothing blocked");
      assertThat(process.output()).contains("refused to sleep on rank-");
      assertThat(process.output()).doesNotContain("BlockingOperationError");
      assertThat(code).isZero();
    }
  }
}
